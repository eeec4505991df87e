"""Carries out the core's effects: calls to the runtime and to the managers, nothing decided here.

Every call has the runtime client's deadline. What went wrong is raised as `KubeqosError`; the agent turns it into a
`Failed`. Results are fresh looks at what was made, so that the core need not ask again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import CONFIG_MAPS, RUNTIME_CLASSES, SECRETS
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.errors import KubeqosError
from kubeqos.node.cri.configs import (
    container_config,
    pod_cgroup,
    pod_log_dir,
    raw_container,
    resource_update,
    sandbox_config,
    sandbox_update,
    termination_log,
)
from kubeqos.node.cri.context import ConfigurationProblem, Context
from kubeqos.node.cri.environment import references
from kubeqos.node.cri.observer import (
    CONTAINER_NAME_LABEL,
    POD_UID_LABEL,
    seen_container,
    seen_sandbox,
    stage_of,
)
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.machine import Core
from kubeqos.node.pod.observed import SeenContainer, SeenPod, Stage
from kubeqos.node.pod.record import PROBES, PodRecord
from kubeqos.node.pod.resize import SANDBOX
from kubeqos.node.runtime import claimed, volumes
from kubeqos.node.runtime.contract import KeepsCgroups, Reserves, UpdatesContainers
from kubeqos.node.runtime.prober import Prober
from kubeqos.node.runtime.tokens import Tokens
from kubeqos.plugins.managers import AdmittedPod, ContainerKind, ContainerRef, Refusal, StartHook
from kubeqos.rules.defaulting.defaults import pull_policy
from kubeqos.rules.defaulting.runtimeclass import handler_of

LONGEST_MESSAGE = 4096
Claims = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | Refusal]]


class StartError(KubeqosError):
    """A container cannot be started, for a reason that Kubernetes has a name for."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


async def no_claims(_raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


class Executor:
    """One node's hands."""

    def __init__(
        self,
        core: Core,
        runtime: Runtime,
        admission: Reserves,
        updater: UpdatesContainers,
        context: Context,
        prober: Prober,
        *,
        api: Api | None = None,
        claims: Claims = no_claims,
        cgroups: KeepsCgroups | None = None,
        threads: bool = True,
    ) -> None:
        """`threads`: work that may take long is done in one, as it can be wherever time is real."""
        self._threads = threads
        self._core = core
        self._runtime = runtime
        self._admission = admission
        self._context = context
        self._prober = prober
        self._api = api
        self._tokens = Tokens(api, prober.clock) if api is not None else None
        self._claims = claims
        self._cgroups = cgroups
        self._updater = updater
        # One entry per effect that reaches the runtime or the managers; the agent deals with the others itself.
        self._handlers: dict[type, Callable[[PodRecord, Any], Awaitable[fx.Result]]] = {
            fx.Admit: self._admit,
            fx.Resize: self._resize,
            fx.Release: self._release,
            fx.RunSandbox: self._run_sandbox,
            fx.StopSandbox: self._stop_sandbox,
            fx.RemoveSandbox: self._remove_sandbox,
            fx.EnsureImage: self._ensure_image,
            fx.CreateContainer: self._create,
            fx.StartContainer: self._start,
            fx.StopContainer: self._stop,
            fx.RemoveContainer: self._remove,
            fx.UpdateResources: self._update,
            fx.UpdateSandbox: self._update_sandbox,
            fx.RunHook: self._hook,
            fx.RunProbe: self._probe,
        }

    async def perform(self, pod: PodRecord, effect: fx.Effect) -> fx.Result:
        return await self._handlers[type(effect)](pod, effect)

    # ---- Managers

    async def _admit(self, pod: PodRecord, _effect: fx.Admit) -> fx.Result:
        raw = pod.raw
        if self._admission.allocation(raw) is None:
            claims = await self._claims(raw)
            if isinstance(claims, Refusal):
                return claims
            refusal = await self._admission.admit(pod.admitted.with_claims(claims), static=pod.source == "file")
            if refusal is not None:
                await self._updater.reconcile()  # others may have made room for it meanwhile
                return refusal
        # Whoever shares CPUs makes room before the first container of this pod can start.
        await self._updater.reconcile()
        self._accompany(pod)
        for ref in pod.admitted.refs.values():
            await self._updater.room(ref, self._admission.cpus_of(ref))
        return await self._allocation(pod, raw)

    async def _resize(self, pod: PodRecord, _effect: fx.Resize) -> fx.Result:
        asked = pod.asked
        refusal = await self._admission.resize(pod.admitted, asked)
        return refusal if refusal is not None else await self._allocation(pod, asked.raw)

    async def _allocation(self, pod: PodRecord, raw: fx.Raw) -> fx.Allocation | None:
        """What a pod has. Who does not run is created with it, so there is nobody who still has to be told."""
        found = self._admission.allocation(raw)
        for name in sorted(found.untold) if found is not None else ():
            if not pod.has_now(name):
                await self._admission.told(pod.uid, name)
        return found

    async def _release(self, pod: PodRecord, _effect: fx.Release) -> fx.Result:
        if self._cgroups is not None and pod.source != "runtime":
            await self._cgroups.remove(pod.admitted)
        await self._admission.release(pod.uid)
        self._updater.removed(pod.uid)
        context = self._context
        if pod.ending is not None and context.folders:
            own = context.state_dir / "pods" / pod.uid
            # Logs and last words of a pod that has ended stay; its volumes go, or evicting it would free no disk.
            stay = not pod.ending.cause.cleans_up
            folders = [own / "volumes"] if stay else [own, pod_log_dir(pod.admitted, context)]
            if self._threads:
                await asyncio.to_thread(_remove_all, folders)
            else:
                _remove_all(folders)
        return None

    async def keep_cgroups(self) -> None:
        """Bring the cgroups above containers to what the pods of now ask for."""
        if self._cgroups is not None:
            await self._cgroups.reconcile()

    async def keep_tokens(self) -> None:
        """Renew the tokens in pods' volumes, for ever; returns where this node makes no volumes."""
        if self._tokens is not None and self._context.folders:
            pods = self._core.pods
            await self._tokens.run(
                lambda: [one.admitted for one in pods.values() if one.sandbox is not None], self._context
            )

    # ---- Sandboxes

    async def _run_sandbox(self, pod: PodRecord, effect: fx.RunSandbox) -> fx.Result:
        context, admitted = self._context, pod.admitted
        if context.folders and pod.view.spec.volumes:
            try:
                files = await self._files(admitted, volumes.needs(admitted))
                places = await claimed.places(admitted, self._api, context.node_name)
                volumes.write_all(admitted, context, files, places)
            except volumes.MountProblem as problem:
                raise StartError("FailedMount", problem.what) from problem
        await self.keep_cgroups()
        config = sandbox_config(admitted, effect.attempt, context)
        handler = await self._handler(admitted) if pod.view.spec.runtime_class_name else ""
        identity = await self._runtime.run_pod_sandbox(config, runtime_handler=handler)
        return seen_sandbox((await self._runtime.pod_sandbox_status(identity)).status)

    async def _handler(self, pod: AdmittedPod) -> str:
        """Who runs a pod: as the API server wrote down, or as its RuntimeClass says now."""
        handler, name = handler_of(pod.view), pod.view.spec.runtime_class_name or ""
        if handler is not None:
            return handler
        if self._api is None:
            raise StartError("FailedCreatePodSandBox", f'no API server to ask for RuntimeClass "{name}"')
        try:
            return str((await self._api.get(RUNTIME_CLASSES, name)).get("handler", ""))
        except ApiError as error:
            if not error.not_found:
                raise
            raise StartError("FailedCreatePodSandBox", f'RuntimeClass "{name}" not found') from error

    async def _stop_sandbox(self, _pod: PodRecord, effect: fx.StopSandbox) -> fx.Result:
        await _if_there(self._runtime.stop_pod_sandbox(effect.id))
        return None

    async def _remove_sandbox(self, _pod: PodRecord, effect: fx.RemoveSandbox) -> fx.Result:
        await _if_there(self._runtime.remove_pod_sandbox(effect.id))
        return None

    async def _update_sandbox(self, pod: PodRecord, effect: fx.UpdateSandbox) -> fx.Result:
        request = sandbox_update(pod.admitted, effect.id, self._context)
        if request.qos_resources:
            await self._runtime.update_pod_sandbox_resources(request)
        await self._admission.told(pod.uid, SANDBOX)
        return None

    # ---- Containers

    async def _ensure_image(self, pod: PodRecord, effect: fx.EnsureImage) -> fx.Result:
        raw = pod.containers[effect.container].raw
        image = raw.get("image", "")
        policy = raw.get("imagePullPolicy") or pull_policy(image)
        if policy != "Always" and await self._runtime.image_status(image) is not None:
            return "present"
        if policy == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            raise StartError("ErrImageNeverPull", text)
        config = sandbox_config(pod.admitted, 0, self._context)
        await self._runtime.pull_image(image, sandbox_config=config)
        return "pulled"

    async def _create(self, pod: PodRecord, effect: fx.CreateContainer) -> fx.Result:
        self._accompany(pod)
        context, (admitted, ref) = self._context, _described(pod, effect.container)
        sandbox = pod.newest_sandbox
        assert sandbox is not None
        grant = self._admission.grant(ref)
        lookup = await self._lookup(admitted, ref)
        ip = sandbox.ips[0] if sandbox.ips else context.host_ip
        try:
            target = _target_id(pod, effect.container)
            config = container_config(
                admitted, ref, effect.attempt, grant, context, pod_ip=ip, lookup=lookup, target_id=target
            )
        except ConfigurationProblem as problem:
            raise StartError("CreateContainerConfigError", problem.what) from problem
        if context.folders:
            (pod_log_dir(admitted, context) / ref.name).mkdir(parents=True, exist_ok=True)
            words = termination_log(admitted, ref.name, effect.attempt, context)
            words.parent.mkdir(parents=True, exist_ok=True)
            words.touch()
        described = sandbox_config(admitted, sandbox.attempt, context)
        identity = await self._runtime.create_container(effect.sandbox_id, config, described)
        await self._updater.created(ref, identity, grant)
        return await self._look_at(identity)

    def _accompany(self, pod: PodRecord) -> None:
        """Ephemeral containers run where the container runs that they are about, or else the first of the pod."""
        refs = pod.asked.refs if pod.ephemeral else {}
        for one in pod.ephemeral:
            other = refs.get(one.raw.get("targetContainerName", "")) or refs[pod.apps[0].view.name]
            self._admission.accompany(refs[one.view.name], other)

    async def _lookup(self, pod: AdmittedPod, ref: ContainerRef) -> dict[tuple[str, str], dict[str, str]]:
        """What a container's environment refers to."""
        files = await self._files(pod, references(raw_container(pod, ref)))
        return {
            key: {name: data.decode(errors="replace") for name, data in found.items()} for key, found in files.items()
        }

    async def _files(self, pod: AdmittedPod, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, bytes]]:
        """ConfigMaps and Secrets of the pod's namespace; those that do not exist are left out."""
        found: dict[tuple[str, str], dict[str, bytes]] = {}
        for kind, name in sorted(wanted) if self._api is not None else ():
            assert self._api is not None
            try:
                if kind == volumes.TOKEN and self._tokens is not None:
                    found[kind, name] = {"token": await self._tokens.token(pod, name)}
                    continue
                resource = CONFIG_MAPS if kind == "ConfigMap" else SECRETS
                raw = await self._api.get(resource, name, pod.view.metadata.namespace)
            except ApiError as error:
                if not error.not_found:
                    raise
                continue
            found[kind, name] = volumes.decoded(kind, raw)
        return found

    async def _start(self, pod: PodRecord, effect: fx.StartContainer) -> fx.Result:
        admitted, ref = _described(pod, effect.container)
        await self._updater.before_start(ref, effect.id)
        await self._updater.room(ref, self._admission.cpus_of(ref))
        for manager in self._admission.managers if ref.kind is not ContainerKind.EPHEMERAL else ():
            if isinstance(manager, StartHook):
                cgroup = pod_cgroup(admitted, self._context)
                refusal = await manager.before_start(admitted, ref, effect.id, cgroup)
                if refusal is not None:
                    raise StartError(refusal.reason, refusal.message)
        async with self._updater.paused(ref):
            await self._runtime.start_container(effect.id)
        seen = await self._look_at(effect.id)
        if self._cgroups is not None and (seen.classes or self._admission.owned(ref)):
            await self.keep_cgroups()  # what its classes are worth is known now, and its tier follows; so are its CPUs
        return seen

    async def _stop(self, _pod: PodRecord, effect: fx.StopContainer) -> fx.Result:
        await _if_there(self._runtime.stop_container(effect.id, grace_seconds=effect.grace_seconds))
        try:
            return await self._look_at(effect.id)
        except CallError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return None

    async def _remove(self, _pod: PodRecord, effect: fx.RemoveContainer) -> fx.Result:
        await _if_there(self._runtime.remove_container(effect.id))
        return None

    async def _update(self, pod: PodRecord, effect: fx.UpdateResources) -> fx.Result:
        admitted = pod.admitted
        ref = admitted.refs[effect.container]
        await self._updater.room(ref, self._admission.cpus_of(ref))
        async with self._updater.paused(ref):
            grant, void = self._admission.grant(ref), self._updater.outstanding((pod.uid, ref.name))
            request = resource_update(admitted, ref, effect.id, grant, self._context)
            await self.keep_cgroups()
            await self._runtime.update_container_resources(request)
            self._updater.updated(ref, grant, void)
        await self.keep_cgroups()
        await self._admission.told(pod.uid, effect.container)
        return None

    async def _look_at(self, container_id: str) -> SeenContainer:
        return self._seen((await self._runtime.container_status(container_id)).status)

    def _seen(self, status: cri.ContainerStatus) -> SeenContainer:
        """A container with its last words, if it left any."""
        found, context = seen_container(status), self._context
        pod = self._core.pods.get(status.labels.get(POD_UID_LABEL, ""))
        if found.stage is not Stage.EXITED or found.message or pod is None or not context.folders:
            return found
        try:
            with termination_log(pod.admitted, found.name, found.attempt, context).open("rb") as file:
                said = file.read(LONGEST_MESSAGE).decode(errors="replace")
        except OSError:
            return found
        return replace(found, message=said) if said else found

    # ---- Hooks and probes

    async def _hook(self, pod: PodRecord, effect: fx.RunHook) -> fx.Result:
        raw = pod.containers[effect.container].raw
        handler = (raw.get("lifecycle") or {}).get(effect.hook) or {}
        await self._prober.run(handler, effect.id, raw, self._ip(pod), timeout=effect.deadline_seconds)
        return None

    async def _probe(self, pod: PodRecord, effect: fx.RunProbe) -> fx.Result:
        raw = pod.containers[effect.container].raw
        probe = raw.get(PROBES[effect.probe]) or {}
        timeout = float(probe.get("timeoutSeconds", 1))
        await self._prober.run(probe, effect.id, raw, self._ip(pod), timeout=timeout)
        return True

    def _ip(self, pod: PodRecord) -> str:
        ips = pod.sandbox.ips if pod.sandbox is not None else ()
        return ips[0] if ips else self._context.host_ip

    # ---- Looking

    async def look_at_all(self) -> list[SeenPod]:
        """Everything that an earlier life of the agent left; what its containers have is where updates begin."""
        return [await self.look(uid, first=True) for uid in await self.stages()]

    async def look(self, uid: str, *, first: bool = False) -> SeenPod:
        """Everything the runtime holds for one pod."""
        labels = {POD_UID_LABEL: uid}
        sandboxes = []
        namespace = name = ""
        for sandbox in await self._runtime.list_pod_sandboxes(cri.PodSandboxFilter(label_selector=labels)):
            namespace, name = sandbox.metadata.namespace, sandbox.metadata.name
            status = await _or_none(self._runtime.pod_sandbox_status(sandbox.id))
            if status is not None:
                sandboxes.append(seen_sandbox(status.status))
        containers = []
        for container in await self._runtime.list_containers(cri.ContainerFilter(label_selector=labels)):
            answer = await _or_none(self._runtime.container_status(container.id))
            if answer is not None:
                containers.append(self._seen(answer.status))
                if first and containers[-1].live:
                    self._updater.found((uid, containers[-1].name), answer.status.resources.linux)
        return SeenPod(uid, namespace, name, tuple(sandboxes), tuple(containers))

    async def stages(self) -> dict[str, dict[str, str]]:
        """Every sandbox and container of ours and how far it is, by pod: two cheap calls for the whole node."""
        found: dict[str, dict[str, str]] = {}
        for sandbox in await self._runtime.list_pod_sandboxes():
            uid = sandbox.labels.get(POD_UID_LABEL)
            if uid:
                found.setdefault(uid, {})[sandbox.id] = str(sandbox.state == cri.SANDBOX_READY)
        for container in await self._runtime.list_containers():
            uid = container.labels.get(POD_UID_LABEL)
            if uid and CONTAINER_NAME_LABEL in container.labels:
                found.setdefault(uid, {})[container.id] = stage_of(container.state).value
        return found


def _described(pod: PodRecord, container: str) -> tuple[AdmittedPod, ContainerRef]:
    """A container, and the pod with what it has; an ephemeral one is no part of what was admitted."""
    ephemeral = any(one.view.name == container for one in pod.ephemeral)
    described = pod.asked if ephemeral else pod.admitted
    return described, described.refs[container]


def _target_id(pod: PodRecord, container: str) -> str:
    """The container whose processes an ephemeral one shall see, if it names any."""
    wanted = pod.containers[container].raw.get("targetContainerName")
    if not wanted:
        return ""
    found = pod.containers.get(wanted)
    if found is None or found.newest is None or found.newest.stage is not Stage.RUNNING:
        raise ConfigurationProblem(f'unable to find target container "{wanted}"')
    return found.newest.id


def _remove_all(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


async def _if_there(call: Awaitable[None]) -> None:
    try:
        await call
    except CallError as error:
        if error.code is not Code.NOT_FOUND:
            raise


async def _or_none(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except CallError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None
