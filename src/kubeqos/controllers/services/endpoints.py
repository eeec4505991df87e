"""The EndpointSlices of a service: which pods stand behind it, on which ports, and what has to be written. Pure.

Slices are kept as they are as far as they are right; what is new fills them up to a hundred endpoints, so that a pod
that comes or goes changes one slice and not all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kubeqos.client.resources import ENDPOINT_SLICES
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, change, deletion
from kubeqos.controllers.podstate import controller_of, is_going, is_ready, is_terminal, owner_reference

PER_SLICE = 100
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
OURS = "endpointslice-controller.k8s.io"
_HEADLESS = "service.kubernetes.io/headless"
Ports = tuple[tuple[str, str, int, str], ...]
"""(name, protocol, number, application protocol) of every port of a slice."""


def desired(
    service: JsonObject, pods: Iterable[JsonObject], slices: Iterable[JsonObject], zones: Mapping[str, str]
) -> list[Action]:
    """What brings the slices of a service to the pods that stand behind it; `zones` are those of nodes by name."""
    spec = service.get("spec") or {}
    mine = [one for one in slices if (one["metadata"].get("labels") or {}).get(MANAGED_BY) == OURS]
    if is_going(service) or spec.get("type") == "ExternalName" or not spec.get("selector"):
        return [deletion(ENDPOINT_SLICES, one, "the service selects no pods") for one in mine if not is_going(one)]
    wanted: defaultdict[Ports, list[JsonObject]] = defaultdict(list)
    for pod in pods:
        if (pod.get("status") or {}).get("podIP") and not is_terminal(pod):
            wanted[_ports(service, pod)].append(_endpoint(service, pod, zones))
    if not wanted:
        wanted[()] = []  # an empty slice says that there is a service, and nobody behind it
    return _written(service, wanted, [one for one in mine if not is_going(one)])


def _endpoint(service: JsonObject, pod: JsonObject, zones: Mapping[str, str]) -> JsonObject:
    spec, metadata = pod["spec"], pod["metadata"]
    serving, going = is_ready(pod), is_going(pod)
    published = bool((service.get("spec") or {}).get("publishNotReadyAddresses"))
    found: JsonObject = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": published or (serving and not going), "serving": serving, "terminating": going},
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        found["hostname"] = spec["hostname"]
    if spec.get("nodeName"):
        found["nodeName"] = spec["nodeName"]
        if zones.get(spec["nodeName"]):
            found["zone"] = zones[spec["nodeName"]]
    return found


def _ports(service: JsonObject, pod: JsonObject) -> Ports:
    """The pod's own ports behind those of the service; a name that it has not leads nowhere."""
    found = []
    for port in service["spec"].get("ports") or ():
        protocol, target = port.get("protocol") or "TCP", port.get("targetPort") or port.get("port")
        number = target if isinstance(target, int) else _named_port(pod, str(target), protocol)
        if number:
            found.append((port.get("name") or "", protocol, number, port.get("appProtocol") or ""))
    return tuple(found)


def _named_port(pod: JsonObject, name: str, protocol: str) -> int | None:
    sidecars = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in (*pod["spec"].get("containers", ()), *sidecars):
        for port in container.get("ports") or ():
            if port.get("name") == name and (port.get("protocol") or "TCP") == protocol:
                return int(port["containerPort"])
    return None


# -- slices --------------------------------------------------------------------------------------------------------


def _written(
    service: JsonObject, wanted: Mapping[Ports, list[JsonObject]], slices: Sequence[JsonObject]
) -> list[Action]:
    actions: list[Action] = []
    left = sorted(slices, key=lambda one: one["metadata"]["name"])
    for ports, endpoints in wanted.items():
        same = [one for one in left if _ports_of(one) == ports]
        left = [one for one in left if one not in same]
        actions += _filled(service, ports, endpoints, same)
    return actions + [deletion(ENDPOINT_SLICES, one, "no endpoint has these ports") for one in left]


def _filled(service: JsonObject, ports: Ports, endpoints: list[JsonObject], slices: list[JsonObject]) -> list[Action]:
    """Every endpoint in one slice: where it stood before, or where there is room."""
    by_pod = {_of(one): one for one in sorted(endpoints, key=_of)}
    kept = [[by_pod.pop(_of(one)) for one in each.get("endpoints") or () if _of(one) in by_pod] for each in slices]
    fresh = list(by_pod.values())
    for entries in kept:
        room = PER_SLICE - len(entries)
        if fresh and room > 0:
            entries += fresh[:room]
            fresh = fresh[room:]
    actions: list[Action] = []
    remain = sum(map(len, kept)) + len(fresh)
    for each, entries in zip(slices, kept, strict=True):
        if not entries and (remain or each is not slices[0]):
            actions.append(deletion(ENDPOINT_SLICES, each, "nobody is left in it"))
        elif entries != (each.get("endpoints") or []) or not _labels(service).items() <= _labels_of(each).items():
            patch = {"metadata": {"labels": _labels(service)}, "endpoints": entries}
            actions.append(change(ENDPOINT_SLICES, each, patch, f"{len(entries)} endpoints"))
    while fresh or not (slices or actions):
        actions.append(Create(ENDPOINT_SLICES, _slice(service, ports, fresh[:PER_SLICE]), f"{len(fresh)} endpoints"))
        fresh = fresh[PER_SLICE:]
    return actions


def _slice(service: JsonObject, ports: Ports, endpoints: list[JsonObject]) -> JsonObject:
    metadata = service["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": _labels(service),
            "ownerReferences": [owner_reference(service)],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [_port(*port) for port in ports],
    }


def _port(name: str, protocol: str, number: int, application: str) -> JsonObject:
    found: JsonObject = {"name": name, "protocol": protocol, "port": number}
    return {**found, "appProtocol": application} if application else found


def _ports_of(slice_: JsonObject) -> Ports:
    return tuple(
        (port.get("name") or "", port.get("protocol") or "TCP", port.get("port") or 0, port.get("appProtocol") or "")
        for port in slice_.get("ports") or ()
    )


def _labels(service: JsonObject) -> dict[str, str]:
    own = {key: value for key, value in (service["metadata"].get("labels") or {}).items() if key != _HEADLESS}
    found = {**own, SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: OURS}
    if (service.get("spec") or {}).get("clusterIP") == "None":
        found[_HEADLESS] = ""
    return found


def _labels_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _of(endpoint: JsonObject) -> str:
    return str((endpoint.get("targetRef") or {}).get("uid") or "")


def leads_to(slice_: JsonObject) -> str:
    """The service of a slice, by name."""
    manager = controller_of(slice_)
    return str(manager["name"]) if manager else str(_labels_of(slice_).get(SERVICE_NAME, ""))
