"""Claims on a node (KEP-3675): whether its compute driver would serve a pod, by what the node publishes of its cores.

A node publishes its machine and who holds which CPUs by claims. Pods that it has not told of yet are put where the
built-in drivers would put them (`topology.claims.serving`), so that a burst is not sent where only its first pods fit;
pods that have gone give back what they held. A driver of another maker that does not say how it chooses may choose
otherwise, within what attributes promise; what it refuses then is remembered (`scheduler.refusals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeqos.model.annotations.topologysummary import ComputeSummary
from kubeqos.model.machine import Machine
from kubeqos.placement.shape import Shape
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.claims.holdings import Holdings
from kubeqos.topology.claims.serving import ComputeNeed, Served, Terms, serve
from kubeqos.topology.claims.summary import holdings_of, terms_of

Answer = Served | Unsatisfiable
_KEPT = 1024


class ServedMemo:
    """Answers of nodes on which nobody holds anything: one for all that are alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, Terms, ComputeNeed], tuple[Machine, Answer]] = {}

    def serve(self, books: Holdings, need: ComputeNeed, terms: Terms) -> Answer:
        """What a node says to a pod."""
        if books.entries:
            return serve(books, "", need, terms)
        key = id(books.machine), books.reserved.mask, terms, need
        known = self._known.get(key)
        if known is None or known[0] is not books.machine:  # the machine is kept, so that its id stays its own
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[key] = books.machine, serve(books, "", need, terms)
        return known[1]


@dataclass(slots=True)
class NodeCompute:
    """The claims of one node as they will be once everybody who is on it has been let in."""

    books: Holdings
    terms: Terms
    unforeseen: int = 0
    """CPUs that claims will keep beyond what is requested, or give back, and that `allocatable` does not tell yet."""
    answers: dict[ComputeNeed, Answer] = field(default_factory=dict)

    def answer(self, need: ComputeNeed, memo: ServedMemo) -> Answer:
        """What the node would say to a pod now."""
        found = self.answers.get(need)
        if found is None:
            found = self.answers[need] = memo.serve(self.books, need, self.terms)
        return found


def compute_now(machine: Machine, summary: ComputeSummary, pods: Mapping[str, Shape]) -> NodeCompute | None:
    """The node's books, with pods that it has not told of where they will be, and without those that are gone."""
    told = holdings_of(machine, summary, summary.held.keys())
    books = holdings_of(machine, summary, pods.keys() & summary.held.keys())
    if told is None or books is None:
        return None
    terms = terms_of(summary)
    for uid, shape in pods.items():
        if shape.compute is not None and uid not in summary.held:
            answer = serve(books, uid, shape.compute, terms)
            if isinstance(answer, Served):  # the node refuses the others, and then they hold nothing
                books = answer.holdings
    return NodeCompute(books, terms, books.kept - told.kept)


def is_settled(summary: ComputeSummary, pods: Mapping[str, object], claimants: set[str]) -> bool:
    """Whether the node has told of everybody: `allocatable` is then what pods without claims may use."""
    return claimants <= summary.held.keys() and summary.held.keys() <= pods.keys()
