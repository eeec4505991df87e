"""Cores as devices: what is published of a machine, and what a claim for some of them means."""

from __future__ import annotations

from typing import Any

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.stock.cores.devices import (
    are_told,
    claim_names,
    devices,
    free_cores,
    only_claims,
    resolved,
    told_devices,
)
from kubeqos.topology.claims.parameters import Parameters, parse
from kubeqos.topology.claims.resolving import ResolvedClaim, Unresolved

LAPTOP = load_machine("laptop8")


def claim(*names: str, driver: str = "cci.kubeqos.io", config: Any = ()) -> dict[str, Any]:
    results = [{"driver": driver, "pool": "n1", "request": "cores", "device": name} for name in names]
    status = {"allocation": {"devices": {"results": results, "config": list(config)}}} if names else {}
    return {"metadata": {"name": "c", "namespace": "team", "uid": "u"}, "status": status}


def opaque(parameters: Any, driver: str = "cci.kubeqos.io") -> dict[str, Any]:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def test_free_cores_are_told_by_what_can_be_asked_of_them() -> None:
    machine = load_machine("kep80")
    every = free_cores(machine, machine.online)
    assert sum(one["cores"] for one in every) == len(machine.cores)
    assert {one["numaNode"] for one in every} == set(machine.numa)
    owned = CpuSet.of(min(machine.cores[0]))
    rest = free_cores(machine, machine.online - owned)
    assert rest[0]["cores"] == every[0]["cores"] - 1, "a core of which somebody owns a thread is not free"
    assert not CpuSet.parse(rest[0]["cpus"]) & machine.cores[0]
    assert free_cores(machine, NO_CPUS) == []


def test_a_core_is_a_device_unless_the_system_needs_it() -> None:
    every = {one["name"]: one["attributes"] for one in devices(LAPTOP, NO_CPUS)}
    assert len(every) == len(LAPTOP.cores)
    assert every["core-0"]["threads"] == {"int": len(LAPTOP.cores[0])}
    assert every["core-0"]["cpus"] == {"string": str(LAPTOP.cores[0])}
    assert "core-0" not in {one["name"] for one in devices(LAPTOP, CpuSet.parse("0"))}


def test_a_claim_is_told_its_cpus_once() -> None:
    given = claim("core-0")
    [told] = told_devices(given, LAPTOP, "2026-01-01T00:00:00Z")
    assert told["data"] == {"cpus": str(LAPTOP.cores[0]), "numaNode": 0}
    assert (told["driver"], told["pool"], told["device"]) == ("cci.kubeqos.io", "n1", "core-0")
    assert not are_told(given, [told])
    given["status"]["devices"] = [told]
    assert are_told(given, told_devices(given, LAPTOP, "2026-01-01T00:01:00Z"))
    assert told_devices(claim("gpu-1", driver="gpu.example.com"), LAPTOP, "") == []


def test_a_claim_is_for_the_cores_that_it_was_given() -> None:
    found = resolved("compute", claim("core-0", config=[opaque({"cores": ["1"]})]), LAPTOP)
    assert isinstance(found, ResolvedClaim)
    assert found.within == LAPTOP.cores[0]
    parameters = parse(found.parameters)
    assert isinstance(parameters, Parameters)
    assert parameters.least == 1


def test_without_configuration_the_cores_are_its_own() -> None:
    found = resolved("compute", claim("core-0", config=[opaque({"cores": ["9"]}, driver="gpu.example")]), LAPTOP)
    assert isinstance(found, ResolvedClaim)
    parameters = parse(found.parameters)
    assert isinstance(parameters, Parameters)
    assert [(group.least, group.exclusive) for group in parameters.groups] == [(len(LAPTOP.cores[0]), True)]


def test_claims_of_others_and_unready_ones() -> None:
    assert resolved("gpu", claim("gpu-0", driver="gpu.example"), LAPTOP) is None
    assert isinstance(resolved("compute", claim(), LAPTOP), Unresolved)
    missing = resolved("compute", claim("core-99"), LAPTOP)
    assert isinstance(missing, Unresolved)
    assert "no core-99" in missing.message


def test_a_pod_names_its_claims_and_keeps_those_of_ours() -> None:
    pod = {
        "spec": {
            "resourceClaims": [
                {"name": "compute", "resourceClaimTemplateName": "t"},
                {"name": "gpu", "resourceClaimName": "mine"},
            ],
            "containers": [{"name": "c", "resources": {"claims": [{"name": "compute"}, {"name": "gpu"}]}}],
        },
        "status": {"resourceClaimStatuses": [{"name": "compute", "resourceClaimName": "made"}]},
    }
    assert claim_names(pod) == {"compute": "made", "gpu": "mine"}
    ours = only_claims(pod, {"compute"})["spec"]
    assert [one["name"] for one in ours["resourceClaims"]] == ["compute"]
    assert ours["containers"][0]["resources"]["claims"] == [{"name": "compute"}]
