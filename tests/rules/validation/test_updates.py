"""What may not become of objects: the words are those of a real server (tests/stock/test_same_kinds.py)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.validation import batch, claims, definitions
from kubeqos.rules.validation.stored import networking, storage

Raw = dict[str, Any]
META = {"name": "x", "resourceVersion": "1"}


def refused(check: Any, new: Raw, old: Raw) -> set[tuple[str, str]]:
    """Field and detail of what is wrong with a change."""
    out: list[FieldError] = []
    check(out, {"metadata": META, **new}, {"metadata": META, **old})
    return {(one.field, one.detail) for one in out}


FIXED = "field is immutable"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (["10.0.0.0/16"], ["10.0.0.0/16"], set()),
        (["10.0.0.0/16"], ["10.0.0.0/16", "fd00::/64"], set()),
        (["10.0.0.0/16"], ["10.1.0.0/16"], {("spec.cidrs[0]", FIXED)}),
        (["10.0.0.0/16"], [], {("spec.cidrs", FIXED)}),
        (["10.0.0.0/16", "fd00::/64"], ["10.0.0.0/16"], {("spec.cidrs", FIXED)}),
    ],
)
def test_ranges_of_services(before: list[str], after: list[str], wanted: set[tuple[str, str]]) -> None:
    new, old = {"spec": {"cidrs": after}}, {"spec": {"cidrs": before}}
    assert refused(networking.check_cidrs_change, new, old) == wanted


def place(key: str) -> Raw:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": ["a"]}]}
    return {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}


def test_the_place_of_a_volume_changes_from_an_old_label_to_its_new_name_alone() -> None:
    beta, stable = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
    assert refused(storage.check_volume_change, place(stable), place(beta)) == set()
    kept = ("nodeAffinity", "field is immutable, except for updating from beta label to GA")
    assert refused(storage.check_volume_change, place("other"), place(beta)) == {kept}
    assert refused(storage.check_volume_change, place(beta), place(stable)) == {kept}


VERSION = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
NAMES = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}


def defined(*versions: Raw, **names: str) -> Raw:
    conversion = {"strategy": "None"}
    spec = {"group": "x.example", "scope": "Cluster", "names": {**NAMES, **names}, "conversion": conversion}
    return {"spec": {**spec, "versions": list(versions)}, "status": {"storedVersions": ["v1"]}}


def test_what_was_stored_in_a_version_can_be_read_for_ever() -> None:
    newer = {**VERSION, "name": "v2"}
    moved = defined({**VERSION, "storage": False}, newer)
    assert refused(definitions.check_definition_update, moved, defined(VERSION)) == set()
    [(field, why)] = refused(definitions.check_definition_update, defined(newer), defined(VERSION))
    assert field == "status.storedVersions[0]" and why.startswith("missing from spec.versions; v1 was previously")
    renamed = refused(definitions.check_definition_update, defined(VERSION, plural="others"), defined(VERSION))
    assert renamed == {("spec.names.plural", FIXED)}


def claim(size: str = "1Gi", phase: str = "Pending", **spec: Any) -> Raw:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeName": "v"}
    return {
        "metadata": {**META, "namespace": "default"},
        "spec": {**storage, "storageClassName": "s", "volumeMode": "Filesystem", **spec},
        "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
    }


def test_a_claim_grows_when_it_is_bound_and_keeps_the_rest() -> None:
    bound = claim(phase="Bound")
    assert refused(claims.check_volume_claim_update, claim("2Gi", "Bound"), bound) == set()
    smaller = ("spec.resources.requests.storage", "field can not be less than status.capacity")
    assert refused(claims.check_volume_claim_update, claim("1Mi", "Bound"), bound) == {smaller}
    fields = {field for field, _ in refused(claims.check_volume_claim_update, claim("1Mi"), claim())}
    assert fields == {"spec", "spec.resources.requests.storage"}
    fields = {field for field, _ in refused(claims.check_volume_claim_update, claim(volumeMode="Block"), claim())}
    assert fields == {"spec", "volumeMode"}


def test_where_a_volume_begins_stands_in_both_fields() -> None:
    snapshot = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    for field in ("dataSource", "dataSourceRef"):
        assert claims.known_sources({field: snapshot}, None) == {"dataSource": snapshot, "dataSourceRef": snapshot}
    other = {"apiGroup": "x.example", "kind": "Picture", "name": "p"}
    assert claims.known_sources({"dataSource": other}, None) == {}
    assert claims.known_sources({"dataSourceRef": other}, None) == {"dataSource": other, "dataSourceRef": other}
    afar = {**snapshot, "namespace": "n"}
    assert claims.known_sources({"dataSourceRef": afar}, None) == {"dataSourceRef": afar}


def test_completions_change_with_the_parallelism_of_an_indexed_job_alone() -> None:
    def job(completions: int, parallelism: int, mode: str = "Indexed") -> Raw:
        return {"spec": {"completions": completions, "parallelism": parallelism, "completionMode": mode}}

    assert refused(batch.check_job_change, job(3, 3), job(2, 2)) == set()
    tandem = ("spec.completions", "can only be modified in tandem with spec.parallelism")
    assert refused(batch.check_job_change, job(3, 2), job(2, 2)) == {tandem}
    plain = "NonIndexed"
    assert refused(batch.check_job_change, job(3, 3, plain), job(2, 2, plain)) == {("spec.completions", FIXED)}
