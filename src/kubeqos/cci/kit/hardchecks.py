"""The harder checks of a compute driver: several pods, every attribute with more than one core, restarts, nonsense.

Called by `cci.kit.conformance`. What a machine cannot have is not asked for: whether it can is decided by the
allocators of `topology`, on which the reference driver stands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from kubeqos.cci.drivers import WAY_KEY
from kubeqos.cci.kit.examination import Broken, Peer
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.plugins.health import examine as health_of
from kubeqos.plugins.killable import Killable
from kubeqos.plugins.sockets import dial
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.attributes import DeviceAffinity, Isolation, MemoryAffinity, Siblings
from kubeqos.topology.claims.choosing import BY_ATTRIBUTES, WAYS, by_attributes, choose
from kubeqos.topology.claims.holdings import taken_by
from kubeqos.topology.claims.parameters import Group, Parameters

HEALTH_SECONDS = 5.0


def demanding(machine: Machine) -> Iterator[Parameters]:
    """Every attribute with more than one core, alone and beside a second group, as far as the machine has it."""
    core = max(map(len, machine.cores.values()))
    spans = len(machine.cpu_numa)
    groups = [Group(2 * core, 2 * core, exclusive=own, siblings=Siblings.REQUIRED) for own in (True, False)]
    groups += [Group(core + 1, core + 1, True, siblings=Siblings.PREFERRED), Group(3, 3, True, Siblings.DENIED)]
    groups += [Group(3, 3, exclusive=own) for own in (True, False)]
    groups += [Group(2, 5, exclusive=own) for own in (True, False)]
    for memory in MemoryAffinity:
        groups.append(Group(2 * spans, 2 * spans, True, memory=memory))
    groups += [Group(3, 3, True, Siblings.DENIED, MemoryAffinity.BIND_REQUIRED)]
    groups += [Group(2, 2, True, kind=kind) for kind in CoreKind]
    groups += [Group(2, 2, True, isolation=isolation) for isolation in Isolation]
    sizes = sorted({size for node in machine.nodes for size, count in node.hugepages.items() if count})
    groups += [Group(2, 2, True, huge_page_bytes=size) for size in sizes]
    for group in groups:
        yield Parameters((group,))
        yield Parameters((group, Group(2, 2)))
    for node in machine.cpu_numa:
        near = machine.numa_of(machine.numa_cpus[node])
        for device in DeviceAffinity:
            yield Parameters((Group(2, 2, True, device=device), Group(1, 1)), device_numa=near)


def _can_be_had(machine: Machine, asked: Parameters) -> bool:
    return not isinstance(by_attributes(machine, machine.online, asked), Unsatisfiable)


async def _attributes(peer: Peer) -> None:
    for asked in demanding(peer.machine):
        if _can_be_had(peer.machine, asked):
            try:
                await peer.granted(asked, peer.machine.online)
            except Broken as error:
                raise Broken(f"{asked.handle()}: {error}") from error


async def _two_pods(peer: Peer) -> None:
    """Two pods of two containers beside each other; one goes, and what it had can be had again."""
    one = Parameters((Group(1, 1, exclusive=True),))
    taken, pods = NO_CPUS, [(pod, container) for pod in ("pod-a", "pod-b") for container in ("main", "side")]
    held: dict[str, CpuSet] = {}
    for pod, container in pods:
        sets = await peer.beside(one, taken, pod, container)
        if sets is None and not held:
            raise Broken("refused the first of two pods on an empty machine")
        mine = taken_by(sets or ())
        if mine & taken:
            raise Broken(f"CPUs {mine & taken} of another container were given to {container} of {pod}")
        taken |= mine
        held[pod] = held.get(pod, NO_CPUS) | mine
    for claim in [claim for claim in peer.admitted if claim.pod == "pod-a"]:
        peer.admitted.remove(claim)
        await peer.remove(claim.claim_uid, claim.claim_name, "")
    again = await peer.beside(one, held.get("pod-b", NO_CPUS), "pod-c", "main")
    if again is None:
        raise Broken("refused what a pod that is gone had held")


async def _same_again(peer: Peer) -> None:
    """A manager that died before it stored the answer asks the same again; one removal then ends it."""
    asked = Parameters((Group(1, 1, exclusive=True),))
    await peer.clean()
    request = peer.asking(asked.handle(), peer.machine.online)
    for _ in range(3):
        answer = await peer.put(request)
        if answer.err:
            raise Broken(f"refused the same container when it was asked again: {answer.err}")
    del peer.admitted[1:]
    await peer.clean()
    whole = peer.asking(Parameters((Group(1, 1, exclusive=True),)).handle(), peer.machine.online)
    if (await peer.put(whole)).err:
        raise Broken("one removal did not give back what was admitted three times")


async def _restart(peer: Peer) -> None:
    """The manager comes back: it registers the driver anew, starts what was admitted and removes it by its id."""
    asked = Parameters((Group(1, 1, exclusive=True),))
    await peer.granted(asked, peer.machine.online)
    claim = peer.admitted.pop()
    await peer.register_again()
    start = pb.AddResourceRequest(cgroup="/kubepods", pod=claim.pod, container=claim.container, container_id="late")
    answer = await peer.call("CCIAddContainerResource", start)
    if answer.err:
        raise Broken(f"refused to add, after a restart, what it admitted before: {answer.err}")
    await peer.remove(claim.claim_uid, claim.claim_name, "late")
    await peer.granted(asked, peer.machine.online)


KILLED = "is killed and started again, and takes up where it was"


async def killed(program: Killable, peer: Peer) -> None:
    """The driver dies while a container of it runs. What it is asked next says what is available; the container is
    added again and removed; and everything can be had after that."""
    asked = Parameters((Group(1, 1, exclusive=True),))
    [given] = await peer.granted(asked, peer.machine.online)
    claim = peer.admitted.pop()
    await program.restart()
    peer.channel = dial(peer.socket)
    try:
        await peer.register_again()
        start = pb.AddResourceRequest(cgroup="/kubepods", pod=claim.pod, container=claim.container, container_id="on")
        if (answer := await peer.call("CCIAddContainerResource", start)).err:
            raise Broken(f"refused to add, after it was killed, what it admitted before: {answer.err}")
        if await peer.beside(asked, given.cpus, "pod-after", "main") is None:
            raise Broken("refused a second claim after it was killed, with all other cores available")
        await peer.clean()
        await peer.remove(claim.claim_uid, claim.claim_name, "on")
        await peer.granted(asked, peer.machine.online)
        await peer.clean()
    finally:
        await peer.channel.close(None)


NONSENSE_CPUS = ("0-", "x", "-5", "3-1", "0,,1", "\x00", "1" * 5000)
NONSENSE_HANDLES = (
    "", "[]", "null", "{}", '{"cores": []}', '{"cores": ["0"]}', '{"cores": ["-3"]}', '{"cores": ["2.5"]}',
    '{"cores": ["999999999999"]}', '{"cores": ["NaN"]}', '{"cores": ["1"], "cpu attributes": [["NONE-SUCH"]]}',
    '{"cores": ["1"], "cpu attributes": [["EXCLUSIVE", "SHARED"]]}', "{" * 2000, '{"cores": ["' + "9" * 100_000 + '"]}',
)  # fmt: skip


async def _nonsense(peer: Peer) -> None:
    """Whatever a broken manager sends is refused in words, and the driver lives on."""
    good = Parameters((Group(1, 1, exclusive=True),)).handle()
    online = str(peer.machine.online)
    hostile = [(good, cpus) for cpus in NONSENSE_CPUS] + [(handle, online) for handle in NONSENSE_HANDLES]
    for handle, cpus in hostile:
        what = f"claim {handle[:60]!r} with CPUs {cpus[:40]!r}"
        try:
            answer = await peer.put(peer.asking(handle, cpus))
        except RemoteError as error:
            raise Broken(f"{what} was answered by a failed call, not in words: {error.what}") from error
        if not answer.err:
            raise Broken(f"admitted {what} and answered {answer.rSet.cpuset!r}")
    await peer.granted(Parameters((Group(1, 1, exclusive=True),)), peer.machine.online)


async def _beyond(peer: Peer) -> None:
    """CPUs that the machine does not have are not handed out, even where a manager offers them."""
    last = max(peer.machine.online)
    stranger = CpuSet.from_ids(range(last + 1, last + 65))
    answer = await peer.put(peer.asking(Parameters((Group(1, 1, exclusive=True),)).handle(), stranger))
    if not answer.err:
        raise Broken(f"gave CPUs {answer.rSet.cpuset!r}, which this machine does not have")


async def _strange_names(peer: Peer) -> None:
    """Names are only names: empty ones and long ones are as good as others."""
    good = Parameters((Group(1, 1, exclusive=True),)).handle()
    for name in ("", "x" * 4096, "a/b c\u00e4"):
        request = peer.asking(good, peer.machine.online, container=name)
        answer = await peer.put(request)
        if not answer.err:
            await peer.clean()
    await peer.granted(replace(Parameters((Group(1, 1, exclusive=True),))), peer.machine.online)


async def _health(peer: Peer) -> None:
    problem = await health_of(peer.channel, HEALTH_SECONDS)
    if problem:
        raise Broken(f"is not well: {problem}")


async def _way(peer: Peer) -> None:
    """Who says how he chooses is believed by schedulers: he says yes where they expect it, and nowhere else."""
    said: dict[str, object] = {}
    await health_of(peer.channel, HEALTH_SECONDS, said.update)
    way = str(said.get(WAY_KEY, BY_ATTRIBUTES))
    if way not in WAYS:
        known = ", ".join(filter(None, WAYS))
        raise Broken(f"says that it chooses by {way!r}, which no scheduler knows (known: {known})")
    machine, asked, taken, owned = peer.machine, Parameters((Group(2, 2, exclusive=True),)), NO_CPUS, NO_CPUS
    for number in range(2) if way != BY_ATTRIBUTES else ():  # alone, and then where its first claim is
        taken |= machine.online - machine.cpus_in(machine.numa_of(owned)) if owned else NO_CPUS
        expected = choose(way, machine, machine.whole_cores(machine.online - taken), asked, owned)
        sets = await peer.beside(asked, taken, f"way-{number}", "main")
        if (sets is None) != isinstance(expected, Unsatisfiable):
            answer = "no" if sets is None else "yes"
            where = f"beside a claim that owns CPUs {owned}" if owned else "where nobody owns anything"
            raise Broken(f"says that it chooses by {way!r}, and says {answer} {where}")
        if sets is None:
            return
        taken, owned = taken | taken_by(sets), owned | CpuSet.union(one.cpus for one in sets)


HARD_CHECKS: tuple[tuple[str, Callable[[Peer], Awaitable[None]]], ...] = (
    ("honours every attribute with more than one core", _attributes),
    ("two pods of two containers hold their own", _two_pods),
    ("admits the same container again, and forgets it once", _same_again),
    ("lives on when its manager restarts", _restart),
    ("refuses nonsense in words, and lives on", _nonsense),
    ("hands out no CPU that the machine does not have", _beyond),
    ("takes any name", _strange_names),
    ("is well", _health),
    ("chooses as it says", _way),
)
