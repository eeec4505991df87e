"""The past of objects: any state that was, as long as it is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.dashboard.history import History, Key

VALUES = st.one_of(st.none(), st.binary(max_size=4))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), VALUES), max_size=30))
def test_every_past_state_comes_back(changes: list[tuple[str, bytes | None]]) -> None:
    history, now, past = History(began=0), {}, [(0.0, {})]
    for at, (name, value) in enumerate(changes, start=1):
        key: Key = ("Pod", name)
        history.note(float(at), key, now.get(key))
        now = {**now, key: value} if value is not None else {k: v for k, v in now.items() if k != key}
        past.append((float(at), now))
    for at, then in past:
        found = dict(now)
        for key, old in history.undone(at).items():
            found.pop(key, None)
            found |= {} if old is None else {key: old}
        assert found == then


def test_the_past_is_as_long_as_an_hour_and_as_large_as_it_may_be() -> None:
    history = History(began=0, seconds=60, most_bytes=10_000)
    history.note(10, ("Node", "a"), b"x")
    history.note(100, ("Node", "a"), b"y")
    assert history.began == 40
    assert history.changes() == [(60, 1)]
    for at in range(101, 200):
        history.note(at, ("Node", "a"), bytes(str(at) * 100, "ascii"))
    assert 150 < history.began < 199  # more than fits: shorter, and it says so
    assert dict(history.undone(history.began)).keys() == {("Node", "a")}
