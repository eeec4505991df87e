"""Which images go, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.node.pressure.imagegc import Image, ImageGc, ImageGcSettings, Removal
from kubeqos.node.pressure.samples import Supply

GB = 1_000_000_000
FULL = Supply(10 * GB, 100 * GB)  # 90 %


def image(name: str, gigabytes: int = 4, *, pinned: bool = False) -> Image:
    return Image(f"sha256:{name}", gigabytes * GB, frozenset({f"{name}:1"}), pinned)


def gone(removal: Removal) -> list[str]:
    return [one.id.removeprefix("sha256:") for one, _ in removal.images]


def test_the_longest_unused_go_first_and_only_as_many_as_needed() -> None:
    gc = ImageGc()
    images = [image(name) for name in "abcde"]
    gc.look(images, {"a:1", "b:1", "c:1", "d:1", "sha256:e"}, 0)
    gc.look(images, {"a:1", "b:1", "c:1", "sha256:e"}, 100)  # d is idle since 100
    gc.look(images, {"b:1", "sha256:e"}, 200)  # a and c since 200
    gc.look(images, {"sha256:e"}, 300)
    found = gc.collect(FULL, 1000)
    assert gone(found) == ["d", "a", "c"]  # 10 GB are wanted back: 90 % down to 80 %
    assert (found.wanted_bytes, found.freed_bytes, found.shortfall) == (10 * GB, 12 * GB, "")


def test_below_the_high_threshold_nothing_goes() -> None:
    gc = ImageGc()
    gc.look([image("a")], (), 0)
    assert gone(gc.collect(Supply(16 * GB, 100 * GB), 1000)) == []  # 84 %
    assert gone(gc.collect(Supply(15 * GB, 100 * GB), 1000)) == ["a"]  # 85 %
    assert gone(gc.collect(None, 1000)) == []


def test_what_has_just_come_is_spared_even_under_pressure() -> None:
    gc = ImageGc()
    gc.look([image("old")], (), 0)
    gc.look([image("old"), image("new")], (), 100)
    assert gone(gc.reclaim(130)) == ["old"] and gone(gc.reclaim(220)) == ["old", "new"]
    assert gone(ImageGc().reclaim(0)) == []


def test_used_and_pinned_images_stay_whatever_happens() -> None:
    gc = ImageGc()
    gc.look([image("used"), image("pause", pinned=True), image("free", 1)], {"used:1"}, 0)
    found = gc.collect(FULL, 1000)
    assert gone(found) == ["free"]
    assert found.shortfall == (
        "Failed to garbage collect required amount of images. Attempted to free "
        "10000000000 bytes, but only found 1000000000 bytes eligible to free."
    )


def test_with_a_maximum_age_unused_images_go_from_an_empty_disk() -> None:
    gc = ImageGc(ImageGcSettings(maximum_age_seconds=3600))
    empty = Supply(90 * GB, 100 * GB)
    gc.look([image("a"), image("b")], {"b:1"}, 0)
    gc.look([image("a"), image("b")], (), 1800)
    assert gone(gc.collect(empty, 3600)) == []
    found = gc.collect(empty, 3700)
    assert gone(found) == ["a"] and found.images[0][1] == "age"
    assert gone(gc.collect(empty, 5500)) == ["a", "b"]


def test_a_high_threshold_of_100_leaves_it_to_disk_pressure() -> None:
    gc = ImageGc(ImageGcSettings(high_percent=100))
    gc.look([image("a")], (), 0)
    assert gone(gc.collect(Supply(0, 100 * GB), 1000)) == [] and gone(gc.reclaim(1000)) == ["a"]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8), st.integers(0, 100))
def test_enough_goes_but_nothing_that_is_used_and_nothing_in_vain(found: list[tuple[int, bool]], free: int) -> None:
    images = [image(f"i{n}", size) for n, (size, _) in enumerate(found)]
    used = {f"i{n}:1" for n, (_, busy) in enumerate(found) if busy}
    gc = ImageGc()
    gc.look(images, used, 0)
    removal = gc.collect(Supply(free * GB, 100 * GB), 1000)
    freed = [one for one, _ in removal.images]
    assert not any(one.names & used for one in freed)
    assert removal.freed_bytes >= removal.wanted_bytes or len(freed) == len(images) - len(used)
    if freed:
        assert removal.freed_bytes - freed[-1].size_bytes < removal.wanted_bytes
