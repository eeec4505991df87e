"""Looking at the bytes before decoding never hides an object that a selector selects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.apiserver.present.options import ListOptions
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.objects import renderer
from kubeqos.apiserver.registry.reads import matches, needles
from kubeqos.model.selectors import FieldSelector, LabelSelector, Requirement

WORDS = st.sampled_from(["web", "node-1", "1", "true", "false", "", "a/b", "é", "Running", "0"])
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": WORDS, "labels": st.dictionaries(WORDS, WORDS, max_size=2), "uid": st.just("u")}
        ),
        "spec": st.fixed_dictionaries({}, optional={"nodeName": WORDS, "hostNetwork": st.booleans()}),
        "status": st.fixed_dictionaries({}, optional={"phase": WORDS}),
    }
)
FIELDS = st.tuples(
    st.sampled_from(["metadata.name", "spec.nodeName", "spec.hostNetwork", "status.phase"]), WORDS, st.booleans()
)
LABELS = st.builds(
    Requirement,
    WORDS,
    st.sampled_from(["=", "!=", "in", "notin", "exists", "!"]),
    st.frozensets(WORDS, min_size=1, max_size=2),
)


@given(pod=PODS, fields=st.lists(FIELDS, max_size=2), labels=st.lists(LABELS, max_size=2))
def test_what_matches_contains_every_needle(pod: Any, fields: list[Any], labels: list[Requirement]) -> None:
    kind = kind_named("Pod")
    options = ListOptions(LabelSelector(tuple(labels)), FieldSelector(tuple(fields)))
    stored = renderer(kind, pod)(7)
    if matches(kind, pod, options):
        assert all(word in stored for word in needles(options))
