"""What the outcome of an effect means for its pod: the new state of its record, and the events people read. Pure.

Used by the machine alone. What is to be told is added to the record's `told`. Reasons and messages are those of the
kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.lifecycle import target
from kubeqos.node.pod.observed import SeenContainer, SeenPod, SeenSandbox, Stage
from kubeqos.node.pod.probes import note_result
from kubeqos.node.pod.record import PodRecord, Wait
from kubeqos.node.pod.resize import SANDBOX
from kubeqos.plugins.managers import Refusal

RUNTIME_EFFECTS = (
    fx.RunSandbox,
    fx.CreateContainer,
    fx.StartContainer,
    fx.StopContainer,
    fx.RemoveContainer,
    fx.StopSandbox,
    fx.RemoveSandbox,
)
"""Effects after which an older look at the runtime is out of date."""

START_FAILURES = {
    fx.EnsureImage: "ErrImagePull",
    fx.CreateContainer: "CreateContainerError",
    fx.StartContainer: "RunContainerError",
}


def record(pod: PodRecord, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = "") -> None:
    """Tell people."""
    pod.told.append(fx.Record(pod.uid, kind, reason, message, container))


def done(pod: PodRecord, effect: fx.Effect, result: fx.Result, now: float) -> None:
    """An effect was carried out."""
    key = _finish(pod, effect)
    # Image and container are steps of a start: only one that succeeds lets the next wait no longer than the first.
    if not isinstance(effect, fx.EnsureImage | fx.CreateContainer):
        _forget_failures(pod, key)
    if isinstance(effect, RUNTIME_EFFECTS):
        pod.serial += 1
    _DONE[type(effect)](pod, effect, result, now)


def _finish(pod: PodRecord, effect: fx.Effect) -> str:
    """An effect is no longer under way; returns what it kept busy. A newer one may have taken its place since."""
    for key, one in pod.busy.items():
        if one == effect:
            del pod.busy[key]
            return key
    return target(effect)


def _forget_failures(pod: PodRecord, key: str) -> None:
    pod.backoffs.pop(key, None)
    pod.retry_at.pop(key, None)


# ---- Managers


def _admitted(pod: PodRecord, _effect: fx.Admit, result: fx.Result, now: float) -> None:
    if isinstance(result, Refusal) and result.retry:
        due = pod.retry_later("managers", now)
        record(pod, "Warning", result.reason, f"{result.message}; trying again in {due - now:.0f} s")
    elif isinstance(result, Refusal):
        pod.refused = Wait(result.reason, result.message)
        record(pod, "Warning", result.reason, result.message)
    elif isinstance(result, fx.Promised):
        pod.room_from = result.by
    elif isinstance(result, fx.Allocation):
        _allocate(pod, result)


def _resized(pod: PodRecord, effect: fx.Resize, result: fx.Result, now: float) -> None:
    if isinstance(result, Refusal):
        pod.resize = Wait(result.reason, result.message)
        if result.retry:
            pod.retry_later("managers", now)
        else:
            pod.resize_refused_generation = effect.generation
            record(pod, "Warning", f"Resize{result.reason}", result.message)
    elif isinstance(result, fx.Allocation):
        pod.resize = None
        _allocate(pod, result)


def _allocate(pod: PodRecord, allocation: fx.Allocation) -> None:
    # Who does not run is created with what it should have, so there is nobody to be told.
    pod.updates |= {name for name in allocation.untold if pod.has_now(name)}
    pod.allocate(allocation.raw)


def _updated(pod: PodRecord, effect: fx.UpdateResources, _result: fx.Result, _now: float) -> None:
    pod.updates.discard(effect.container)
    pod.told.append(fx.Look(pod.uid))


def _sandbox_updated(pod: PodRecord, _effect: fx.UpdateSandbox, _result: fx.Result, _now: float) -> None:
    pod.updates.discard(SANDBOX)
    pod.told.append(fx.Look(pod.uid))


def _released(pod: PodRecord, _effect: fx.Release, _result: fx.Result, _now: float) -> None:
    pod.released = True
    if pod.ending is not None:
        pod.release()


# ---- Sandboxes


def _sandbox_up(pod: PodRecord, _effect: fx.RunSandbox, result: fx.Result, _now: float) -> None:
    assert isinstance(result, SeenSandbox)
    pod.put_sandbox(result)


def _sandbox_down(pod: PodRecord, effect: fx.StopSandbox, _result: fx.Result, _now: float) -> None:
    for sandbox in pod.seen.sandboxes:
        if sandbox.id == effect.id:
            pod.put_sandbox(replace(sandbox, ready=False, ips=()))


# ---- Containers


def _image_there(pod: PodRecord, effect: fx.EnsureImage, result: fx.Result, _now: float) -> None:
    pod.images.add(effect.container)
    _forget_failures(pod, f"image/{effect.container}")
    image = pod.containers[effect.container].view.image
    text = f'Container image "{image}" already present on machine'
    if result == "pulled":
        text = f'Successfully pulled image "{image}"'
    record(pod, "Normal", "Pulled", text, effect.container)


def _created(pod: PodRecord, effect: fx.CreateContainer, result: fx.Result, _now: float) -> None:
    assert isinstance(result, SeenContainer)
    pod.images.discard(effect.container)
    record(pod, "Normal", "Created", f"Container created: {effect.container}", effect.container)
    pod.put_container(result)


def _started(pod: PodRecord, effect: fx.StartContainer, result: fx.Result, _now: float) -> None:
    assert isinstance(result, SeenContainer)
    pod.waits.pop(effect.container, None)
    hooks = pod.containers[effect.container].raw.get("lifecycle") or {}
    if hooks.get("postStart"):
        pod.hooks.add(effect.id)
    record(pod, "Normal", "Started", f"Container started: {effect.container}", effect.container)
    pod.put_container(result)


def _stopped(pod: PodRecord, effect: fx.StopContainer, result: fx.Result, _now: float) -> None:
    pod.kill.pop(effect.id, None)
    if isinstance(result, SeenContainer):
        pod.put_container(result)
    else:
        pod.drop(effect.id)  # the runtime knows nothing of it any more


def _removed(pod: PodRecord, effect: fx.RemoveContainer | fx.RemoveSandbox, _result: fx.Result, _now: float) -> None:
    pod.broken.discard(effect.id)
    pod.unremovable.discard(effect.id)
    pod.drop(effect.id)


def _hook_ran(pod: PodRecord, effect: fx.RunHook, _result: fx.Result, _now: float) -> None:
    if effect.hook == "postStart":
        pod.hooks.discard(effect.id)
    else:
        pod.hooked.add(effect.id)


def _probed(pod: PodRecord, effect: fx.RunProbe, result: fx.Result, now: float) -> None:
    passed = result is True
    if not passed:
        kind = effect.probe.capitalize()
        record(pod, "Warning", "Unhealthy", f"{kind} probe failed: {result or ''}", effect.container)
    if note_result(pod, effect, passed, now):
        why = f"Container {effect.container} failed {effect.probe} probe, will be restarted"
        pod.kill[effect.id] = why
        record(pod, "Normal", "Killing", why, effect.container)


# ---- What the runtime tells


def observed(pod: PodRecord, seen: SeenPod) -> None:
    """A fresh look: what was doubtful is known, and what is over need not be remembered."""
    pod.unsure = False
    for container in seen.containers:
        if container.stage is Stage.EXITED:
            pod.kill.pop(container.id, None)
            pod.hooks.discard(container.id)
    pod.broken &= {one.id for one in seen.containers if one.stage is Stage.CREATED}
    pod.seen = seen


# ---- Failures


def failed(pod: PodRecord, failure: fx.Failed, now: float) -> None:
    """A call failed: say so, and decide when it is tried again. The runtime may have done it all the same."""
    effect, message = failure.effect, failure.message
    key = _finish(pod, effect)
    if isinstance(effect, fx.RunHook):
        _hook_failed(pod, effect, message)
        return
    if isinstance(effect, fx.RunProbe):
        _probed(pod, effect, message or False, now)
        return
    pod.retry_later(key, now)
    if isinstance(effect, RUNTIME_EFFECTS):
        pod.serial += 1
        pod.unsure = True
        pod.told.append(fx.Look(pod.uid))
    if isinstance(effect, fx.EnsureImage | fx.CreateContainer | fx.StartContainer):
        _start_failed(pod, effect, failure, now)
    elif isinstance(effect, fx.RunSandbox):
        text = message if failure.reason else f"Failed to create pod sandbox: {message}"
        record(pod, "Warning", failure.reason or "FailedCreatePodSandBox", text)
    elif isinstance(effect, fx.StopContainer | fx.StopSandbox):
        record(pod, "Warning", "FailedKillPod", f"error killing pod: {message}")
    elif isinstance(effect, fx.RemoveContainer | fx.RemoveSandbox):
        pod.unremovable.add(effect.id)
    elif isinstance(effect, fx.UpdateResources):
        record(pod, "Warning", "ResizeError", message, effect.container)
    elif isinstance(effect, fx.UpdateSandbox):
        record(pod, "Warning", "ResizeError", message)


def _start_failed(
    pod: PodRecord,
    effect: fx.EnsureImage | fx.CreateContainer | fx.StartContainer,
    failure: fx.Failed,
    now: float,
) -> None:
    name, message = effect.container, failure.message
    reason = failure.reason or START_FAILURES[type(effect)]
    pod.waits[name] = Wait(reason, message)
    if isinstance(effect, fx.EnsureImage):
        # A pull backs off by itself: the container is tried again when its image may be, and says so meanwhile.
        _forget_failures(pod, target(effect))
        pod.retry_later(f"image/{name}", now)
        message = f'Failed to pull image "{pod.containers[name].view.image}": {message}'
    elif isinstance(effect, fx.CreateContainer):
        pod.images.discard(name)  # its image may have been removed meanwhile
    elif isinstance(effect, fx.StartContainer) and not failure.reason:
        # With a reason it was a manager that held the start back: the container is as good as it was.
        pod.broken.add(effect.id)
    record(pod, "Warning", "Failed", f"Error: {message}", name)


def _hook_failed(pod: PodRecord, effect: fx.RunHook, message: str) -> None:
    if effect.hook == "preStop":
        pod.hooked.add(effect.id)
        record(pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {message}", effect.container)
        return
    pod.hooks.discard(effect.id)
    pod.kill[effect.id] = "PostStartHookError"
    record(pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {message}", effect.container)


_DONE: Mapping[type, Callable[[PodRecord, Any, Any, float], None]] = {
    fx.Admit: _admitted,
    fx.Resize: _resized,
    fx.RunSandbox: _sandbox_up,
    fx.EnsureImage: _image_there,
    fx.CreateContainer: _created,
    fx.StartContainer: _started,
    fx.RunHook: _hook_ran,
    fx.RunProbe: _probed,
    fx.StopContainer: _stopped,
    fx.RemoveContainer: _removed,
    fx.StopSandbox: _sandbox_down,
    fx.RemoveSandbox: _removed,
    fx.UpdateResources: _updated,
    fx.UpdateSandbox: _sandbox_updated,
    fx.Release: _released,
}
