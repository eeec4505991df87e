"""Laws of the simulated runtime that hold whatever is asked of it, in whatever order."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kubeqos.cri import relist
from kubeqos.cri.errors import RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated.classes import read_classes
from kubeqos.cri.simulated.core import Core
from kubeqos.cri.simulated.process.script import Load
from kubeqos.cri.simulated.process.usage import NS, Usage
from kubeqos.cri.simulated.state import Happened
from kubeqos.cri.simulated.views import event_message, list_containers, list_sandboxes
from kubeqos.model.hardware.named import tiny2
from tests.cri.pods import container, pod, update

MIB = 1 << 20
TABLE = """
resources:
  rdt: {provider: named, mutable: true, default: b, capacity: {a: 2, b: 1}, classes: [a, b]}
  net: {provider: named, level: pod, capacity: {x: 2}, classes: [x, y]}
"""
PROGRAMS = (["server"], ["sh", "-c", "echo hi; sleep 3; exit 2"], ["true"], ["sleep", "7"])
LOADS = ("", "memory=10Mi", "memory=10Mi growth=5Mi/s", "memory=90Mi cpu=2")
some_class = st.sampled_from([None, "a", "b"])


class AnyRequests(RuleBasedStateMachine):
    """Requests in any order never break the invariants, overfill a class, or lose an event."""

    sandboxes = Bundle("sandboxes")
    containers = Bundle("containers")

    def __init__(self) -> None:
        super().__init__()
        self.core = Core(tiny2(), read_classes(TABLE, "table"))
        self.now_ns = 1_000 * NS
        self.seen: dict[str, int] = {}

    def settle(self) -> None:
        """Follow the events as a subscriber does."""
        effects, self.core.effects = self.core.effects, []
        for effect in effects:
            if isinstance(effect, Happened):
                assert effect.at_ns <= self.now_ns
                assert relist.note(self.seen, event_message(self.core, effect)), "every event is news"

    @rule(target=sandboxes, cls=st.sampled_from([None, "x", "y"]), load=st.sampled_from(LOADS))
    def run(self, cls: str | None, load: str) -> str:
        annotations = {"simulate.kubeqos.io/load": load} if load else {}
        config = pod(classes={"net": cls} if cls else {}, annotations=annotations)
        with contextlib.suppress(RuntimeRefused):
            return self.core.run_pod_sandbox(cri.RunPodSandboxRequest(config=config), self.now_ns).pod_sandbox_id
        return "refused"

    @rule(target=containers, sandbox=sandboxes, cls=some_class, command=st.sampled_from(PROGRAMS), n=st.integers(0, 3))
    def create(self, sandbox: str, cls: str | None, command: list[str], n: int) -> str:
        wanted = container(f"c{n}", command, classes={"rdt": cls} if cls else {}, memory_limit_in_bytes=64 * MIB)
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=wanted)
        with contextlib.suppress(RuntimeRefused):
            return self.core.create_container(request, self.now_ns).container_id
        return "refused"

    @rule(identity=containers)
    def start(self, identity: str) -> None:
        with contextlib.suppress(RuntimeRefused):
            self.core.start_container(cri.StartContainerRequest(container_id=identity), self.now_ns)

    @rule(identity=containers, grace=st.integers(0, 5))
    def stop(self, identity: str, grace: int) -> None:
        with contextlib.suppress(RuntimeRefused):
            request = cri.StopContainerRequest(container_id=identity, timeout=grace)
            assert self.core.stop_container(request, self.now_ns) <= self.now_ns + grace * NS

    @rule(identity=containers)
    def remove(self, identity: str) -> None:
        self.core.remove_container(cri.RemoveContainerRequest(container_id=identity), self.now_ns)

    @rule(identity=containers, cls=some_class, cpus=st.sampled_from(["", "0", "1", "0-1", "5"]))
    def update(self, identity: str, cls: str | None, cpus: str) -> None:
        request = update(identity, classes={"rdt": cls} if cls else {}, cpuset_cpus=cpus)
        with contextlib.suppress(RuntimeRefused):
            self.core.update_container_resources(request, self.now_ns)

    @rule(sandbox=sandboxes)
    def stop_sandbox(self, sandbox: str) -> None:
        self.core.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), self.now_ns)

    @rule(sandbox=sandboxes)
    def remove_sandbox(self, sandbox: str) -> None:
        self.core.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), self.now_ns)

    @rule(seconds=st.integers(0, 10))
    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * NS
        self.core.advance(self.now_ns)

    @invariant()
    def lawful(self) -> None:
        self.core.validate()
        for offer in self.core.book.offers.values():
            for info in offer.classes:
                assert not info.capacity or self.core.book.used[offer.name, info.name] <= info.capacity

    @invariant()
    def events_tell_the_whole_state(self) -> None:
        self.settle()
        sandboxes = list_sandboxes(self.core, cri.ListPodSandboxRequest(), self.now_ns).items
        containers = list_containers(self.core, cri.ListContainersRequest(), self.now_ns).containers
        assert self.seen == relist.look(sandboxes, containers)


AnyRequests.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
test_any_requests_in_any_order = AnyRequests.TestCase

sizes = st.integers(0, 500 * MIB)


@given(memory=sizes, growth=sizes, peak=st.none() | sizes, limit=st.integers(2 * MIB, 1000 * MIB))
def test_memory_passes_a_limit_exactly_when_predicted(memory: int, growth: int, peak: int | None, limit: int) -> None:
    usage = Usage.start(Load(memory_bytes=memory, growth_per_second=growth, peak_bytes=peak), 0, None)
    passes = usage.passes_ns(limit)
    if passes is None:
        assert usage.memory_at(10**6 * NS) <= limit or growth == 0
    else:
        assert usage.memory_at(passes) > limit
        assert passes == 0 or usage.memory_at(passes - 1) <= limit


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 4000)), max_size=8), st.integers(0, 4000))
def test_cpu_time_never_runs_backwards_and_never_exceeds_its_limit(
    changes: list[tuple[int, int]], load_milli: int
) -> None:
    usage = Usage.start(Load(cpu_milli=load_milli), 0, 4000)
    now = before = 0
    for seconds, limit_milli in changes:
        limit_now = usage.cpu_milli
        now += seconds * NS
        used = usage.cpu_ns_at(now)
        assert before <= used <= before + seconds * NS * limit_now // 1000 + 1
        usage.limit_cpu(now, limit_milli)
        before = used
    usage.stop(now)
    assert usage.cpu_ns_at(now + 100 * NS) == before


stages = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2))


@given(before=stages, after=stages)
def test_found_events_lead_from_one_look_to_the_next(before: dict[str, int], after: dict[str, int]) -> None:
    after = {key: max(stage, before.get(key, 0)) for key, stage in after.items()}  # nothing starts again
    seen = dict(before)
    for event in relist.passed(before, after, at_ns=5):
        assert relist.note(seen, event), "no event is told twice"
    assert seen == after
