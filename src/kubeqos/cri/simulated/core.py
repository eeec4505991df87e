"""The simulated runtime's state machine: CRI requests and the time in, answers and effects out. Pure.

It decides everything and does nothing: no clock, no file, no task. `runtime.SimulatedRuntime` around it moves the
bytes. One method per request; `advance` lets time pass; `_end` is the only place where a container ends. A request that
cannot be granted raises `RuntimeRefused` before anything has changed.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Iterable

from kubeqos.cri.errors import Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Advertisement, Level
from kubeqos.cri.simulated import cgroups
from kubeqos.cri.simulated.addresses import Addresses
from kubeqos.cri.simulated.classes import ClassBook
from kubeqos.cri.simulated.endings import ending_of, ending_when_asked
from kubeqos.cri.simulated.process.memory import Candidate, runs_out_ns, victim
from kubeqos.cri.simulated.process.program import program_of
from kubeqos.cri.simulated.process.script import Load, Script, requested_script
from kubeqos.cri.simulated.process.usage import Usage
from kubeqos.cri.simulated.state import (
    KILLED,
    OOM_KILLED,
    Cgroup,
    Container,
    Effect,
    Ending,
    Happened,
    Sandbox,
    State,
    Wrote,
    earlier_instances,
    reason_of,
)
from kubeqos.model.machine import Machine

NO_LOAD = Load()
FIRST_PID = 1000
REMEMBERED = 128
POD_CIDR = "10.88.0.0/16"
SPARE_TIMERS = 64
NODE = ""
"""In place of a container: the timer of the machine's memory."""


class Core:
    """All sandboxes and containers of one simulated machine."""

    def __init__(
        self,
        machine: Machine,
        offers: Iterable[Advertisement] = (),
        *,
        name: str = "simulated",
        pod_cidr: str = POD_CIDR,
        writes_cgroups: bool = False,
    ) -> None:
        self.machine = machine
        self.name = name
        self.book = ClassBook(offers)
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self.images: dict[str, str] = {}
        self.effects: list[Effect] = []
        self._writes_cgroups = writes_cgroups
        self._story: deque[tuple[int, str, str, str]] = deque(maxlen=REMEMBERED)
        self._names: dict[tuple[object, ...], str] = {}
        self._failed: Counter[tuple[str, str, str]] = Counter()
        self.timers: list[tuple[int, int, str, int]] = []
        """A heap of what containers do by themselves: when, a serial number, whose, and of which plan of it."""
        self._serial = itertools.count(1)
        self._addresses = Addresses(pod_cidr)
        self.memory_bytes = sum(node.memory_bytes for node in machine.nodes)
        self._heavy: dict[str, Container] = {}
        """Running containers with memory to speak of."""
        self._memory_plan = 0

    # ---- Time

    def _next_ns(self) -> int | None:
        """When something will happen by itself, or None."""
        while self.timers:
            if self._is_current(self.timers[0]):
                return self.timers[0][0]
            heapq.heappop(self.timers)
        return None

    def _is_current(self, timer: tuple[int, int, str, int]) -> bool:
        _, _, container_id, plan = timer
        if container_id == NODE:
            return plan == self._memory_plan
        container = self.containers.get(container_id)
        return container is not None and container.plan == plan and container.state is State.RUNNING

    def advance(self, now_ns: int) -> None:
        """Let everything happen that is due, each at its own time."""
        while (due := self._next_ns()) is not None and due <= now_ns:
            container_id = heapq.heappop(self.timers)[2]
            if container_id == NODE:
                self._run_out(due)
            else:
                self._play(self.containers[container_id], due)

    def _play(self, container: Container, at_ns: int) -> None:
        """What a running container does up to a time."""
        outputs = container.program.outputs
        ending = ending_of(container)
        until = at_ns if ending is None else min(at_ns, ending.at_ns)
        while container.outputs_done < len(outputs):
            output = outputs[container.outputs_done]
            written_ns = container.started_ns + output.after_ns
            if written_ns > until:
                break
            container.outputs_done += 1
            if container.log_path:
                self.effects.append(Wrote(written_ns, container.log_path, output.stream, output.text))
        if ending is not None and ending.at_ns <= at_ns:
            self._end(container, ending)
        else:
            self._plan(container, ending)

    def _plan_memory(self, now_ns: int) -> None:
        """Set the timer of the moment at which the machine's memory is gone."""
        self._memory_plan += 1
        sizes = [one.usage.memory for one in self._heavy.values() if one.usage is not None]
        due = runs_out_ns(sizes, self.memory_bytes, now_ns) if sizes else None
        if due is not None:
            heapq.heappush(self.timers, (due, next(self._serial), NODE, self._memory_plan))

    def _run_out(self, now_ns: int) -> None:
        """The machine's memory is gone: the kernel ends one process and looks again."""
        found = [
            Candidate(one.id, one.usage.memory_at(now_ns), one.resources.oom_score_adj, one.started_ns)
            for one in self._heavy.values()
            if one.usage is not None
        ]
        chosen = victim(found, self.memory_bytes)
        if chosen is not None:
            score = chosen.oom_score(self.memory_bytes)
            why = f"the node was out of memory, and oom_score {score} the highest of {len(found)} containers"
            self._end(self.containers[chosen.id], Ending(now_ns, KILLED, OOM_KILLED, why))

    def _plan(self, container: Container, ending: Ending | None) -> None:
        """Set the timer of the next thing that the container does by itself."""
        container.plan += 1
        times = [] if ending is None else [ending.at_ns]
        if container.outputs_done < len(container.program.outputs):
            times.append(container.started_ns + container.program.outputs[container.outputs_done].after_ns)
        if times:
            heapq.heappush(self.timers, (min(times), next(self._serial), container.id, container.plan))
        if len(self.timers) > 2 * len(self.containers) + SPARE_TIMERS:
            self.timers = [timer for timer in self.timers if self._is_current(timer)]
            heapq.heapify(self.timers)

    def _end(self, container: Container, ending: Ending) -> None:
        container.state = State.EXITED
        container.ended = ending
        container.plan += 1
        if container.usage is not None:
            container.usage.stop(ending.at_ns)
        if self._heavy.pop(container.id, None) is not None:
            self._plan_memory(ending.at_ns)
        self.book.release(container.classes)
        how = f"ended: {ending.reason}, exit code {ending.code}"
        self._happened(ending.at_ns, container, cri.CONTAINER_STOPPED_EVENT, how)
        self._cgroup(container, None)

    # ---- Sandboxes

    def run_pod_sandbox(self, request: cri.RunPodSandboxRequest, now_ns: int) -> cri.RunPodSandboxResponse:
        config = cri.PodSandboxConfig()
        config.CopyFrom(request.config)  # the caller may go on to change its own
        if not config.metadata.name or not config.metadata.uid:
            raise RuntimeRefused(Code.INVALID_ARGUMENT, "sandbox config must include metadata with name and uid")
        script = requested_script(config.annotations)
        self._scripted_failure(script, config.metadata.uid, "", "RunPodSandbox")
        classes = self.book.requested(Level.POD, config.qos_resources, handler=request.runtime_handler)
        sandbox = Sandbox(self._new_id(now_ns), config, request.runtime_handler, now_ns, "", classes, script)
        self._check_name(name := ("sandbox", *sandbox.name))
        if config.linux.security_context.namespace_options.network != cri.NODE:
            sandbox.ip = self._addresses.take()
        self._names[name] = sandbox.id
        self.book.take(classes)
        sandbox.fixed_classes = self.book.fixed_classes
        self.sandboxes[sandbox.id] = sandbox
        self._happened(now_ns, sandbox, cri.CONTAINER_CREATED_EVENT, "created")
        self._happened(now_ns, sandbox, cri.CONTAINER_STARTED_EVENT, "ready")
        return cri.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    def stop_pod_sandbox(self, request: cri.StopPodSandboxRequest, now_ns: int) -> cri.StopPodSandboxResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            self._scripted_failure(sandbox.script, sandbox.config.metadata.uid, "", "StopPodSandbox")
            self._stop_sandbox(sandbox, now_ns)
        return cri.StopPodSandboxResponse()

    def _stop_sandbox(self, sandbox: Sandbox, now_ns: int) -> None:
        for container_id in sandbox.containers:
            container = self.containers[container_id]
            if container.state is State.RUNNING:
                self._end(container, Ending(now_ns, KILLED, reason_of(KILLED)))
        if sandbox.ready:
            sandbox.ready = False
            self.book.release(sandbox.classes)
            self._addresses.give_back(sandbox.ip)
            self._happened(now_ns, sandbox, cri.CONTAINER_STOPPED_EVENT, "stopped")

    def remove_pod_sandbox(self, request: cri.RemovePodSandboxRequest, now_ns: int) -> cri.RemovePodSandboxResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            self._scripted_failure(sandbox.script, sandbox.config.metadata.uid, "", "RemovePodSandbox")
            self._stop_sandbox(sandbox, now_ns)
            for container_id in list(sandbox.containers):
                self._remove(self.containers[container_id], now_ns)
            del self.sandboxes[sandbox.id]
            del self._names["sandbox", *sandbox.name]
            self._happened(now_ns, sandbox, cri.CONTAINER_DELETED_EVENT, "removed")
        return cri.RemovePodSandboxResponse()

    def update_pod_sandbox_resources(
        self, request: cri.UpdatePodSandboxResourcesRequest, now_ns: int
    ) -> cri.UpdatePodSandboxResourcesResponse:
        """Checked as a whole before anything changes, as for a container."""
        sandbox = self.sandbox(request.pod_sandbox_id)
        self._scripted_failure(sandbox.script, sandbox.config.metadata.uid, "", "UpdatePodSandboxResources")
        has, fixed, handler = sandbox.classes, sandbox.fixed_classes, sandbox.runtime_handler
        moves = self.book.requested(Level.POD, request.qos_resources, has, fixed, handler=handler)
        if moves and sandbox.ready:
            sandbox.classes = self.book.moved(sandbox.classes, moves)
            self._tell(now_ns, sandbox, f"updated: {', '.join(f'{name}={cls}' for name, cls in moves.items())}")
        if request.HasField("overhead"):
            sandbox.config.linux.overhead.CopyFrom(request.overhead)
        if request.HasField("resources"):
            sandbox.config.linux.resources.CopyFrom(request.resources)
        return cri.UpdatePodSandboxResourcesResponse()

    # ---- Containers

    def create_container(self, request: cri.CreateContainerRequest, now_ns: int) -> cri.CreateContainerResponse:
        sandbox = self.sandbox(request.pod_sandbox_id)
        config = cri.ContainerConfig()
        config.CopyFrom(request.config)  # a part of a message keeps the whole of it in memory
        if not config.metadata.name:
            raise RuntimeRefused(Code.INVALID_ARGUMENT, "container config must include metadata with a name")
        if not sandbox.ready:
            raise RuntimeRefused(Code.NOT_FOUND, f"sandbox {sandbox.id!r} is not running")
        script = requested_script(sandbox.config.annotations, config.metadata.name)
        self._scripted_failure(script, sandbox.config.metadata.uid, config.metadata.name, "CreateContainer")
        cgroups.check_resources(config.linux.resources, self.machine)
        earlier = earlier_instances(self.containers.values(), self.sandboxes, sandbox, config.metadata.name)
        asked, handler = config.qos_resources, sandbox.runtime_handler
        classes = self.book.requested(Level.CONTAINER, asked, handler=handler, earlier=earlier)
        container = Container(self._new_id(now_ns), sandbox.id, config, config.linux.resources, classes, now_ns)
        self._check_name(name := self._container_name(sandbox, container))
        self._names[name] = container.id
        container.script = script
        container.program = program_of([*config.command, *config.args])
        if config.log_path and sandbox.config.log_directory:
            container.log_path = f"{sandbox.config.log_directory}/{config.log_path}"
        self.book.take(classes)
        self.containers[container.id] = container
        sandbox.containers.append(container.id)
        container.image_id = self.image(config.image.image)
        self._happened(now_ns, container, cri.CONTAINER_CREATED_EVENT, "created")
        return cri.CreateContainerResponse(container_id=container.id)

    def start_container(self, request: cri.StartContainerRequest, now_ns: int) -> cri.StartContainerResponse:
        container = self.container(request.container_id)
        self.fail_if_scripted(container, "StartContainer")
        if container.state is not State.CREATED:
            raise RuntimeRefused(Code.UNKNOWN, f"container {container.id!r} is in {container.state_name} state")
        if not self.sandboxes[container.sandbox_id].ready:
            raise RuntimeRefused(Code.UNKNOWN, f"sandbox {container.sandbox_id!r} is not running")
        container.state = State.RUNNING
        container.fixed_classes = self.book.fixed_classes
        container.started_ns = now_ns
        container.pid = FIRST_PID + next(self._serial)
        limit = cgroups.cpu_limit_milli(container.resources, self.machine)
        load = container.script.load or NO_LOAD
        container.usage = Usage.start(load, now_ns, limit, cgroups.memory_high(container.resources))
        if container.log_path:
            self.effects.append(Wrote(now_ns, container.log_path, "stdout", ""))
        self._happened(now_ns, container, cri.CONTAINER_STARTED_EVENT, "started")
        self._cgroup(container, now_ns)
        if load.memory_bytes or load.growth_per_second:
            self._heavy[container.id] = container
            self._plan_memory(now_ns)
        self._play(container, now_ns)
        return cri.StartContainerResponse()

    def stop_container(self, request: cri.StopContainerRequest, now_ns: int) -> int:
        """Ask a container to end; returns when it will have ended at the latest."""
        container = self.container(request.container_id)
        self.fail_if_scripted(container, "StopContainer")
        if container.state is not State.RUNNING:
            return now_ns
        ending = ending_when_asked(container, request.timeout, now_ns)
        if container.stopping is None or ending.at_ns < container.stopping.at_ns:
            container.stopping = ending
        self._tell(now_ns, container, f"asked to stop within {request.timeout} s")
        self._play(container, now_ns)
        return container.stopping.at_ns

    def remove_container(self, request: cri.RemoveContainerRequest, now_ns: int) -> cri.RemoveContainerResponse:
        container = self.containers.get(request.container_id)
        if container is not None:
            self.fail_if_scripted(container, "RemoveContainer")
            if container.state is State.RUNNING:
                self._end(container, Ending(now_ns, KILLED, reason_of(KILLED)))
            self._remove(container, now_ns)
        return cri.RemoveContainerResponse()

    def _remove(self, container: Container, now_ns: int) -> None:
        if container.state is State.CREATED:
            self.book.release(container.classes)
        sandbox = self.sandboxes[container.sandbox_id]
        sandbox.containers.remove(container.id)
        del self.containers[container.id]
        del self._names[self._container_name(sandbox, container)]
        self._happened(now_ns, container, cri.CONTAINER_DELETED_EVENT, "removed")

    def update_container_resources(
        self, request: cri.UpdateContainerResourcesRequest, now_ns: int
    ) -> cri.UpdateContainerResourcesResponse:
        """Everything is checked before anything changes (KEP-3008, UpdateContainerResourcesRequest).

        For a container that has ended there is nothing to change and no error, as in containerd: it may end any time.
        """
        container = self.container(request.container_id)
        self.fail_if_scripted(container, "UpdateContainerResources")
        if container.state is State.EXITED:
            return cri.UpdateContainerResourcesResponse()
        asked, handler = request.qos_resources, self.sandboxes[container.sandbox_id].runtime_handler
        has, fixed = container.classes, container.fixed_classes
        moves = self.book.requested(Level.CONTAINER, asked, has, fixed, handler=handler)
        resources = cgroups.merged(container.resources, request.linux)
        cgroups.check_resources(resources, self.machine)
        container.classes = self.book.moved(container.classes, moves)
        container.resources = resources
        container.limited_ns = now_ns
        self._tell(now_ns, container, f"updated: {cgroups.update_summary(request)}")
        if container.state is State.RUNNING and container.usage is not None:
            container.usage.limit_cpu(now_ns, cgroups.cpu_limit_milli(resources, self.machine))
            container.usage.memory.limit(now_ns, cgroups.memory_high(resources))
            if container.id in self._heavy:
                self._plan_memory(now_ns)
            self._cgroup(container, now_ns)
            self._play(container, now_ns)
        return cri.UpdateContainerResourcesResponse()

    def reopen_container_log(
        self, request: cri.ReopenContainerLogRequest, now_ns: int
    ) -> cri.ReopenContainerLogResponse:
        """Make the log anew after it was moved away."""
        container = self.container(request.container_id)
        if container.state is not State.RUNNING:
            raise RuntimeRefused(Code.UNKNOWN, f"container {container.id!r} is in {container.state_name} state")
        if container.log_path:
            self.effects.append(Wrote(now_ns, container.log_path, "stdout", ""))
        return cri.ReopenContainerLogResponse()

    # ---- Lookups and bookkeeping

    def sandbox(self, sandbox_id: str) -> Sandbox:
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise RuntimeRefused(Code.NOT_FOUND, f"no sandbox {sandbox_id!r}")
        return sandbox

    def container(self, container_id: str) -> Container:
        container = self.containers.get(container_id)
        if container is None:
            raise RuntimeRefused(Code.NOT_FOUND, f"no container {container_id!r}")
        return container

    def image(self, name: str) -> str:
        """The id of an image; every image exists."""
        found = self.images.get(name)
        if found is None:
            found = self.images[name] = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        return found

    def pull(self, request: cri.PullImageRequest) -> str:
        """Fetch an image; fails only by script."""
        config = request.sandbox_config
        self._scripted_failure(requested_script(config.annotations), config.metadata.uid, "", "PullImage")
        return self.image(request.image.image)

    def cgroup_path(self, container: Container) -> str:
        """Where the container's cgroup is, below the root of the tree."""
        parent = self.sandboxes[container.sandbox_id].config.linux.cgroup_parent
        return f"{parent.strip('/')}/{container.id}".lstrip("/")

    def cgroup_files(self, container: Container, now_ns: int) -> dict[str, str]:
        """All files of the container's cgroup and their contents."""
        files = cgroups.value_files(container.resources, self.machine)
        if container.usage is not None:
            files |= cgroups.usage_files(container.usage, container.pid, now_ns, oom_killed=container.oom_killed)
        return files

    def set_offers(self, offers: Iterable[Advertisement]) -> None:
        """Offer other classes from now on; who has a class keeps it, implicit ones follow where they can be changed."""
        self.book.replace(offers)

    def validate(self) -> None:
        """The invariants, for tests."""
        for container in self.containers.values():
            assert container.id in self.sandboxes[container.sandbox_id].containers
            assert (container.state is State.EXITED) == (container.ended is not None)
            assert (container.state is State.CREATED) == (container.usage is None)
            assert container.state is not State.RUNNING or self.sandboxes[container.sandbox_id].ready
        alive = [c.classes for c in self.containers.values() if c.state is not State.EXITED]
        alive += [s.classes for s in self.sandboxes.values() if s.ready]
        expected = Counter(pair for classes in alive for pair in classes.items())
        assert +self.book.used == expected, f"counted {+self.book.used}, held {expected}"
        assert len(self._names) == len(self.sandboxes) + len(self.containers)
        assert max(Counter(s.ip for s in self.sandboxes.values() if s.ready and s.ip).values(), default=1) == 1

    def story(self, identity: str) -> list[tuple[int, str]]:
        """What happened to a container, or to a sandbox and its containers, lately: times and words."""
        return [(at_ns, text) for at_ns, sandbox_id, own_id, text in self._story if identity in (sandbox_id, own_id)]

    def _tell(self, at_ns: int, subject: Sandbox | Container, text: str) -> None:
        if isinstance(subject, Sandbox):
            self._story.append((at_ns, subject.id, subject.id, f"sandbox {text}"))
        else:
            self._story.append((at_ns, subject.sandbox_id, subject.id, f"container {subject.name} {text}"))

    def _happened(
        self, at_ns: int, subject: Sandbox | Container, kind: cri.ContainerEventType.ValueType, text: str
    ) -> None:
        self._tell(at_ns, subject, text)
        sandbox_id = subject.id if isinstance(subject, Sandbox) else subject.sandbox_id
        self.effects.append(Happened(at_ns, subject.id, sandbox_id, kind))

    def _cgroup(self, container: Container, now_ns: int | None) -> None:
        if self._writes_cgroups:
            files = None if now_ns is None else self.cgroup_files(container, now_ns)
            self.effects.append(Cgroup(self.cgroup_path(container), files))

    def _new_id(self, now_ns: int) -> str:
        """64 hexadecimal digits, as real runtimes give; the time keeps ids apart after a restart."""
        return hashlib.blake2b(f"{self.name}/{now_ns}/{next(self._serial)}".encode(), digest_size=32).hexdigest()

    def _check_name(self, name: tuple[object, ...]) -> None:
        if (holder := self._names.get(name)) is not None:
            shown = "_".join(str(part) for part in name[1:])
            raise RuntimeRefused(
                Code.UNKNOWN, f"failed to reserve {name[0]} name {shown!r}: it is reserved for {holder!r}"
            )

    @staticmethod
    def _container_name(sandbox: Sandbox, container: Container) -> tuple[object, ...]:
        return ("container", *sandbox.name, container.name, container.config.metadata.attempt)

    def fail_if_scripted(self, container: Container, method: str) -> None:
        """Raise the failure that the pod's annotations ask for, if any."""
        uid = self.sandboxes[container.sandbox_id].config.metadata.uid
        self._scripted_failure(container.script, uid, container.name, method)

    def _scripted_failure(self, script: Script, uid: str, container: str, method: str) -> None:
        for failure in script.fail:
            if failure.method == method:
                count = self._failed[uid, container, method]
                if failure.times is None or count < failure.times:
                    self._failed[uid, container, method] += 1
                    raise RuntimeRefused(failure.code, failure.message)
