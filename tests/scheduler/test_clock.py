"""Clocks on walls are set back: nobody waits for that longer than it was told to."""

from __future__ import annotations

import asyncio

from kubeqos.client.errors import ApiError
from kubeqos.codec import encode_json
from kubeqos.controllers.workloads.daemonsets import FIRST_RETRY, LONGEST_RETRY, FailedPods
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from tests.client.test_informer import until
from tests.scheduler.test_window import Stubborn, pods


async def test_a_binding_that_failed_is_tried_again_however_the_clock_is_set_meanwhile() -> None:
    api, wall = Stubborn(), [1_700_000_000.0]
    api.refusal = ApiError(503, "ServiceUnavailable", "away")
    service = SchedulerService(api, Scheduler(), wall=lambda: wall[0])  # type: ignore[arg-type]
    status = {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "100"}}
    service.core.node_changed(encode_json({"metadata": {"name": "n1"}, "status": status}), "n1", service._clock())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(service._decide(tasks))
        pods(service, 1)
        api.let_go.set()
        await until(lambda: any("binding failed" in line for line in service.story("u1")))
        told = float(service.story("u1")[-1].split()[0])
        assert abs(told - wall[0]) < 60, "what is told has the time of the wall"
        wall[0] -= 3600
        await until(lambda: api.binding == ["p1", "p1"])
        running.cancel()


def test_a_daemon_pod_that_failed_is_replaced_however_the_clock_is_set_meanwhile() -> None:
    failures = FailedPods()
    assert failures.wait("n1", 1, 10_000.0) == 0.0
    assert failures.wait("n1", 1, 10_000.0) == FIRST_RETRY
    assert failures.wait("n1", 1, 10_000.0 - 2 * LONGEST_RETRY) == 0.0
