"""The status of a pod: phase, conditions and container statuses, computed as Kubernetes computes them. Pure.

Called by the machine after every step; what does not differ from the last one is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.effects import Raw
from kubeqos.node.pod.observed import Classes, SeenContainer, Stage
from kubeqos.node.pod.record import ContainerRecord, PodRecord, PodState, Wait
from kubeqos.node.pod.restarts import ALWAYS, NEVER, runs_again

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
TERMINAL = (SUCCEEDED, FAILED)


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What every pod's status says about its node."""

    host_ips: tuple[str, ...] = ()
    runtime_name: str = "containerd"
    classes: bool = True
    """Whether QoS classes are told at all; not with the gate off (KEP-3008, Version Skew Strategy)."""


def pod_status(pod: PodRecord, facts: StatusFacts, now: float) -> dict[str, Any]:
    """The whole status."""
    if pod.refused is not None:
        return _rejected_status(pod, pod.refused)
    init = [_container_status(pod, one, facts) for one in pod.init]
    apps = [_container_status(pod, one, facts) for one in pod.apps]
    phase = _phase(pod, init, apps)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": _stamped(pod, _conditions(pod, phase, init, apps), now),
        "qosClass": pod.admitted.qos.value,
    }
    if pod.ending is not None and _has_failed(pod):
        status |= {"reason": pod.ending.reason, "message": pod.ending.message}
    generation = _observed_generation(pod)
    if generation:
        status["observedGeneration"] = generation
    if pod.start_time:
        status["startTime"] = pod.start_time
    if facts.host_ips:
        status |= {"hostIP": facts.host_ips[0], "hostIPs": [{"ip": ip} for ip in facts.host_ips]}
    status |= _addresses(pod, facts)
    if apps:
        status["containerStatuses"] = apps
    if init:
        status["initContainerStatuses"] = init
    if pod.ephemeral:
        status["ephemeralContainerStatuses"] = [_ephemeral_status(pod, one, facts) for one in pod.ephemeral]
    sandbox = pod.newest_sandbox
    if sandbox is not None and sandbox.classes and facts.classes:
        status["qosResources"] = _qos_resources(sandbox.classes)
    granted = (pod.admitted.raw.get("spec") or {}).get("qosResources") if pod.allocated else None
    if granted and facts.classes:
        # As for containers below: what the node has set aside, before there is a sandbox to ask.
        status["resources"] = {"qosResources": granted}
    return status


def _observed_generation(pod: PodRecord) -> int:
    """The spec that this status speaks of: while a resize is decided, the one that it would bring about."""
    pending = pod.busy.get("managers")
    if isinstance(pending, fx.Resize):
        return pending.generation
    return pod.view.metadata.generation


def _ephemeral_status(pod: PodRecord, container: ContainerRecord, facts: StatusFacts) -> dict[str, Any]:
    """As of any container, but nobody asks whether it is ready: nothing is served by it."""
    status = _container_status(pod, container, facts)
    del status["started"]
    return {**status, "ready": False}


def _rejected_status(pod: PodRecord, refused: Wait) -> dict[str, Any]:
    """A pod that never ran here: Kubernetes writes the phase, the reason and the message."""
    status = {
        "phase": FAILED,
        "reason": refused.reason,
        "message": f"Pod was rejected: {refused.message}",
        "qosClass": pod.admitted.qos.value,
    }
    if pod.start_time:
        status["startTime"] = pod.start_time
    return status


def _addresses(pod: PodRecord, facts: StatusFacts) -> dict[str, Any]:
    if pod.view.spec.host_network:
        ips = facts.host_ips if pod.seen.sandboxes else ()
    else:
        ips = pod.sandbox.ips if pod.sandbox is not None else ()
    return {"podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips]} if ips else {}


def _qos_resources(classes: Classes) -> list[dict[str, str]]:
    return [{"name": name, "class": cls} for name, cls in classes]


# ---- Containers


def _container_status(pod: PodRecord, container: ContainerRecord, facts: StatusFacts) -> dict[str, Any]:
    name, newest = container.view.name, container.newest
    state: dict[str, Any] = {"waiting": _not_created(pod, container)} if newest is None else _state(newest, facts)
    last = _last_state(container, facts) if container.live else {}
    wait = pod.waits.get(name)
    if wait is not None and (newest is None or "running" not in state) and _still_wanted(pod, container, newest):
        if "terminated" in state:
            last = state
        state = {"waiting": {"reason": wait.reason, "message": wait.message}}
    status: dict[str, Any] = {
        "name": name,
        "state": state,
        "lastState": last,
        "ready": container.ready,
        "restartCount": newest.attempt if newest else 0,
        "image": newest.image if newest and newest.image else container.view.image,
        "imageID": newest.image_id if newest else "",
        "started": container.started,
    }
    if newest is not None:
        status["containerID"] = f"{facts.runtime_name}://{newest.id}"
        if newest.classes and facts.classes:
            status["qosResources"] = _qos_resources(newest.classes)
    resources = _allocated_resources(pod, name)
    if resources.get("requests"):
        status["allocatedResources"] = resources["requests"]
    if newest is not None and newest.stage is Stage.RUNNING:
        status["resources"] = {key: resources[key] for key in ("limits", "requests") if resources.get(key)}
    if facts.classes and pod.allocated and resources.get("qosResources"):
        # Told before the container exists, and where the runtime says nothing: others count by it (rules.allocated).
        status.setdefault("resources", {})["qosResources"] = resources["qosResources"]
    return status


def _allocated_resources(pod: PodRecord, name: str) -> dict[str, Any]:
    spec = pod.admitted.raw.get("spec") or {}
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            if container.get("name") == name:
                found: dict[str, Any] = container.get("resources") or {}
                return found
    return {}


def _last_state(container: ContainerRecord, facts: StatusFacts) -> dict[str, Any]:
    """How the last instance ended before the present one."""
    for one in container.instances[1:]:
        if one.stage is Stage.EXITED:
            return _state(one, facts)
    return {}


def _not_created(pod: PodRecord, container: ContainerRecord) -> dict[str, str]:
    """Kubernetes' words for a container that is still to come."""
    waits_for_init = pod.init and not pod.initialized
    return {"reason": "PodInitializing" if container in pod.init or waits_for_init else "ContainerCreating"}


def _still_wanted(pod: PodRecord, container: ContainerRecord, newest: SeenContainer | None) -> bool:
    if pod.ending is not None:
        return False
    return newest is None or newest.stage is Stage.CREATED or runs_again(pod, container, newest)


def _state(container: SeenContainer, facts: StatusFacts) -> dict[str, Any]:
    if container.stage is Stage.CREATED:
        return {"waiting": {}}
    if container.stage is Stage.RUNNING:
        return {"running": {"startedAt": timestamp(container.started)}}
    ended: dict[str, Any] = {
        "exitCode": container.exit_code,
        "reason": container.reason or ("Completed" if container.exit_code == 0 else "Error"),
        "startedAt": timestamp(container.started) if container.started else None,
        "finishedAt": timestamp(container.finished),
        "containerID": f"{facts.runtime_name}://{container.id}",
    }
    if container.message:
        ended["message"] = container.message
    return {"terminated": ended}


def terminations_told(status: Raw) -> dict[str, SeenContainer]:
    """The containers whose end a status tells of, by name: `_state` read backwards."""
    found = {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (one.get("state") or {}).get("terminated")
        if ended is None:
            continue
        started = seconds_of(ended.get("startedAt") or "") or 0.0
        finished = seconds_of(ended.get("finishedAt") or "") or started
        found[one["name"]] = SeenContainer(
            str(ended.get("containerID") or one.get("containerID") or "").rpartition("/")[2],
            one["name"],
            int(one.get("restartCount") or 0),
            Stage.EXITED,
            created=started or finished,
            started=started,
            finished=finished,
            exit_code=int(ended.get("exitCode") or 0),
            reason=ended.get("reason") or "",
            message=ended.get("message") or "",
            image=one.get("image") or "",
            image_id=one.get("imageID") or "",
            classes=tuple((held["name"], held.get("class", "")) for held in one.get("qosResources") or ()),
        )
    return found


# ---- Phase


def _has_failed(pod: PodRecord) -> bool:
    """Whether a pod that was made to fail has: as in Kubernetes, not before its last container has ended.

    Until then nobody may take its place. What is on record stays so.
    """
    recorded = pod.view.status.phase
    return pod.ending is not None and pod.ending.fails and (recorded == FAILED or not pod.live)


def _phase(pod: PodRecord, init: Sequence[Raw], apps: Sequence[Raw]) -> str:
    if _has_failed(pod):
        return FAILED
    recorded = pod.view.status.phase
    if recorded in TERMINAL and not pod.live:
        return recorded
    phase = _container_phase(pod, init, apps)
    # A pod that has ended on request is over, even if some of its containers never ran.
    over = pod.ending is not None and not pod.live and pod.state in (PodState.TERMINATING, PodState.FINISHED)
    return FAILED if over and phase not in TERMINAL else phase


def _container_phase(pod: PodRecord, init: Sequence[Raw], apps: Sequence[Raw]) -> str:
    spec = pod.view.spec
    pending, failed = _init_progress(pod, init)
    if failed and spec.restart_policy == NEVER:
        return FAILED
    waiting = running = stopped = succeeded = 0
    for status in apps:
        state = status["state"]
        if "running" in state:
            running += 1
        elif "terminated" in state or "terminated" in status["lastState"]:
            stopped += 1
            ended = state.get("terminated") or status["lastState"]["terminated"]
            succeeded += "terminated" in state and ended["exitCode"] == 0
        else:
            waiting += 1
    if pending or waiting:
        return PENDING
    if running:
        return RUNNING
    if not stopped:
        return PENDING
    over = pod.ending is not None and not pod.live
    if not over and spec.restart_policy == ALWAYS:
        return RUNNING
    if stopped == succeeded:
        return SUCCEEDED
    return FAILED if over or spec.restart_policy == NEVER else RUNNING


def _init_progress(pod: PodRecord, init: Sequence[Raw]) -> tuple[bool, bool]:
    """Whether initialization is still to come, and whether a container of it has failed."""
    ran_before = pod.app_ran
    pending = failed = False
    for container, status in zip(pod.init, init, strict=True):
        state, last = status["state"], status["lastState"]
        if not container.is_init:
            pending |= not ran_before and not status["started"] and "terminated" not in {**state, **last}
        elif "running" in state:
            pending = True
        elif "terminated" in state:
            failed |= state["terminated"]["exitCode"] != 0
        elif "terminated" in last:
            failed |= last["terminated"]["exitCode"] != 0
        else:
            pending = True
    return pending or (failed and not ran_before), failed


# ---- Conditions


def _conditions(pod: PodRecord, phase: str, init: Sequence[Raw], apps: Sequence[Raw]) -> list[dict[str, Any]]:
    containers_ready = _containers_ready(pod, phase, init, apps)
    conditions = [
        {"type": "PodReadyToStartContainers", "status": _truth(pod.sandbox is not None)},
        _initialized_condition(pod, phase),
        _ready(pod, containers_ready),
        {"type": "ContainersReady", **containers_ready},
        {"type": "PodScheduled", "status": "True"},
    ]
    if pod.ending is not None and pod.ending.condition is not None and _has_failed(pod):
        conditions.append(dict(pod.ending.condition))
    if pod.resize is not None:
        conditions.append(
            {"type": "PodResizePending", "status": "True", "reason": pod.resize.reason, "message": pod.resize.message}
        )
    elif pod.updates:
        conditions.append({"type": "PodResizeInProgress", "status": "True"})
    return conditions


def _truth(yes: bool) -> str:
    return "True" if yes else "False"


def _containers_ready(pod: PodRecord, phase: str, init: Sequence[Raw], apps: Sequence[Raw]) -> dict[str, Any]:
    if phase == SUCCEEDED:
        return {"status": "False", "reason": "PodCompleted"}
    if phase == FAILED:
        return {"status": "False", "reason": "PodFailed"}
    sidecars = {one.view.name for one in pod.sidecars}
    unready = [status["name"] for status in init if status["name"] in sidecars and not status["started"]]
    unready += [status["name"] for status in apps if not status["ready"]]
    if unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        return {"status": "False", "reason": "ContainersNotReady", "message": message}
    return {"status": "True"}


def _ready(pod: PodRecord, containers_ready: Raw) -> dict[str, Any]:
    if containers_ready["status"] != "True":
        return {"type": "Ready", **containers_ready}
    reported = {one.type: one.status for one in pod.view.status.conditions}
    problems = []
    for kind in (gate.condition_type for gate in pod.view.spec.readiness_gates):
        if kind not in reported:
            problems.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif reported[kind] != "True":
            problems.append(f'the status of pod readiness gate "{kind}" is not "True", but {reported[kind]}')
    if problems:
        message = ", ".join(problems)
        return {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": message}
    return {"type": "Ready", "status": "True"}


def _initialized_condition(pod: PodRecord, phase: str) -> dict[str, Any]:
    if phase == SUCCEEDED:
        return {"type": "Initialized", "status": "True", "reason": "PodCompleted"}
    if pod.initialized:
        return {"type": "Initialized", "status": "True"}
    missing = " ".join(one.view.name for one in pod.init if not (one.ready if one.is_init else one.started))
    message = f"containers with incomplete status: [{missing}]"
    return {"type": "Initialized", "status": "False", "reason": "ContainersNotInitialized", "message": message}


def _stamped(pod: PodRecord, conditions: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """Conditions with the time of their last change; after a restart of the agent the API's times go on."""
    if not pod.last_conditions:
        for known in pod.view.status.conditions:
            if known.last_transition_time:
                pod.last_conditions[known.type] = (known.status, known.last_transition_time)
    stamp = ""
    for condition in conditions:
        known_status, since = pod.last_conditions.get(condition["type"], ("", ""))
        if known_status != condition["status"]:
            since = stamp = stamp or timestamp(now)
            pod.last_conditions[condition["type"]] = (condition["status"], since)
        condition["lastProbeTime"] = None
        condition["lastTransitionTime"] = since
    return conditions
