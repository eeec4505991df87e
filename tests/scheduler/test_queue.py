"""The queue of pods without a node: how long a failed one pauses."""

from __future__ import annotations

from kubeqos.model.objects import PodView
from kubeqos.placement.shape import compile_shape
from kubeqos.scheduler.queue import QueuedPod, SchedulingQueue


def test_the_pause_doubles_up_to_ten_seconds_however_often_a_pod_fails() -> None:
    queue = SchedulingQueue()
    shape = compile_shape(PodView.of({"spec": {"containers": [{"name": "c"}]}}))
    queue.add(QueuedPod("u", "default", "web", shape, 0.0))
    pauses, now = [], 0.0
    for _ in range(1100):  # Python's floats end at 2 to the 1024th
        pod = queue.pop(now)
        assert pod is not None
        queue.failed(pod, frozenset(), now)
        pauses.append(pod.ready_at - now)
        now = max(now + 400.0, pod.ready_at)
        queue.flush(now)
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 10.0] and set(pauses[5:]) == {10.0}
