"""What the outcome of an effect means for its pod: the new state of its record, and the events people read. Pure.

Used by the core alone. Reasons and messages are those of the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.observed import SeenContainer, SeenPod, SeenSandbox, Stage
from kubeqos.node.pod.probes import note_result
from kubeqos.node.pod.record import PodRecord, Wait
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


class Outcomes:
    """Applies results to records and collects what is to be told."""

    def __init__(self) -> None:
        self._told: dict[str, list[fx.Effect]] = {}
        self._done: dict[type, Callable[[PodRecord, Any, Any, float], None]] = {
            fx.Admit: self._admitted,
            fx.Resize: self._resized,
            fx.RunSandbox: self._sandbox_up,
            fx.EnsureImage: self._image_there,
            fx.CreateContainer: self._created,
            fx.StartContainer: self._started,
            fx.RunHook: self._hook_ran,
            fx.RunProbe: self._probed,
            fx.StopContainer: self._stopped,
            fx.RemoveContainer: self._removed,
            fx.StopSandbox: self._sandbox_down,
            fx.RemoveSandbox: self._sandbox_removed,
            fx.UpdateResources: self._updated,
            fx.Release: self._released,
        }

    def take(self, uid: str) -> list[fx.Effect]:
        """What was collected for a pod, once."""
        return self._told.pop(uid, [])

    def add(self, uid: str, effect: fx.Effect) -> None:
        self._told.setdefault(uid, []).append(effect)

    def record(
        self, pod: PodRecord, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        self.add(pod.uid, fx.Record(pod.uid, kind, reason, message, container))

    def done(self, pod: PodRecord, effect: fx.Effect, result: fx.Result, now: float) -> None:
        if isinstance(effect, RUNTIME_EFFECTS):
            pod.serial += 1
        self._done[type(effect)](pod, effect, result, now)

    # ---- Managers

    def _admitted(self, pod: PodRecord, _effect: fx.Admit, result: fx.Result, now: float) -> None:
        if isinstance(result, Refusal) and result.retry:
            due = pod.retry_later("managers", now)
            self.record(pod, "Warning", result.reason, f"{result.message}; trying again in {due - now:.0f} s")
        elif isinstance(result, Refusal):
            pod.refused = Wait(result.reason, result.message)
            self.record(pod, "Warning", result.reason, result.message)
        elif isinstance(result, fx.Allocation):
            self._allocate(pod, result)

    def _resized(self, pod: PodRecord, effect: fx.Resize, result: fx.Result, now: float) -> None:
        if isinstance(result, Refusal):
            pod.resize = Wait(result.reason, result.message)
            if result.retry:
                pod.retry_later("managers", now)
            else:
                pod.resize_refused_generation = effect.generation
                self.record(pod, "Warning", f"Resize{result.reason}", result.message)
        elif isinstance(result, fx.Allocation):
            pod.resize = None
            self._allocate(pod, result)

    def _allocate(self, pod: PodRecord, allocation: fx.Allocation) -> None:
        pod.allocated = allocation.raw
        pod.updates |= {name for name in allocation.untold if (one := pod.newest(name)) is not None and one.live}

    def _updated(self, pod: PodRecord, effect: fx.UpdateResources, _result: fx.Result, _now: float) -> None:
        pod.updates.discard(effect.container)
        self.add(pod.uid, fx.Look(pod.uid))

    def _released(self, pod: PodRecord, _effect: fx.Release, _result: fx.Result, _now: float) -> None:
        pod.released = True
        pod.allocated = pod.allocated if pod.ending is None else None

    # ---- Sandboxes

    def _sandbox_up(self, pod: PodRecord, _effect: fx.RunSandbox, result: fx.Result, _now: float) -> None:
        assert isinstance(result, SeenSandbox)
        pod.seen = pod.seen.with_sandbox(result)

    def _sandbox_down(self, pod: PodRecord, effect: fx.StopSandbox, _result: fx.Result, _now: float) -> None:
        for sandbox in pod.seen.sandboxes:
            if sandbox.id == effect.id:
                stopped = SeenSandbox(sandbox.id, sandbox.attempt, False, sandbox.created, (), sandbox.classes)
                pod.seen = pod.seen.with_sandbox(stopped)

    def _sandbox_removed(self, pod: PodRecord, effect: fx.RemoveSandbox, _result: fx.Result, _now: float) -> None:
        pod.seen = pod.seen.without_sandbox(effect.id)
        pod.unremovable.discard(effect.id)

    # ---- Containers

    def _image_there(self, pod: PodRecord, effect: fx.EnsureImage, result: fx.Result, _now: float) -> None:
        pod.images.add(effect.container)
        pod.succeeded(f"image/{effect.container}")
        image = pod.raw_container(effect.container).get("image", "")
        pulled = result == "pulled"
        text = (
            f'Successfully pulled image "{image}"'
            if pulled
            else f'Container image "{image}" already present on machine'
        )
        self.record(pod, "Normal", "Pulled", text, effect.container)

    def _created(self, pod: PodRecord, effect: fx.CreateContainer, result: fx.Result, _now: float) -> None:
        assert isinstance(result, SeenContainer)
        pod.seen = pod.seen.with_container(result)
        pod.images.discard(effect.container)
        self.record(pod, "Normal", "Created", f"Container created: {effect.container}", effect.container)

    def _started(self, pod: PodRecord, effect: fx.StartContainer, result: fx.Result, _now: float) -> None:
        assert isinstance(result, SeenContainer)
        pod.seen = pod.seen.with_container(result)
        pod.waits.pop(effect.container, None)
        hooks = pod.raw_container(effect.container).get("lifecycle") or {}
        if hooks.get("postStart"):
            pod.hooks.add(effect.id)
        self.record(pod, "Normal", "Started", f"Container started: {effect.container}", effect.container)

    def _stopped(self, pod: PodRecord, effect: fx.StopContainer, result: fx.Result, _now: float) -> None:
        pod.kill.pop(effect.id, None)
        if isinstance(result, SeenContainer):
            pod.seen = pod.seen.with_container(result)
        else:
            pod.seen = pod.seen.without_container(effect.id)

    def _removed(self, pod: PodRecord, effect: fx.RemoveContainer, _result: fx.Result, _now: float) -> None:
        pod.seen = pod.seen.without_container(effect.id)
        pod.broken.discard(effect.id)
        pod.unremovable.discard(effect.id)

    def _hook_ran(self, pod: PodRecord, effect: fx.RunHook, _result: fx.Result, _now: float) -> None:
        if effect.hook == "postStart":
            pod.hooks.discard(effect.id)
        else:
            pod.hooked.add(effect.id)

    def _probed(self, pod: PodRecord, effect: fx.RunProbe, result: fx.Result, now: float) -> None:
        passed = result is True
        if not passed:
            kind = effect.probe.capitalize()
            self.record(pod, "Warning", "Unhealthy", f"{kind} probe failed: {result or ''}", effect.container)
        if note_result(pod, effect, passed, now):
            why = f"Container {effect.container} failed {effect.probe} probe, will be restarted"
            pod.kill[effect.id] = why
            self.record(pod, "Normal", "Killing", why, effect.container)

    # ---- What the runtime tells

    def observed(self, pod: PodRecord, seen: SeenPod) -> None:
        """A fresh look: what was doubtful is known, and what is over need not be remembered."""
        pod.unsure = False
        for container in seen.containers:
            if container.stage is Stage.EXITED:
                pod.kill.pop(container.id, None)
                pod.hooks.discard(container.id)
        pod.broken &= {one.id for one in seen.containers if one.stage is Stage.CREATED}

    # ---- Failures

    def failed(self, pod: PodRecord, failure: fx.Failed, now: float) -> None:
        """A call failed: say so, and decide when it is tried again. The runtime may have done it all the same."""
        effect, message = failure.effect, failure.message
        if isinstance(effect, fx.RunHook):
            self._hook_failed(pod, effect, message)
            return
        if isinstance(effect, fx.RunProbe):
            self._probed(pod, effect, message or False, now)
            return
        pod.retry_later(fx.target(effect), now)
        if isinstance(effect, RUNTIME_EFFECTS):
            pod.serial += 1
            pod.unsure = True
            self.add(pod.uid, fx.Look(pod.uid))
        if isinstance(effect, fx.EnsureImage | fx.CreateContainer | fx.StartContainer):
            self._start_failed(pod, effect, failure, now)
        elif isinstance(effect, fx.RunSandbox):
            text = message if failure.reason else f"Failed to create pod sandbox: {message}"
            self.record(pod, "Warning", failure.reason or "FailedCreatePodSandBox", text)
        elif isinstance(effect, fx.StopContainer | fx.StopSandbox):
            self.record(pod, "Warning", "FailedKillPod", f"error killing pod: {message}")
        elif isinstance(effect, fx.RemoveContainer | fx.RemoveSandbox):
            pod.unremovable.add(effect.id)
        elif isinstance(effect, fx.UpdateResources):
            self.record(pod, "Warning", "ResizeError", message, effect.container)

    def _start_failed(
        self,
        pod: PodRecord,
        effect: fx.EnsureImage | fx.CreateContainer | fx.StartContainer,
        failure: fx.Failed,
        now: float,
    ) -> None:
        name, message = effect.container, failure.message
        reason = failure.reason or START_FAILURES[type(effect)]
        pod.waits[name] = Wait(reason, message)
        if isinstance(effect, fx.EnsureImage):
            pod.succeeded(fx.target(effect))
            pod.retry_later(f"image/{name}", now)
            image = pod.raw_container(name).get("image", "")
            message = f'Failed to pull image "{image}": {message}'
        elif isinstance(effect, fx.CreateContainer):
            pod.images.discard(name)  # its image may have been removed meanwhile
        elif isinstance(effect, fx.StartContainer) and not failure.reason:
            # With a reason it was a manager that held the start back: the container is as good as it was.
            pod.broken.add(effect.id)
        self.record(pod, "Warning", "Failed", f"Error: {message}", name)

    def _hook_failed(self, pod: PodRecord, effect: fx.RunHook, message: str) -> None:
        if effect.hook == "preStop":
            pod.hooked.add(effect.id)
            self.record(pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {message}", effect.container)
            return
        pod.hooks.discard(effect.id)
        pod.kill[effect.id] = "PostStartHookError"
        self.record(pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {message}", effect.container)
