"""Faster ways to the same answers: objects stamped from stencils, bindings spliced, requests run in batches.

Guests of the house: `handlers` lets them register and nobody else knows them. Whatever is in any way out of the
ordinary they leave to the ordinary way, every refusal included. The folder can be deleted: the server then gives the
same answers and stores the same bytes, only slower (`tests/apiserver/shortcuts/test_without.py` does it).
"""

from __future__ import annotations

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.hooks import Hooks
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.shortcuts.batching import run_together
from kubeqos.apiserver.shortcuts.binding import SplicedBinding
from kubeqos.apiserver.shortcuts.eventstencils import EventStencils
from kubeqos.apiserver.shortcuts.podstencils import PodStencils
from kubeqos.apiserver.shortcuts.stamping import Stamping


def register(hooks: Hooks, core: Core, chain: Chain) -> None:
    """Hang in every shortcut there is, for the kinds that clients create by the hundred."""
    hooks.create["Pod"] = Stamping(core, chain, PodStencils(core, chain))
    hooks.create["Event"] = Stamping(core, chain, EventStencils(core, chain))
    hooks.bind = SplicedBinding(core)
    hooks.together = run_together
