"""Keys in order: the same answers as a sorted list, whatever is added and removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.store import index
from kubeqos.store.index import KeyIndex, prefix_end

PREFIXES = st.text(alphabet="ab/\ud7ff\ue000\U0010ffff", max_size=4)
KEYS = PREFIXES.filter(bool)


@given(
    start=st.sets(KEYS),
    changes=st.lists(KEYS, max_size=60),
    prefix=PREFIXES,
    after=PREFIXES,
    chunk=st.sampled_from([1, 2, 5]),
)
def test_scan_and_count_agree_with_a_sorted_list(
    start: set[str], changes: list[str], prefix: str, after: str, chunk: int
) -> None:
    original, index.CHUNK = index.CHUNK, chunk  # short chunks: every example splits and empties some
    try:
        keys = KeyIndex(sorted(start))
        model = set(start)
        for key in changes:
            if key in model:
                keys.remove(key)
            else:
                keys.add(key)
            model ^= {key}
        expected = sorted(key for key in model if key.startswith(prefix) and key > after)
        assert list(keys.scan(prefix, after)) == expected
        assert keys.count(prefix, after) == len(expected)
        assert len(keys) == len(model)
    finally:
        index.CHUNK = original


@given(prefix=PREFIXES, suffix=PREFIXES)
def test_prefix_end_is_above_the_prefix_and_below_the_rest(prefix: str, suffix: str) -> None:
    end = prefix_end(prefix)
    if end is None:
        assert prefix.strip("\U0010ffff") == ""
    else:
        assert prefix + suffix < end
        assert not end.startswith(prefix)
        end.encode()
