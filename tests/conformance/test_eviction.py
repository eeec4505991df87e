"""The order in which Kubernetes evicts pods (`eviction_rank`), reproduced by ranking `upstream`."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from kubeqos.model.objects import PodSpec, convert
from kubeqos.rules.qos.eviction import Candidate, ContainerUsage, Filesystems, PodUsage, Ranking, rank
from tests.conformance.recorded import cases

LOCAL_VOLUMES = ("emptyDir", "hostPath", "configMap")


def usage(pod: dict[str, Any]) -> PodUsage | None:
    stats = pod["stats"]
    if stats is None:
        return None
    local = {
        volume["name"]
        for volume in pod["spec"].get("volumes", ())
        if any(kind in volume for kind in LOCAL_VOLUMES) and (volume.get("emptyDir") or {}).get("medium") != "Memory"
    }

    def pair(value: list[int] | None) -> tuple[int, int] | None:
        return None if value is None else (value[0], value[1])

    return PodUsage(
        stats.get("memory_working_set"),
        stats.get("processes"),
        [ContainerUsage(c["name"], pair(c.get("rootfs")), pair(c.get("logs"))) for c in stats["containers"]],
        [(name, size, inodes) for name, size, inodes in stats.get("volumes", ()) if name in local],
    )


@pytest.mark.parametrize("case", cases("eviction_rank"), ids=lambda case: str(case["id"]))
def test_order(case: dict[str, Any]) -> None:
    candidates = [Candidate.of(pod["name"], convert(pod["spec"], PodSpec), usage(pod)) for pod in case["pods"]]
    filesystems = Filesystems(case["with_imagefs"], case["split_imagefs"])
    ranked = rank(case["signal"], candidates, Ranking.UPSTREAM, filesystems)
    groups = [
        sorted(place.candidate.name for place in places) for _, places in groupby(ranked, key=lambda place: place.key)
    ]
    assert groups == [sorted(group) for group in case["ranked"]]
