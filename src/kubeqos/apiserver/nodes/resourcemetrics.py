"""`metrics.k8s.io`: what nodes and pods use now, asked from the node agents when somebody asks us (`kubectl top`)."""

from __future__ import annotations

from typing import Any

from kubeqos.apiserver.nodes.proxy import NodeProxy
from kubeqos.apiserver.present.options import list_options
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.timestamps import timestamp
from kubeqos.web.messages import Response
from kubeqos.web.status import ApiError

WINDOW = "10s"


async def resource_metrics(core: Core, nodes: NodeProxy, request: Request, route: Route, kind: Kind) -> Response:
    """Answer get and list of NodeMetrics and PodMetrics."""
    of = kind_named(kind.kind.removesuffix("Metrics"))
    if route.name:
        known = [decode(core.stored(of, route.namespace, route.name))]
    else:
        labels = list_options(request.query, of).labels
        found = (decode(one) for one in core.store.range(of.range_prefix(route.namespace)).items)
        known = [one for one in found if labels.matches(one["metadata"].get("labels") or {})]
    measured = await (_nodes if of.kind == "Node" else _pods)(nodes, known)
    items = [_item(kind, one, measured[key], core.clock()) for one in known if (key := _key(one)) in measured]
    if not route.name:
        body = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}, "items": items}
        return Response(200, encode_json(body))
    if not items:
        what = f'{kind.plural}.{kind.group} "{route.name}" not found'
        details = {"name": route.name, "group": kind.group, "kind": kind.plural}
        raise ApiError(404, "NotFound", what, details=details)
    return Response(200, encode_json({"kind": kind.kind, "apiVersion": kind.api_version, **items[0]}))


def _key(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    return str(metadata["uid"]) if "namespace" in metadata else str(metadata["name"])


async def _nodes(proxy: NodeProxy, nodes: list[JsonObject]) -> dict[str, JsonObject]:
    summaries = await proxy.summaries([one["metadata"]["name"] for one in nodes])
    found = {name: _usage(summary["node"]) for name, summary in summaries.items()}
    return {name: {"usage": usage} for name, usage in found.items() if usage}


async def _pods(proxy: NodeProxy, pods: list[JsonObject]) -> dict[str, JsonObject]:
    nodes = sorted({name for one in pods if (name := (one.get("spec") or {}).get("nodeName"))})
    found: dict[str, JsonObject] = {}
    for summary in (await proxy.summaries(nodes)).values():
        for pod in summary["pods"]:
            containers = [{"name": one["name"], "usage": _usage(one)} for one in pod["containers"]]
            if containers and all(one["usage"] for one in containers):
                found[pod["podRef"]["uid"]] = {"containers": containers}
    return found


def _usage(stats: JsonObject) -> dict[str, str] | None:
    """CPU in billionths and memory in KiB, as a metrics server writes them; None until both are known."""
    cpu = (stats.get("cpu") or {}).get("usageNanoCores")
    memory = (stats.get("memory") or {}).get("workingSetBytes")
    return None if cpu is None or memory is None else {"cpu": f"{cpu}n", "memory": f"{memory // 1024}Ki"}


def _item(kind: Kind, obj: JsonObject, measured: dict[str, Any], now: float) -> JsonObject:
    source = obj["metadata"]
    metadata = {key: source[key] for key in ("name", "namespace", "labels") if key in source}
    at = timestamp(now)
    return {"metadata": {**metadata, "creationTimestamp": at}, "timestamp": at, "window": WINDOW, **measured}
