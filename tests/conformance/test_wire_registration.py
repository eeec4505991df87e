"""Plugin registration, pod resources (both dialects) and DRA have the bytes of Kubernetes' own."""

from __future__ import annotations

import pytest

from kubeqos.node.server.proto import podresources_pb2 as podresources
from kubeqos.plugins.proto import dra_pb2 as dra
from kubeqos.plugins.proto import pluginregistration_pb2 as registration
from tests.conformance.recorded import cases
from tests.conformance.wire import Case, check_both_directions

CASES = cases("registration_podresources_wire")


def identify(case: Case) -> str:
    return f"{case['message']}-{len(case['hex']) // 2}"


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_bytes_are_equal_in_both_directions(case: Case) -> None:
    check_both_directions(case)


def test_services_have_the_names_that_peers_dial() -> None:
    services = [*registration.DESCRIPTOR.services_by_name.values()]
    services += [
        *podresources.DESCRIPTOR.services_by_name.values(),
        *dra.DESCRIPTOR.services_by_name.values(),
    ]
    assert {s.full_name: sorted(m.name for m in s.methods) for s in services} == {
        "pluginregistration.Registration": ["GetInfo", "NotifyRegistrationStatus"],
        "v1.PodResourcesLister": ["Get", "GetAllocatableResources", "List"],
        "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin": ["NodePrepareResources", "NodeUnprepareResources"],
    }
