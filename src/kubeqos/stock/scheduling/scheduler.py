"""The scheduler of the embedded home on objects of a stock cluster: Nodes with NodeQOS, pods with annotations. Pure.

What the cluster's own scheduler places counts here as anybody's; pods that name this one are placed by the same rules
as in the embedded home.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.codec import decode_json, encode_json
from kubeqos.model.objects import PodView
from kubeqos.placement.preempt import DisruptionBudget
from kubeqos.placement.selectors import NamespaceLabels
from kubeqos.placement.shape import Shape
from kubeqos.scheduler.core import Profile, Scheduler
from kubeqos.scheduler.reading.claims import claim_state
from kubeqos.scheduler.reading.objects import ENVELOPE
from kubeqos.stock.asking import may_ask
from kubeqos.stock.cores.devices import only_claims
from kubeqos.stock.lens import Raw, is_native, native_node, native_pod

SCHEDULER_NAME = "kubeqos"


class StockScheduler(Scheduler):
    """Decides for every pod of a stock cluster that names one of its profiles."""

    def __init__(self, profiles: tuple[Profile, ...] = (Profile(SCHEDULER_NAME),)) -> None:
        super().__init__(profiles)
        self.claims.served = False  # all that there are here are of devices, which the cluster's own scheduler gives
        self._nodes: dict[str, bytes] = {}
        self._reports: dict[str, bytes] = {}

    @property
    def namespaces(self) -> NamespaceLabels:
        return self._namespaces

    @property
    def budgets(self) -> Sequence[DisruptionBudget]:
        return self._preemptor.budgets

    def node_changed(self, raw: bytes | None, name: str, now: float) -> None:
        _keep(self._nodes, name, raw)
        super().node_changed(self._with_report(name), name, now)

    def report_changed(self, raw: bytes | None, name: str, now: float) -> None:
        """A NodeQOS, which has the name of its Node, appeared, changed or went away."""
        _keep(self._reports, name, raw)
        if name in self._nodes:
            super().node_changed(self._with_report(name), name, now)

    def pod_changed(self, raw: bytes | None, uid: str, now: float) -> None:
        if raw is not None and may_ask(raw):
            raw = encode_json(native_pod(decode_json(raw)))
        super().pod_changed(raw, uid, now)

    def shape_of(self, pod: Raw) -> Shape:
        """What a pod asks for that somebody else places; its devices are theirs to give."""
        native = only_claims(native_pod(pod), ())
        view = PodView.of(native)
        raw = encode_json(native)
        return self._shapes.shape_of(raw, ENVELOPE.decode(raw), claim_state(view, {}))

    def _with_report(self, name: str) -> bytes | None:
        raw, report = self._nodes.get(name), self._reports.get(name)
        if raw is None or report is None:
            return raw
        node = decode_json(raw)
        return raw if is_native(node) else encode_json(native_node(node, decode_json(report)))


def _keep(known: dict[str, bytes], name: str, raw: bytes | None) -> None:
    if raw is None:
        known.pop(name, None)
    else:
        known[name] = raw
