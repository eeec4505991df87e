"""Every kind that is stored is compared with a real server by a full object of it, or says why not."""

from __future__ import annotations

from kubeqos.model.kinds import RESOURCES
from tests.stock import samples


def test_every_stored_kind_has_a_sample() -> None:
    shown = {(version, kind) for version, kind, _ in samples.SAMPLES}
    stored = {(each.api_version, each.kind) for each in RESOURCES if each.stored}
    assert stored - shown == set(samples.WITHOUT), "a kind has a sample, or a reason why not"


def test_a_sample_is_of_a_kind_that_is_stored() -> None:
    stored = {(each.api_version, each.kind) for each in RESOURCES if each.stored}
    assert {(version, kind) for version, kind, _ in samples.SAMPLES} <= stored
