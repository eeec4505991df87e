"""Which pods stand behind a service, at which addresses and on which ports, as endpoints of its slices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address

from kubeqos.codec import JsonObject
from kubeqos.controllers.podstate import condition, is_going, is_ready, is_terminal

Port = tuple[str, str, int, str]
"""(name, protocol, number, application protocol)"""
Ports = tuple[Port, ...]
"""Every port of a slice, sorted: their order says nothing."""
Identity = tuple[tuple[str, ...], str, str, str]
Endpoints = dict[Identity, JsonObject]
_CLOSE = ("PreferClose", "PreferSameZone", "PreferSameNode")
_HINTS_BY_ANNOTATION = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")


def selects(service: JsonObject) -> bool:
    """Whether slices of the service are made for it; where not, those that there are stay as they are."""
    spec = service.get("spec") or {}
    return spec.get("type") != "ExternalName" and bool(spec.get("selector"))


def is_headless(service: JsonObject) -> bool:
    return (service.get("spec") or {}).get("clusterIP") in (None, "", "None")


def families(service: JsonObject) -> list[str]:
    """The address types of its slices. Services of servers that know no families have those of their address."""
    spec = service.get("spec") or {}
    if spec.get("ipFamilies"):
        return list(spec["ipFamilies"])
    address = str(spec.get("clusterIP") or "None")
    return ["IPv4", "IPv6"] if address == "None" else ["IPv6" if ":" in address else "IPv4"]


def wanted(
    service: JsonObject, pods: Iterable[JsonObject], nodes: Mapping[str, str], family: str
) -> dict[Ports, Endpoints]:
    """Endpoints by their ports; `nodes` are the zones of all nodes, empty for one that has none."""
    found: dict[Ports, Endpoints] = {}
    for pod in pods:
        if not has_place(pod):
            continue
        here = found.setdefault(ports_of_pod(service, pod), {})
        addresses = [one for one in addresses_of(pod) if family == ("IPv6" if ":" in one else "IPv4")]
        if addresses and (_node(pod) in nodes or published(service)):
            endpoint = _endpoint(service, pod, addresses, nodes)
            here[identity(endpoint)] = endpoint
    return found


def has_place(pod: JsonObject) -> bool:
    return bool(addresses_of(pod)) and not is_terminal(pod)


def missed_nodes(service: JsonObject, pods: Iterable[JsonObject], nodes: Mapping[str, str]) -> set[str]:
    """Nodes that nobody knows of: their pods are left out until they come."""
    if published(service):
        return set()
    return {_node(pod) for pod in pods if _node(pod) and _node(pod) not in nodes and has_place(pod)}


def identity(endpoint: JsonObject) -> Identity:
    """What makes it the same endpoint: all the rest may change in its place."""
    target = endpoint.get("targetRef") or {}
    addresses = tuple(sorted(endpoint.get("addresses") or ()))
    return addresses, endpoint.get("hostname") or "", target.get("namespace") or "", target.get("name") or ""


def target_of(pod: JsonObject) -> JsonObject:
    """How an endpoint names its pod."""
    metadata = pod["metadata"]
    return {"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}


def hostname_of(service: JsonObject, pod: JsonObject) -> str:
    """The name by which a pod is found under its service, if it has one."""
    spec = pod["spec"]
    return str(spec.get("hostname") or "") if spec.get("subdomain") == service["metadata"]["name"] else ""


def _endpoint(service: JsonObject, pod: JsonObject, addresses: list[str], nodes: Mapping[str, str]) -> JsonObject:
    spec = pod["spec"]
    serving, going = is_ready(pod), is_going(pod)
    found: JsonObject = {
        "addresses": addresses,
        "conditions": {
            "ready": published(service) or (serving and not going),
            "serving": serving,
            "terminating": going,
        },
        "targetRef": target_of(pod),
    }
    if hostname := hostname_of(service, pod):
        found["hostname"] = hostname
    if spec.get("nodeName"):
        found["nodeName"] = spec["nodeName"]
        if nodes.get(spec["nodeName"]):
            found["zone"] = nodes[spec["nodeName"]]
    hints = _hints(service, found)
    return {**found, "hints": hints} if hints else found


def _hints(service: JsonObject, endpoint: JsonObject) -> JsonObject:
    """For whom an endpoint is close, where the service prefers those. Hints by annotation are not given here."""
    preferred = (service.get("spec") or {}).get("trafficDistribution")
    if preferred not in _CLOSE or not endpoint["conditions"]["ready"] or _by_annotation(service):
        return {}
    found: JsonObject = {}
    if endpoint.get("zone"):
        found["forZones"] = [{"name": endpoint["zone"]}]
    if preferred == "PreferSameNode" and endpoint.get("nodeName"):
        found["forNodes"] = [{"name": endpoint["nodeName"]}]
    return found


def _by_annotation(service: JsonObject) -> bool:
    annotations = service["metadata"].get("annotations") or {}
    said = next((annotations[key] for key in _HINTS_BY_ANNOTATION if key in annotations), "")
    return said in ("Auto", "auto")


def published(service: JsonObject) -> bool:
    return bool((service.get("spec") or {}).get("publishNotReadyAddresses"))


def _node(pod: JsonObject) -> str:
    return pod["spec"].get("nodeName") or ""


def addresses_of(pod: JsonObject) -> list[str]:
    status = pod.get("status") or {}
    found = [one["ip"] for one in status.get("podIPs") or () if one.get("ip")]
    every = found or [one for one in (status.get("podIP"),) if one]
    return [str(IPv6Address(one)) if ":" in one else one for one in every]


def ports_of_pod(service: JsonObject, pod: JsonObject) -> Ports:
    """The pod's own ports behind those of the service; a name that it has not leads nowhere."""
    found = []
    for port in service["spec"].get("ports") or ():
        protocol, target = port.get("protocol") or "TCP", port.get("targetPort") or port.get("port")
        number = target if isinstance(target, int) else _named_port(pod, str(target), protocol)
        if number:
            found.append((port.get("name") or "", protocol, number, port.get("appProtocol") or ""))
    return tuple(sorted(found))


def _named_port(pod: JsonObject, name: str, protocol: str) -> int | None:
    sidecars = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in (*pod["spec"].get("containers", ()), *sidecars):
        for port in container.get("ports") or ():
            if port.get("name") == name and (port.get("protocol") or "TCP") == protocol:
                return int(port["containerPort"])
    return None


class TriggerTimes:
    """Since when slices should be as they are going to be: what others measure a cluster's programming by.

    The earliest time of what changed since the service was last looked at: its own making, and its pods' turns to and
    from readiness. Nothing that carries a time changed: none.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = {}

    def of(self, key: str, service: JsonObject, pods: Iterable[JsonObject]) -> str:
        made = str(service["metadata"].get("creationTimestamp") or "")
        turns = ((pod["metadata"]["name"], (condition(pod, "Ready") or {}).get("lastTransitionTime")) for pod in pods)
        times = {name: str(at) for name, at in turns if at}
        before, self._seen[key] = self._seen.get(key), {**times, "": made}  # no pod has an empty name
        if before is None:
            return made
        return min((at for name, at in self._seen[key].items() if at > before.get(name, "")), default="")

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)
