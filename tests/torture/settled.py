"""Whether a cluster has come to rest as it should: what users asked for runs, what they deleted is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.state import State
from kubeqos.node.agent import NodeAgent
from tests.torture.laws import Books
from tests.torture.users import TIGHT


def unsettled(books: Books, agents: Mapping[str, NodeAgent], runtimes: Mapping[str, SimulatedRuntime]) -> list[str]:
    """Everything that is not as it should be; nothing when all is well."""
    pods = list(books.pods())
    return [
        *_nodes(books),
        *_deployments(books),
        *_jobs(books),
        *(problem for pod in pods for problem in _pod(pod, runtimes)),
        *_strangers(pods, runtimes),
        *_agents(pods, agents),
        *_quotas(books, pods),
    ]


def _nodes(books: Books) -> Iterator[str]:
    for node in books.objects("/nodes/"):
        conditions = {one["type"]: one["status"] for one in (node.get("status") or {}).get("conditions") or ()}
        if conditions.get("Ready") != "True":
            yield f"node {node['metadata']['name']} is not ready: {conditions}"


def _deployments(books: Books) -> Iterator[str]:
    for one in books.objects("/deployments/"):
        wanted, ready = one["spec"].get("replicas", 1), (one.get("status") or {}).get("readyReplicas", 0)
        if wanted != ready:
            yield f"deployment {one['metadata']['name']} has {ready} of {wanted} pods ready"


def _jobs(books: Books) -> Iterator[str]:
    for one in books.objects("/jobs/"):
        conditions = {each["type"] for each in (one.get("status") or {}).get("conditions") or ()}
        if not conditions & {"Complete", "Failed"}:
            yield f"job {one['metadata']['name']} has not ended: {one.get('status')}"


def _pod(pod: dict[str, Any], runtimes: Mapping[str, SimulatedRuntime]) -> Iterator[str]:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    node, status = pod["spec"].get("nodeName", ""), pod.get("status") or {}
    phase = status.get("phase")
    if pod["metadata"].get("deletionTimestamp"):
        yield f"pod {name} ({uid}) on {node} is still being deleted, {phase}"
    elif phase == "Running":
        statuses = status.get("containerStatuses") or [{}]
        running = _containers(runtimes.get(node), uid)
        if running != 1 or not all(one.get("ready") for one in statuses):
            yield f"pod {name} ({uid}) on {node} is said to run; in the runtime {running} containers do"
    elif phase not in ("Succeeded", "Failed"):
        told = [(c.get("reason"), c.get("message")) for c in status.get("conditions") or () if c["status"] == "False"]
        yield f"pod {name} ({uid}) on {node or 'no node'} is {phase}: {told}"


def _containers(runtime: SimulatedRuntime | None, uid: str) -> int:
    if runtime is None:
        return 0
    core = runtime.core
    return sum(
        one.state is State.RUNNING and core.sandboxes[one.sandbox_id].config.metadata.uid == uid
        for one in core.containers.values()
    )


def _strangers(pods: list[dict[str, Any]], runtimes: Mapping[str, SimulatedRuntime]) -> Iterator[str]:
    wanted = {(pod["spec"].get("nodeName"), pod["metadata"]["uid"]) for pod in pods}
    for node, runtime in runtimes.items():
        for sandbox in runtime.core.sandboxes.values():
            if (node, sandbox.config.metadata.uid) not in wanted:
                yield f"on {node} there is a sandbox of {sandbox.config.metadata.name}, which is gone"


def _agents(pods: list[dict[str, Any]], agents: Mapping[str, NodeAgent]) -> Iterator[str]:
    for node, agent in agents.items():
        yield from (f"node {node}: {problem}" for problem in agent.validate())
        wanted = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName") == node}
        if (known := set(agent.core.pods)) != wanted:
            yield f"node {node} knows {len(known)} pods, {len(wanted)} are its own: {sorted(known ^ wanted)}"
        if left := sorted(set(agent.admission.entries) - wanted):
            yield f"node {node} holds resources of pods that are gone: {left}"


def _quotas(books: Books, pods: list[dict[str, Any]]) -> Iterator[str]:
    for quota in books.objects("/resourcequotas/"):
        used = ((quota.get("status") or {}).get("used") or {}).get("pods")
        counted = Counter(
            pod["metadata"]["namespace"]
            for pod in pods
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        )[TIGHT]
        if used != str(counted):
            yield f"the quota says {used} pods, there are {counted}"
