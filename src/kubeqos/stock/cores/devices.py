"""Cores as devices of Dynamic Resource Allocation: what a node publishes of them, and what its claims ask for. Pure.

A device is a physical core. The scheduler chooses which cores a claim gets; KEP-3675's parameters, as the claim's
opaque configuration for our driver, say what is done with them. Called by `slices`, `dra` and the keeper's assembly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.claims.parameters import CORES, CPU
from kubeqos.topology.claims.resolving import ResolvedClaim, Unresolved

Raw = Mapping[str, Any]
DRIVER = "cci.kubeqos.io"
API_VERSION = "resource.k8s.io/v1"


def device_name(core: int) -> str:
    return f"core-{core}"


def devices(machine: Machine, reserved: CpuSet) -> list[dict[str, Any]]:
    """Every core that a claim may have, with what selectors can ask of it; those that the system needs are left out."""
    found = []
    for core, cpus in machine.cores.items():
        if cpus & reserved:
            continue
        first = machine.cpu(min(cpus))
        attributes = {
            "cpus": {"string": str(cpus)},
            "threads": {"int": len(cpus)},
            "numaNode": {"int": first.numa},
            "socket": {"int": first.socket},
            "cache": {"int": first.uncore},
            "kind": {"string": first.kind.value},
            "isolated": {"bool": bool(cpus & machine.isolated)},
        }
        found.append({"name": device_name(core), "attributes": attributes})
    return found


def free_cores(machine: Machine, free: CpuSet) -> list[dict[str, Any]]:
    """Whole cores of which nobody owns a thread, by the attributes that selectors can ask of them."""
    found: dict[tuple[object, ...], tuple[int, CpuSet]] = {}
    for cpus in machine.cores.values():
        if cpus <= free:
            first = machine.cpu(min(cpus))
            isolated = bool(cpus & machine.isolated)
            key = first.numa, first.socket, first.uncore, first.kind.value, len(cpus), isolated
            count, already = found.get(key, (0, NO_CPUS))
            found[key] = count + 1, already | cpus
    names = "numaNode", "socket", "cache", "kind", "threads", "isolated"
    return [
        {**dict(zip(names, key, strict=True)), "cores": count, "cpus": str(cpus)}
        for key, (count, cpus) in found.items()
    ]


def claim_names(pod: Raw) -> dict[str, str]:
    """The ResourceClaims of a pod by the names that it gives them; empty for one that is not made yet."""
    made = {one["name"]: one.get("resourceClaimName") or "" for one in _of(pod, "status", "resourceClaimStatuses")}
    claims = _of(pod, "spec", "resourceClaims")
    return {one["name"]: one.get("resourceClaimName") or made.get(one["name"], "") for one in claims}


def results(claim: Raw) -> list[Raw]:
    """The devices of ours that a claim was given."""
    allocated = _of((claim.get("status") or {}).get("allocation") or {}, "devices", "results")
    return [one for one in allocated if one.get("driver") == DRIVER]


def told_devices(claim: Raw, machine: Machine, now: str) -> list[dict[str, Any]]:
    """What a claim's status says of our devices once they are prepared: which CPUs each is, and where."""
    cores = {device_name(core): cpus for core, cpus in machine.cores.items()}
    ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": now}
    found = []
    for one in results(claim):
        cpus = cores[one["device"]]
        data = {"cpus": str(cpus), "numaNode": machine.cpu(min(cpus)).numa}
        named = {key: one[key] for key in ("driver", "pool", "device")}
        found.append({**named, "data": data, "conditions": [ready]})
    return found


def are_told(claim: Raw, wanted: Iterable[Raw]) -> bool:
    """Whether a claim's status says so already."""
    told = [(one.get("device"), one.get("data")) for one in _of(claim, "status", "devices")]
    return all((one["device"], one["data"]) in told for one in wanted)


def resolved(name: str, claim: Raw, machine: Machine) -> ResolvedClaim | Unresolved | None:
    """What a claim asks of compute drivers; None when its devices are not ours."""
    metadata, allocation = claim["metadata"], (claim.get("status") or {}).get("allocation")
    if not allocation:
        return Unresolved(f"ResourceClaim {metadata['name']!r} has no devices yet")
    given = results(claim)
    if not given:
        return None
    cores = {device_name(core): cpus for core, cpus in machine.cores.items()}
    within = NO_CPUS
    for one in given:
        if one["device"] not in cores:
            return Unresolved(f"this machine has no {one['device']}, which the claim was given", retry=False)
        within |= cores[one["device"]]
    text = _parameters(allocation) or encode_json({CORES: [str(len(within))], CPU: [["EXCLUSIVE"]]}).decode()
    source = f"configuration of ResourceClaim {metadata['namespace']}/{metadata['name']} for {DRIVER}"
    return ResolvedClaim(
        name, metadata["namespace"], metadata["name"], metadata["uid"], "", "", text, source, within=within
    )


def only_claims(pod: Raw, ours: Collection[str]) -> dict[str, Any]:
    """The pod without claims for other drivers' devices, with which compute drivers have nothing to do."""
    spec = dict(pod["spec"])
    if not spec.get("resourceClaims"):
        return dict(pod)
    spec["resourceClaims"] = [one for one in spec["resourceClaims"] if one["name"] in ours]
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [_container(one, ours) for one in spec[kind]]
    return {**pod, "spec": spec}


def _container(container: Raw, ours: Collection[str]) -> Raw:
    resources = container.get("resources") or {}
    if not resources.get("claims"):
        return container
    claims = [one for one in resources["claims"] if one["name"] in ours]
    return {**container, "resources": {**resources, "claims": claims}}


def _parameters(allocation: Raw) -> str:
    """The configuration for our driver; what the claim says stands behind what its class says, and holds."""
    found = ""
    for one in _of(allocation, "devices", "config"):
        opaque = one.get("opaque") or {}
        if opaque.get("driver") == DRIVER:
            found = encode_json(opaque.get("parameters") or {}).decode()
    return found


def _of(raw: Raw, part: str, field: str) -> Iterable[Raw]:
    found: Iterable[Raw] = (raw.get(part) or {}).get(field) or ()
    return found
