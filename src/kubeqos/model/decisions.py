"""The decision record of a pod: what was decided about it, by whom and why, as typed values.

Who decides (the API server, a scheduler, a node) writes one of these; the API server keeps them (`apiserver.decisions`)
and serves them as `PodDecisions` of the group `decisions.kubeqos.io`; `kubeqos why` and the dashboard read them. The
form on the wire is said here alone. Readers skip fields and types that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kubeqos.codec import encode_json, typed_decoder

VERSION = "decisions.kubeqos.io/v1"
REFUSED = "refused:"
"""How the uid of a record begins whose pod was never taken, and so has none."""
MOST_DECISIONS = 64
"""Of one pod. Of more the oldest go, but never the first of a type."""
MOST_NAMED = 100
"""Pods in a ranking: a node has seldom more."""
MOST_HINTS, MOST_MERGES = 16, 8
"""Sets of NUMA nodes of one offer, and merges of one pod: a machine of eight NUMA nodes has 255 sets."""
LONGEST = 16 << 10
"""Bytes of one decision."""


class PodRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod by name. An empty name is a pod of a namespace that the reader may not see."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else "a pod of another namespace"


class Decision(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str, rename="camel", omit_defaults=True
):
    """What all of them say: when, by whom, and how often it was decided again since."""

    at: str = ""
    by: str = ""
    times: int = 1
    last: str = ""
    """When it was decided the last time, where `times` is more than one."""


# ---- The API server


class QuotaCharge(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quota that counts the pod: by which scopes, what it was charged (or would be) and what is left."""

    quota: str
    scopes: tuple[str, ...] = ()
    """None: the quota counts every pod."""
    charged: dict[str, str] = {}
    left: dict[str, str] = {}
    """After it; where the quota refuses, what there is to be had."""
    refuses: str = ""
    """Why it refuses; empty where it agrees."""


class ClassChoice(msgspec.Struct, frozen=True, omit_defaults=True, rename={"cls": "class"}):
    """Who decided a QoS class (KEP-3008): the container's own request, the pod's, or a LimitRange."""

    resource: str
    cls: str
    source: str
    container: str = ""
    """Empty: the class is the whole pod's."""


class Admission(Decision, frozen=True):
    """The API server took the pod."""

    limit_ranges: tuple[str, ...] = ()
    """What LimitRanges filled in."""
    classes: tuple[ClassChoice, ...] = ()
    quotas: tuple[QuotaCharge, ...] = ()


class Refusal(Decision, frozen=True):
    """The API server did not take the pod."""

    reason: str
    message: str
    because: tuple[str, ...] = ()
    """Every reason, where there are more than the message tells."""
    quotas: tuple[QuotaCharge, ...] = ()


# ---- The scheduler


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The points of a node, and what they are made of."""

    node: str
    points: int
    parts: dict[str, int] = {}


class Placement(Decision, frozen=True):
    """The scheduler chose a node."""

    node: str
    because: str = ""
    best: tuple[NodeScore, ...] = ()
    """The best three, the winner first."""


class RefusedNodes(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many nodes give a reason, and some of them."""

    reason: str
    count: int
    nodes: tuple[str, ...] = ()


class Waiting(Decision, frozen=True):
    """The scheduler found no node."""

    message: str
    refused: tuple[RefusedNodes, ...] = ()
    nearest: tuple[str, ...] = ()
    """For what no node has enough of: what it needs, and who has the most."""
    nominated: str = ""
    """The node that is being freed for it."""


class Preemption(Decision, frozen=True):
    """Other pods have to go for this one."""

    node: str
    victims: tuple[PodRef, ...]
    because: str = ""


class Preempted(Decision, frozen=True):
    """This pod has to go for another."""

    node: str
    preemptor: PodRef
    because: str = ""


# ---- The node


class HintOffer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a manager of a node could give a resource: sets of NUMA nodes, `anywhere` for all of them alike."""

    resource: str
    by: str
    """The manager, or `plugin NAME`."""
    preferred: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    """Where it could be given, too, but less well."""
    more: int = 0
    """How many wider sets were offered beside these."""
    indifferent: bool = False
    """It does not care; without this, no set at all means that no placement is possible."""


class HintMerge(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One merge of hints by the topology policy: for which containers, from what, with which result."""

    containers: tuple[str, ...]
    policy: str
    result: str
    """The NUMA nodes that everything is to be given on, or `anywhere`."""
    preferred: bool = False
    admitted: bool = True
    offers: tuple[HintOffer, ...] = ()
    by_resource: dict[str, str] = {}
    """Policy numeric gives each resource a result of its own."""
    forced: tuple[str, ...] = ()
    """Who kept it from a better one, and how."""


class GivenResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource of a container: what it was given, and who chose that."""

    resource: str
    given: str
    by: str


class ContainerGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the managers of a node gave a container."""

    name: str
    cpus: str = ""
    exclusive: str = ""
    mems: str = ""
    because: str = ""
    resources: tuple[GivenResource, ...] = ()


class NodeAdmission(Decision, frozen=True, omit_defaults=True):
    """The node took the pod in, or did not."""

    node: str
    admitted: bool
    reason: str = ""
    message: str = ""
    alignment: str = ""
    """What the topology policy found."""
    hints: tuple[HintMerge, ...] = ()
    containers: tuple[ContainerGrant, ...] = ()


class RankedPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod of the node when one had to go: its place in line, or why it stays."""

    pod: PodRef
    because: str
    place: int = 0
    """From 1; 0 stays."""


class Eviction(Decision, frozen=True):
    """The node ended the pod for good."""

    node: str
    reason: str
    message: str
    because: str = ""
    """Why this one."""
    signal: str = ""
    threshold: str = ""
    available: str = ""
    ranking: tuple[RankedPod, ...] = ()


class Restart(Decision, frozen=True):
    """A container ended and is started again, or is not."""

    node: str
    container: str
    reason: str
    exit_code: int
    restarts: int = 0
    message: str = ""
    memory_limit: str = ""
    memory_use: str = ""
    """The last that was measured before the end; where its limit killed it, the limit was reached."""


# ---- Of pods that run


class ResizedContainer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a container's resources was asked to change; of the pod's own the name is empty."""

    name: str
    before: dict[str, str] = {}
    """Such as `requests.cpu`; what was not there is left out."""
    after: dict[str, str] = {}


class Resize(Decision, frozen=True):
    """A pod's resources are to change in place: the API server tells what was asked, its node what comes of it."""

    outcome: str
    """`Asked`, `Given`, or why the node does not: `Deferred` until there is room, `Infeasible` for good."""
    node: str = ""
    containers: tuple[ResizedContainer, ...] = ()
    message: str = ""


class Disruption(Decision, frozen=True):
    """Somebody outside its node ends the pod: a taint, the eviction API, or the sweeping of pods of lost nodes."""

    reason: str
    """That of the condition DisruptionTarget: `DeletionByTaintManager`, `EvictionByEvictionAPI`, `DeletionByPodGC`."""
    message: str = ""
    node: str = ""
    taints: tuple[str, ...] = ()
    """Of its node, those with NoExecute that it does not tolerate, or not for longer."""
    asked_by: str = ""
    """Who asked for the eviction."""
    budget: str = ""
    """The disruption budget that allowed it; empty where none counts the pod."""


AnyDecision = (
    Admission
    | Refusal
    | Placement
    | Waiting
    | Preemption
    | Preempted
    | NodeAdmission
    | Eviction
    | Restart
    | Resize
    | Disruption
)


# ---- On the wire


class Entry(msgspec.Struct, frozen=True):
    """One decision about one pod, on its way to the record."""

    pod: PodRef
    decision: AnyDecision


class DecisionBatch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a component tells at once."""

    entries: tuple[Entry, ...] = ()
    api_version: str = VERSION
    kind: str = "DecisionBatch"


class PodDecisions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The record of one pod: what was decided, oldest first, and the pod itself once it is gone."""

    pod: PodRef
    decisions: tuple[AnyDecision, ...] = ()
    node: str = ""
    gone: str = ""
    """When the pod was deleted, or not even taken."""
    object: dict[str, Any] | None = None

    def wire(self) -> dict[str, Any]:
        """As an object of the API."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        ref = told.pop("pod")
        metadata = {key: ref[key] for key in ("name", "namespace", "uid") if ref.get(key)}
        return {"kind": "PodDecisions", "apiVersion": VERSION, "metadata": metadata, **told}

    @classmethod
    def of(cls, raw: dict[str, Any]) -> PodDecisions:
        """From an object of the API; what a newer server says beyond this is left out."""
        known = [one for one in raw.get("decisions") or () if one.get("type") in TYPES]
        ref = {key: raw.get("metadata", {}).get(key, "") for key in ("namespace", "name", "uid")}
        return msgspec.convert({**raw, "pod": ref, "decisions": known}, cls)


TYPES = frozenset(one.__name__ for one in AnyDecision.__args__)
read_batch = typed_decoder(DecisionBatch)
read_decisions = typed_decoder(tuple[AnyDecision, ...])


def json_schema() -> dict[str, Any]:
    """The JSON schema of a record, from these types."""
    return msgspec.json.schema(PodDecisions)


def merged(known: Sequence[AnyDecision], new: AnyDecision) -> tuple[AnyDecision, ...]:
    """A record with one decision more. The same as the last of its type only counts; the record stays bounded."""
    for index in range(len(known) - 1, -1, -1):
        before = known[index]
        if type(before) is type(new):
            if _content(before) == _content(new):
                again = replace(before, times=before.times + 1, last=new.at)
                return (*known[:index], again, *known[index + 1 :])
            break
    found = [*known, new]
    if len(found) > MOST_DECISIONS:
        kinds: set[type] = set()
        for index, one in enumerate(found):
            if type(one) in kinds:
                del found[index]
                break
            kinds.add(type(one))
    return tuple(found)


def _content(one: AnyDecision) -> AnyDecision:
    return replace(one, at="", last="", times=1)


def fits(one: AnyDecision) -> bool:
    """Whether a decision is short enough to be kept."""
    return len(encode_json(one)) <= LONGEST


def seen_by(record: PodDecisions, may_see: Callable[[str], bool]) -> PodDecisions:
    """The record for one who may not see every namespace: pods of the others lose their names."""

    def shown(ref: PodRef) -> PodRef:
        return ref if not ref.name or ref.namespace == record.pod.namespace or may_see(ref.namespace) else PodRef()

    def censored(one: AnyDecision) -> AnyDecision:
        if isinstance(one, Preemption):
            return replace(one, victims=tuple(map(shown, one.victims)))
        if isinstance(one, Preempted):
            return replace(one, preemptor=shown(one.preemptor))
        if isinstance(one, Eviction):
            return replace(one, ranking=tuple(replace(each, pod=shown(each.pod)) for each in one.ranking))
        return one

    return replace(record, decisions=tuple(map(censored, record.decisions)))
