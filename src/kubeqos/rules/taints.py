"""Taints and tolerations: which pods a tainted node keeps off. Placement, controllers and nodes ask here."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.model.objects import Taint, Toleration

KEEPS_OFF = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; no key with Exists covers all, no effect covers all effects."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: tuple[str, ...] = KEEPS_OFF
) -> Taint | None:
    """The first taint with one of these effects that no toleration covers, if any."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None
