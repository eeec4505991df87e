"""A protocol conformance kit: asks any resource plugin, ours or foreign, what a manager would, and judges the answers.

`kubeqos qrm conformance unix:///…/plugin.sock` prints the report. The kit allocates for pods of its own and releases
them again; a plugin under test should not serve a node at the same time.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeqos.model.annotations.wellknown import HELD_ANNOTATION
from kubeqos.model.machine import Machine
from kubeqos.plugins.examined import Check, NotApplicable, Step, checked
from kubeqos.plugins.killable import Killable
from kubeqos.plugins.managers import ContainerKey
from kubeqos.plugins.registration import Plugin, ask_info
from kubeqos.plugins.sockets import PluginCallError, call, dial
from kubeqos.qrm.allocations import clashes
from kubeqos.qrm.answers import Nonsense, cpus_of, grant_of
from kubeqos.qrm.asking import Question
from kubeqos.qrm.edge.messages import (
    allocation_wrong,
    read_allocation,
    read_capacity,
    read_container_resources,
    read_hints,
)
from kubeqos.qrm.edge.values import check_allocation
from kubeqos.qrm.endpoint import is_unimplemented
from kubeqos.qrm.messages import (
    METHODS,
    PLUGIN_TYPE,
    SERVICE,
    VERSION,
    WHOLE_POD,
    Allocation,
    allocations_from_wire,
    hints_from_wire,
)
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.topology.changes import Held

CALL_SECONDS = 10.0
KILLED = "gives the same after it was killed and started again"


class Kit:
    """One run against one plugin."""

    def __init__(
        self,
        socket: Path,
        *,
        quantity: float = 1.0,
        role: str = "",
        annotations: dict[str, str] | None = None,
        machine: Machine | None = None,
        program: Killable | None = None,
    ):
        """`machine` is the plugin's: without it nobody can say which CPUs and NUMA nodes there are.

        `program` is the plugin itself, where the kit may kill it.
        """
        self.socket = socket
        self.machine = machine
        self.quantity = quantity
        self.role = role
        self.annotations = annotations or {}
        self.program = program
        self.report: list[Check] = []
        self._channel = dial(socket)
        self._plugin: Plugin | None = None
        self._uid = str(uuid.uuid4())

    async def run(self) -> list[Check]:
        """Every check, in the order of a pod's life; stops early only when nobody listens."""
        try:
            if await self._check("registration answers GetInfo", self._introduction):
                for name, step in self._steps():
                    await self._check(name, step)
        finally:
            await self._channel.close(None)
        return self.report

    def _steps(self) -> list[tuple[str, Step]]:
        return [
            ("GetResourcePluginOptions answers", self._options),
            ("GetTopologyHints gives hints or no preference", self._hints),
            ("Allocate gives what can be applied", self._allocate),
            ("Allocate gives the same when asked again", self._allocate_again),
            ("GetResourcesAllocation reports the allocation", self._reported),
            ("reading changes nothing", self._reads_are_pure),
            ("GetTopologyAwareResources answers", self._aware),
            ("GetTopologyAwareAllocatableResources answers", self._allocatable),
            ("PreStartContainer answers with a message", self._pre_start),
            ("an init container is answered", self._init_container),
            ("two pods of two containers hold their own", self._two_pods),
            ("RemovePod releases", self._remove),
            ("GetPodTopologyHints gives hints or no preference", self._pod_hints),
            ("AllocateForPod gives what can be applied, and the same again", self._allocate_for_pod),
            ("GetResourcesAllocation reports what the whole pod was given", self._pod_reported),
            ("RemovePod releases a whole pod", self._remove),
            ("RemovePod of an unknown pod is fine", self._remove_unknown),
            *([(KILLED, self._killed)] if self.program is not None else []),
        ]

    async def _check(self, name: str, step: Step) -> bool:
        self.report.append(await checked(name, step))
        return self.report[-1].passed is not False

    async def _call(self, method: str, request: Any) -> Any:
        return await call(self._channel, f"/{SERVICE}/{method}", request, METHODS[method][1], seconds=CALL_SECONDS)

    # ---- Checks: None is good, a text says what is wrong

    async def _introduction(self) -> str | None:
        plugin = self._plugin = await ask_info(self.socket, self._channel)
        if plugin.type != PLUGIN_TYPE:
            return f"type is {plugin.type!r}, not {PLUGIN_TYPE}"
        if VERSION not in plugin.versions:
            return f"versions {list(plugin.versions)} lack {VERSION}"
        return None if plugin.name else "the resource name is empty"

    async def _options(self) -> str | None:
        await self._call("GetResourcePluginOptions", pb.Empty())
        return None

    async def _hints(self) -> str | None:
        request = self._request()
        hints = read_hints(request, self._question, await self._call("GetTopologyHints", request), self.machine)
        if hints == ():
            raise NotApplicable("the plugin says that no placement is possible for this request")
        return str(hints) if isinstance(hints, Nonsense) else None

    async def _allocate(self) -> str | None:
        request = self._request()
        return self._wrong(request, await self._call("Allocate", request))

    def _wrong(self, request: Any, answer: Any) -> str | None:
        """What a manager would refuse in an allocation."""
        given = read_allocation(request, self._question, answer, pb.MAIN, self.machine)
        if isinstance(given, Nonsense):
            return str(given)
        wrong = allocation_wrong(self._question, given, pb.MAIN, self.machine)
        grant = wrong or grant_of(given)
        return str(grant) if isinstance(grant, Nonsense) else None

    async def _allocate_again(self) -> str | None:
        first, second = [await self._allocated() for _ in range(2)]
        return None if first == second else f"{first} became {second}"

    async def _reported(self) -> str | None:
        given = await self._allocated()
        options = await self._call("GetResourcePluginOptions", pb.Empty())
        if not options.need_reconcile:
            raise NotApplicable("the plugin does not want to be reconciled")
        if not given:
            raise NotApplicable("the plugin gives this container nothing")
        held = (await self._report()).get(self._uid, {}).get("main", {})
        for name, one in given.items():
            if held.get(name) is None:
                return f"{name} is missing in the report"
            if held[name].result != one.result:
                return f"{name} is {held[name].result!r} in the report and was allocated as {one.result!r}"
        return None

    async def _reads_are_pure(self) -> str | None:
        first, second = [await self._report() for _ in range(2)]
        return None if first == second else "two reports in a row differ"

    async def _aware(self) -> str | None:
        request = pb.GetTopologyAwareResourcesRequest(pod_uid=self._uid, container_name="main")
        answer = await self._call("GetTopologyAwareResources", request)
        found = read_container_resources(answer, self._uid, "main", self.machine)
        return str(found) if isinstance(found, Nonsense) else None

    async def _allocatable(self) -> str | None:
        method = "GetTopologyAwareAllocatableResources"
        answer = await self._call(method, pb.GetTopologyAwareAllocatableResourcesRequest())
        found = read_capacity(answer, self.machine)
        if isinstance(found, Nonsense):
            return str(found)
        for name, one in answer.allocatable_resources.items():
            if one.aggregated_allocatable_quantity > one.aggregated_capacity_quantity:
                return f"{name}: more allocatable than there is"
        return None

    async def _two_pods(self) -> str | None:
        """Another pod comes and goes beside the first; nobody's share is another's, and nobody's is forgotten."""
        other, given = str(uuid.uuid4()), dict[ContainerKey, dict[str, Allocation]]()
        for uid, name, kind in (
            (self._uid, "main", pb.MAIN),
            (self._uid, "side", pb.SIDECAR),
            (other, "main", pb.MAIN),
        ):
            request = self._request()
            request.pod_uid, request.container_name, request.container_type = uid, name, kind
            try:
                given[uid, name] = allocations_from_wire((await self._call("Allocate", request)).allocation_result)
            except PluginCallError as error:
                raise NotApplicable(f"no room for a second one: {error.what}") from error
            for resource, one in given[uid, name].items():
                if bad := check_allocation(resource, one, self.machine):
                    return str(bad)
        cpus = {key: found for key, one in given.items() if (found := cpus_of(one.values()))}
        held = {key: Held(found[0], key[0] if found[1] else None) for key, found in cpus.items()}
        if wrong := clashes(held):
            return wrong[0]
        return await self._still_there(other, given)

    async def _still_there(self, other: str, given: Mapping[ContainerKey, Mapping[str, Allocation]]) -> str | None:
        """Whether the report has everybody, and the first pod alone when the other one is gone."""
        options = await self._call("GetResourcePluginOptions", pb.Empty())
        reports = options.need_reconcile
        report = await self._report() if reports else {}
        lost = [key for key, one in given.items() if reports and one and key[1] not in report.get(key[0], {})]
        await self._call("RemovePod", pb.RemovePodRequest(pod_uid=other))
        if lost:
            return f"container {lost[0][1]} is missing in the report once another pod has come"
        report = await self._report() if reports else {}
        if reports and given[self._uid, "main"] and "main" not in report.get(self._uid, {}):
            return "the first pod is gone from the report when another one was removed"
        return None

    async def _pre_start(self) -> str | None:
        await self._call("PreStartContainer", pb.PreStartContainerRequest(pod_uid=self._uid, container_name="main"))
        return None

    async def _init_container(self) -> str | None:
        request = self._request()
        request.container_name, request.container_type = "init", pb.INIT
        await self._call("Allocate", request)
        return None

    async def _remove(self) -> str | None:
        await self._call("RemovePod", pb.RemovePodRequest(pod_uid=self._uid))
        return "the pod is still in the report" if self._uid in await self._report() else None

    async def _pod_hints(self) -> str | None:
        answer = await self._optional("GetPodTopologyHints")
        if hints_from_wire(answer.resource_hints, self.resource) == ():
            raise NotApplicable("the plugin says that no placement is possible for this request")
        return None if answer.pod_uid in (self._uid, "") else f"the answer is for {answer.pod_uid}"

    async def _allocate_for_pod(self) -> str | None:
        first, second = [
            allocations_from_wire((await self._optional("AllocateForPod")).allocation_result) for _ in range(2)
        ]
        wrong = next(filter(None, (check_allocation(name, one, self.machine) for name, one in first.items())), None)
        if wrong:
            return str(wrong)
        grant = grant_of(first)
        if isinstance(grant, Nonsense):
            return str(grant)
        return None if first == second else f"{first} became {second}"

    async def _pod_reported(self) -> str | None:
        given = allocations_from_wire((await self._optional("AllocateForPod")).allocation_result)
        options = await self._call("GetResourcePluginOptions", pb.Empty())
        if not options.need_reconcile or not given:
            raise NotApplicable("the plugin does not want to be reconciled, or gives the pod nothing")
        held = (await self._report()).get(self._uid, {}).get(WHOLE_POD, {})
        lost = [name for name, one in given.items() if name not in held or held[name].result != one.result]
        return f"under container {WHOLE_POD!r}: {lost[0]} is not what was allocated" if lost else None

    async def _optional(self, method: str) -> Any:
        """A call about the pod as a whole, which a plugin need not know."""
        request = pb.PodResourceRequest(
            pod_uid=self._uid,
            pod_namespace="default",
            pod_name="conformance",
            pod_role=self.role,
            resource_name=self.resource,
            resource_requests={self.resource: self.quantity},
            annotations=self.annotations,
            hint=pb.TopologyHint(),
        )
        try:
            return await self._call(method, request)
        except PluginCallError as error:
            if is_unimplemented(error):
                raise NotApplicable("the plugin serves containers one by one") from error
            raise

    async def _remove_unknown(self) -> str | None:
        await self._call("RemovePod", pb.RemovePodRequest(pod_uid=str(uuid.uuid4())))
        return None

    async def _killed(self) -> str | None:
        """It dies while a container runs: asked again, with what the container has, it gives the same."""
        assert self.program is not None
        given = await self._allocated()
        await self.program.restart()
        await self._channel.close(None)
        self._channel = dial(self.socket)
        held = self._request()
        own = given.get(self.resource)
        if own is not None and own.result:
            held.annotations[HELD_ANNOTATION] = own.result
        again = allocations_from_wire((await self._call("Allocate", held)).allocation_result)
        await self._call("RemovePod", pb.RemovePodRequest(pod_uid=self._uid))
        return None if again == given else f"{given} became {again}"

    @property
    def _question(self) -> Question:
        return Question(self.resource, self.resource, self.resource, self.quantity)

    @property
    def resource(self) -> str:
        assert self._plugin is not None
        return self._plugin.name

    def _request(self) -> pb.ResourceRequest:
        return pb.ResourceRequest(
            pod_uid=self._uid,
            pod_namespace="default",
            pod_name="conformance",
            container_name="main",
            container_type=pb.MAIN,
            pod_role=self.role,
            resource_name=self.resource,
            resource_requests={self.resource: self.quantity},
            annotations=self.annotations,
            native_qos_class="Guaranteed",
            hint=pb.TopologyHint(),
        )

    async def _allocated(self) -> dict[str, Allocation]:
        return allocations_from_wire((await self._call("Allocate", self._request())).allocation_result)

    async def _report(self) -> dict[str, dict[str, dict[str, Allocation]]]:
        answer = await self._call("GetResourcesAllocation", pb.GetResourcesAllocationRequest())
        return {
            uid: {name: allocations_from_wire(given) for name, given in containers.container_resources.items()}
            for uid, containers in answer.pod_resources.items()
        }
