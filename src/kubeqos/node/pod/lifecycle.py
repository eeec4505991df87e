"""What a pod needs next: the effects that bring the runtime closer to what the pod wants. Pure.

`keep_running` is for pods that live (sandbox, init containers in order, sidecars, app containers, probes, hooks);
`wind_down` for pods that end (hooks, app containers, sidecars in reverse, sandbox, clean-up). Both look at what the
runtime holds now and at what is already under way, so calling them again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.observed import SeenContainer, SeenSandbox, Stage
from kubeqos.node.pod.probes import due_probes, kill_grace
from kubeqos.node.pod.record import (
    LONGEST_RESTART_DELAY,
    LONGEST_RETRY_DELAY,
    PROBES,
    Cause,
    ContainerRecord,
    PodRecord,
    Wait,
)
from kubeqos.node.pod.resize import SANDBOX
from kubeqos.node.pod.restarts import crash_message, note_restart, restart_at, runs_again

MINIMUM_GRACE_SECONDS = 2
DEFAULT_GRACE_SECONDS = 30
HOOK_SECONDS = 600.0
STARTING = "container/"


def target(effect: fx.Effect) -> str:
    """What an effect keeps busy: at most one effect per pod and target is under way."""
    match effect:
        case fx.RunProbe():
            return f"probe/{effect.container}/{effect.probe}"
        case fx.Admit() | fx.Release() | fx.Resize():
            return "managers"
        case fx.RunSandbox() | fx.StopSandbox() | fx.RemoveSandbox():
            return "sandbox"
        case fx.RemoveContainer():
            return f"remove/{effect.id}"
        case fx.StopContainer() | fx.RunHook(hook="preStop"):
            return f"stop/{effect.container}"
        case fx.UpdateResources():
            return f"update/{effect.container}"
        case fx.UpdateSandbox():
            return f"update/{SANDBOX}"
        case _:
            return f"{STARTING}{getattr(effect, 'container', '')}"


def is_awaited(due: float, now: float, longest: float) -> bool:
    """Whether a time is still to come. One further away than anybody waits is of a clock that was set back since."""
    return now < due <= now + longest


@dataclass(slots=True)
class Plan:
    """Effects to perform now, when to look again, and whether the pod has come to its own end, or is to be deleted."""

    effects: list[fx.Effect] = field(default_factory=list)
    wake: float | None = None
    completed: bool = False
    deletes: bool = False

    def at(self, when: float) -> None:
        """Look again at this time, unless earlier."""
        self.wake = when if self.wake is None else min(self.wake, when)

    def start(self, pod: PodRecord, effect: fx.Effect, now: float) -> None:
        """Perform an effect, unless its target is busy or a failed attempt has to wait."""
        key = target(effect)
        if key in pod.busy:
            return
        due = pod.retry_at.get(key, 0.0)
        if is_awaited(due, now, LONGEST_RETRY_DELAY):
            self.at(due)
            return
        pod.busy[key] = effect
        self.effects.append(effect)

    def wait(self, pod: PodRecord, name: str, wait: Wait, kind: Literal["Normal", "Warning"], message: str) -> bool:
        """A container is held back for a while; people hear of it once per while. Returns whether this is a new one."""
        if pod.waits.get(name) == wait:
            return False
        pod.waits[name] = wait
        self.effects.append(fx.Record(pod.uid, kind, "BackOff", message, name))
        return True


def _busy(pod: PodRecord, *prefixes: str) -> bool:
    return any(key.startswith(prefixes) for key in pod.busy)


# ---- Living


def keep_running(pod: PodRecord, now: float) -> Plan:
    """What a pod that is to run needs next."""
    plan = Plan()
    if pod.unsure:
        return plan  # a look at the runtime is on its way: what we believe may be wrong
    if _over(pod):
        plan.completed = True
        return plan
    _collect_garbage(pod, plan, now)
    sandbox = pod.sandbox
    if sandbox is None:
        _make_sandbox(pod, plan, now)
        return plan
    _stop_condemned(pod, plan, now)
    for container in _wanted(pod, sandbox):
        if _busy(pod, STARTING):
            break  # one container after the other, in order
        _bring_up(pod, container, sandbox, plan, now)
    _run_hooks(pod, plan, now)
    _run_probes(pod, plan, now)
    _update_resources(pod, sandbox, plan, now)
    return plan


def _over(pod: PodRecord) -> bool:
    """Whether every app container has ended for good, or initialization has failed for good."""
    for container in pod.init:
        ended = container.newest
        if ended is None or container.live or not container.is_init:
            continue
        if ended.exit_code != 0 and not runs_again(pod, container, ended):
            return True
    for container in pod.apps:
        ended = container.newest
        if ended is None or container.live or runs_again(pod, container, ended):
            return False
    return bool(pod.apps)


def _make_sandbox(pod: PodRecord, plan: Plan, now: float) -> None:
    """A first sandbox, or a new one for a pod whose sandbox has died; its containers must be gone by then."""
    for container in pod.live:
        if container.stage is Stage.CREATED:
            _drop(pod, container, plan, now)
        else:
            plan.start(pod, fx.StopContainer(pod.uid, container.name, container.id, MINIMUM_GRACE_SECONDS), now)
    if pod.live or _busy(pod, STARTING, "stop/"):
        return
    newest = pod.newest_sandbox
    plan.start(pod, fx.RunSandbox(pod.uid, 0 if newest is None else newest.attempt + 1), now)


def _wanted(pod: PodRecord, sandbox: SeenSandbox) -> list[ContainerRecord]:
    """The containers that are to be started now, in order; initialization goes step by step."""
    # Who debugs a pod that cannot begin must not wait until it does.
    asked = [one for one in pod.ephemeral if one.newest is None or one.newest.stage is Stage.CREATED]
    if not _initialized_in(pod, sandbox):
        return [*asked, *_next_init(pod, sandbox)]
    # Sidecars first: an app container may need what they do from its first moment on.
    return [*asked, *(one for one in (*pod.sidecars, *pod.apps) if _needs_start(pod, one))]


def _initialized_in(pod: PodRecord, sandbox: SeenSandbox) -> bool:
    """With a new sandbox initialization begins anew, whatever is remembered of what ran in an older one."""
    if pod.init:
        ran = [one.newest for one in (*pod.init, *pod.apps)]
        if not any(one is not None and one.created >= sandbox.created for one in ran):
            return False
    return pod.initialized


def _next_init(pod: PodRecord, sandbox: SeenSandbox) -> list[ContainerRecord]:
    wanted: list[ContainerRecord] = []
    for container in pod.init:
        newest = container.newest
        current = newest is not None and newest.created >= sandbox.created
        if newest is None or not current or newest.stage is Stage.CREATED:
            return [*wanted, container]
        if not container.is_init:
            if not container.live:
                wanted.append(container)  # a sidecar that has ended comes back without holding up those after it
            elif not container.started:
                return wanted
        elif container.live:
            return wanted
        elif newest.exit_code != 0:
            return [*wanted, container]
    return wanted


def _needs_start(pod: PodRecord, container: ContainerRecord) -> bool:
    newest = container.newest
    if newest is None or newest.stage is Stage.CREATED:
        return True
    return not container.live and runs_again(pod, container, newest)


def _bring_up(pod: PodRecord, container: ContainerRecord, sandbox: SeenSandbox, plan: Plan, now: float) -> None:
    """The next step towards a running container: back-off, image, create, start."""
    name, newest = container.view.name, container.newest
    if pod.broken and any(pod.is_broken(one) for one in container.instances):
        return  # what it holds is given back first
    if newest is not None and newest.stage is Stage.CREATED:
        plan.start(pod, fx.StartContainer(pod.uid, name, newest.id), now)
        return
    if newest is not None:
        due = restart_at(pod, newest)
        if is_awaited(due, now, LONGEST_RESTART_DELAY):
            text = f"Back-off restarting failed container {name} in pod {pod.shown}"
            plan.wait(pod, name, Wait("CrashLoopBackOff", crash_message(pod, name)), "Warning", text)
            plan.at(due)
            return
    if name not in pod.images:
        due = pod.retry_at.get(f"image/{name}", 0.0)
        if is_awaited(due, now, LONGEST_RETRY_DELAY):
            text = f'Back-off pulling image "{container.view.image}"'
            if plan.wait(pod, name, Wait("ImagePullBackOff", text), "Normal", text):
                plan.effects.append(fx.Record(pod.uid, "Warning", "Failed", "Error: ImagePullBackOff", name))
            plan.at(due)
            return
        plan.start(pod, fx.EnsureImage(pod.uid, name), now)
        return
    attempt = pod.attempts_told(name) if newest is None else newest.attempt + 1
    create = fx.CreateContainer(pod.uid, name, attempt, sandbox.id)
    plan.start(pod, create, now)
    if newest is not None and create in plan.effects:
        note_restart(pod, newest, now)


def _stop_condemned(pod: PodRecord, plan: Plan, now: float) -> None:
    """Containers that a failed probe or hook has sentenced."""
    for container in pod.live:
        if container.id in pod.kill:
            grace = _grace_of(pod)
            for kind in PROBES:
                state = pod.probes.get((container.name, kind))
                # An unready container is not stopped, so its readiness probe has no say in how.
                if kind != "readiness" and state is not None and state.id == container.id and state.passed is False:
                    own = kill_grace(pod, container.name, kind)
                    grace = grace if own is None else own
            _stop(pod, container, grace, plan, now)


def _run_hooks(pod: PodRecord, plan: Plan, now: float) -> None:
    for container in pod.live if pod.hooks else ():
        if container.id in pod.hooks and container.stage is Stage.RUNNING:
            plan.start(pod, fx.RunHook(pod.uid, container.name, container.id, "postStart", HOOK_SECONDS), now)


def _run_probes(pod: PodRecord, plan: Plan, now: float) -> None:
    for container in pod.containers.values():
        if not container.probes or container.newest is None:
            continue
        for due, probe in due_probes(pod, container, container.newest, now):
            if due > now:
                plan.at(due)
            else:
                plan.start(pod, probe, now)


def _update_resources(pod: PodRecord, sandbox: SeenSandbox, plan: Plan, now: float) -> None:
    for name in sorted(pod.updates):
        if name == SANDBOX:
            plan.start(pod, fx.UpdateSandbox(pod.uid, sandbox.id), now)
            continue
        container = pod.containers.get(name)
        if container is not None and container.newest is not None and container.live:
            plan.start(pod, fx.UpdateResources(pod.uid, name, container.newest.id), now)


def _collect_garbage(pod: PodRecord, plan: Plan, now: float) -> None:
    """Of each container the present instance and the one before are kept, and one sandbox; nothing that never ran."""
    for seen in pod.seen.containers if pod.broken else ():
        if pod.is_broken(seen):
            plan.start(pod, fx.RemoveContainer(pod.uid, seen.name, seen.id), now)
    for container in pod.containers.values():
        for old in container.instances[2:]:
            plan.start(pod, fx.RemoveContainer(pod.uid, old.name, old.id), now)
    newest = pod.newest_sandbox
    for sandbox in pod.seen.sandboxes:
        if newest is not None and sandbox.id != newest.id and newest.ready:
            # Its last containers may still show how they ended: the sandbox goes when they have gone.
            keeps = any(one.created < newest.created for one in pod.seen.containers)
            if not keeps:
                plan.start(pod, fx.RemoveSandbox(pod.uid, sandbox.id), now)


# ---- Ending


def wind_down(pod: PodRecord, now: float) -> Plan:
    """What a pod that ends needs next; `completed` when nothing of it runs and what can go is gone."""
    plan = Plan()
    ending = pod.ending
    assert ending is not None
    if pod.unsure:
        return plan
    if pod.live:
        for container in _next_to_stop(pod):
            _stop(pod, container, ending.grace_seconds, plan, now)
        return plan
    if _busy(pod, STARTING, "stop/", "sandbox"):
        return plan
    for sandbox in pod.seen.sandboxes:
        if sandbox.ready:
            plan.start(pod, fx.StopSandbox(pod.uid, sandbox.id), now)
            return plan
    if ending.cause.cleans_up and not pod.seen.empty:
        _clean_up(pod, plan, now)
        if not pod.is_stranded:
            return plan
    if not _busy(pod, "managers", "remove/", "update/"):
        plan.completed = True
    return plan


def _next_to_stop(pod: PodRecord) -> Sequence[SeenContainer]:
    """Everything but sidecars at once; then the sidecars, the last one first."""
    order = {one.view.name: index for index, one in enumerate(pod.sidecars)}
    others = [one for one in pod.live if one.name not in order]
    return others or [max(pod.live, key=lambda one: order[one.name])]


def _stop(pod: PodRecord, container: SeenContainer, grace: int, plan: Plan, now: float) -> None:
    if container.stage is Stage.CREATED:
        _drop(pod, container, plan, now)
        return
    since = pod.ending.since if pod.ending is not None else now
    left = grace if pod.ending is None else int(since + grace - now + 0.999)
    described = pod.containers.get(container.name)
    hook = ((described.raw.get("lifecycle") or {}).get("preStop")) if described is not None else None
    if hook is not None and grace > 0 and container.id not in pod.hooked:
        effect = fx.RunHook(pod.uid, container.name, container.id, "preStop", float(max(left, 1)))
        plan.start(pod, effect, now)
        return
    seconds = 0 if grace <= 0 else max(left, MINIMUM_GRACE_SECONDS)
    plan.start(pod, fx.StopContainer(pod.uid, container.name, container.id, seconds), now)


def _drop(pod: PodRecord, container: SeenContainer, plan: Plan, now: float) -> None:
    """Take away what was created and has not started: a runtime has nothing to stop there, and says that it is done."""
    if f"{STARTING}{container.name}" not in pod.busy:  # its start is under way: wait how that goes
        plan.start(pod, fx.RemoveContainer(pod.uid, container.name, container.id), now)


def _clean_up(pod: PodRecord, plan: Plan, now: float) -> None:
    for container in pod.seen.containers:
        plan.start(pod, fx.RemoveContainer(pod.uid, container.name, container.id), now)
    if not pod.seen.containers:
        for sandbox in pod.seen.sandboxes:
            plan.start(pod, fx.RemoveSandbox(pod.uid, sandbox.id), now)


def grace_seconds(pod: PodRecord, cause: Cause, asked: int | None = None) -> int:
    """How long the pod's containers have to end. Whoever deletes may say; at least one second unless forced."""
    if asked is not None:
        return max(0, asked)
    if cause in (Cause.DELETED, Cause.REMOVED):
        told = pod.view.metadata.deletion_grace_period_seconds
        if told is not None:
            return max(0, told)
    return _grace_of(pod)


def _grace_of(pod: PodRecord) -> int:
    told = pod.view.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if told is None else max(1, told)
