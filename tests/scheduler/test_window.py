"""The window of bindings on their way follows the server: it grows while answers come soon, and shrinks otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.client.api import Submission
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import PODS
from kubeqos.codec import encode_json
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from kubeqos.scheduler.window import FIRST, GOOD_SECONDS, LEAST, MOST, Window
from tests.client.test_informer import until


def after(window: Window, *answers: tuple[float, bool]) -> int:
    for seconds, pushed_back in answers:
        window.sent(LEAST)
        window.answered(LEAST, seconds, pushed_back=pushed_back)
    return window.size


def test_a_server_that_keeps_up_gets_more_up_to_a_bound() -> None:
    assert after(Window(), (0.01, False)) > FIRST
    assert after(Window(), *[(0.01, False)] * 1000) == MOST


def test_a_slow_server_gets_fewer_and_one_that_pushes_back_half() -> None:
    assert LEAST < after(Window(), (3 * GOOD_SECONDS, False)) < FIRST
    assert after(Window(), (0.01, True)) == FIRST // 2
    assert after(Window(), *[(0.01, True)] * 100) == LEAST
    assert after(Window(), (1.5 * GOOD_SECONDS, False)) == FIRST  # neither good nor bad


def test_what_was_sent_before_it_shrank_does_not_shrink_it_again() -> None:
    window = Window()
    for _ in range(4):
        window.sent(16)
    for _ in range(4):
        window.answered(16, 0.01, pushed_back=True)
    assert window.size == FIRST // 2


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 5), st.booleans()), max_size=60))
def test_it_never_lets_more_out_than_its_size_nor_stops_for_good(turns: list[tuple[int, float, bool]]) -> None:
    window, flying = Window(), list[int]()
    for most, seconds, pushed_back in turns:
        if room := min(window.room, most):
            assert window.in_flight + room <= window.size
            window.sent(room)
            flying.append(room)
        elif flying:
            window.answered(flying.pop(0), seconds, pushed_back=pushed_back)
        assert LEAST <= window.size <= MOST and window.in_flight == sum(flying)
    for count in flying:
        window.answered(count, 0.0, pushed_back=False)
    assert window.room >= LEAST


class Stubborn:
    """An API whose bindings wait until they are let go, and whose events never end."""

    def __init__(self) -> None:
        self.binding: list[str] = []
        self.let_go = asyncio.Event()
        self.event_asked = False
        self.refusal: ApiError | None = None

    async def submit(self, resource: Any, objects: list[Submission]) -> list[ApiError | None]:
        if resource != PODS:
            self.event_asked = True
            await asyncio.Event().wait()
        self.binding += [one.name for one in objects]
        await self.let_go.wait()
        return [self.refusal] * len(objects)


def pods(service: SchedulerService, *numbers: int) -> None:
    for number in numbers:
        spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": {}}]}
        metadata = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}"}
        service.core.pod_changed(encode_json({"metadata": metadata, "spec": spec}), "", 0.0)
    service._wake.set()


async def test_bindings_wait_for_no_event_and_stop_at_the_window() -> None:
    api = Stubborn()
    service = SchedulerService(api, Scheduler(), clock=lambda: 0.0)  # type: ignore[arg-type]
    status = {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "10000"}}
    service.core.node_changed(encode_json({"metadata": {"name": "n1"}, "status": status}), "n1", 0.0)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(service._decide(tasks)), tasks.create_task(service.events.run())]
        pods(service, *range(300))
        await until(lambda: len(api.binding) == FIRST)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(api.binding) == FIRST == service.window.in_flight
        api.let_go.set()
        await until(lambda: len(set(api.binding)) == 300)
        await until(lambda: api.event_asked)
        pods(service, *range(300, 400))  # while the event is still on its way
        await until(lambda: len(set(api.binding)) == 400)
        assert service.window.size > FIRST
        for task in running:
            task.cancel()
