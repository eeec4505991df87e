"""Our CRI messages have the bytes of Kubernetes' own, and KEP-3008's additions stay out of their way."""

from __future__ import annotations

import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from tests.conformance.recorded import cases
from tests.conformance.wire import Case, built, identify, knows_every_field, parsed, same_value

CASES = cases("cri_wire")


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_the_recorded_bytes_mean_the_recorded_message(case: Case) -> None:
    message = parsed(case)
    assert knows_every_field(message)
    assert same_value(message, built(case))
    if not case.get("multi_key"):
        assert message.SerializeToString(deterministic=True).hex() == case["hex"]


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_the_recorded_message_gives_the_recorded_bytes(case: Case) -> None:
    wire = built(case).SerializeToString(deterministic=True)
    if case.get("multi_key"):
        assert same_value(type(parsed(case)).FromString(wire), parsed(case))
    else:
        assert wire.hex() == case["hex"]


@pytest.mark.parametrize(
    ("message", "number"),
    [
        (cri.ContainerConfig, 3008),
        (cri.UpdateContainerResourcesRequest, 5),
        (cri.PodSandboxConfig, 10),
        (cri.PodSandboxStatus, 10),
        (cri.ContainerResources, 3),
    ],
    ids=lambda value: getattr(getattr(value, "DESCRIPTOR", None), "name", str(value)),
)
def test_classes_travel_under_the_agreed_tags(message: type, number: int) -> None:
    assert message.DESCRIPTOR.fields_by_name["qos_resources"].number == number


def test_a_requested_class_is_never_read_as_a_device_or_a_stop_signal() -> None:
    config = cri.ContainerConfig(qos_resources=[cri.ContainerQOSResource(name="k8s.io/rdt", **{"class": "gold"})])
    wire = config.SerializeToString()
    tags = {b"\x8a\x01": "CDI_devices (17)", b"\x90\x01": "stop_signal (18)", b"\x92\x01": "18 as a message"}
    assert not [name for tag, name in tags.items() if wire.startswith(tag)]
    assert wire.startswith(b"\x82\xbc\x01")  # 3008 << 3 | 2


def test_fields_of_a_newer_kubernetes_survive_a_round_trip() -> None:
    newer = b"\xfa\x3e\x03new"  # field 1007, a string
    status = cri.RuntimeStatus.FromString(newer)
    status.conditions.add(type="RuntimeReady", status=True)
    assert status.SerializeToString().endswith(newer)
