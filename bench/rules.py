"""Figures of the rules that run for every pod: quantities, QoS class and effective requests, class fit."""

from __future__ import annotations

import timeit
from collections.abc import Callable

from bench.machine import describe
from kubeqos.model.objects import NodeQosResources, PodView, convert
from kubeqos.model.quantity import Quantity, parse_uncached
from kubeqos.rules.qos import classes, podqos

POD = {
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {
                "name": name,
                "image": "app:1",
                "resources": {
                    "requests": {"cpu": "500m", "memory": "256Mi"},
                    "limits": {"cpu": "1", "memory": "512Mi"},
                    "qosResources": [{"name": "rdt", "class": "gold"}],
                },
            }
            for name in ("web", "helper")
        ],
        "initContainers": [{"name": "setup", "image": "setup:1", "resources": {"requests": {"cpu": "100m"}}}],
    },
}
NODE = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 4}]}]}


def micros(call: Callable[[], object], number: int = 20_000) -> float:
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def main() -> None:
    print(describe())
    pod = PodView.of(POD)
    node = classes.catalog(convert(NODE, NodeQosResources))

    def class_and_requests() -> None:
        podqos.qos_class(pod)
        podqos.effective_requests(pod.spec)

    print(f"QoS class + effective requests of a decoded pod   {micros(class_and_requests):7.2f} µs  target ≤ 15")
    seen = micros(lambda: Quantity.parse("500m"))
    print(f"quantity, seen before ('500m')                    {seen:7.2f} µs  target ≤ 0.5")
    print(f"quantity, never seen ('500m')                     {micros(lambda: parse_uncached('500m')):7.2f} µs")
    print(f"view of a raw pod                                 {micros(lambda: PodView.of(POD)):7.2f} µs")
    print(
        f"class fit on one node                             {micros(lambda: classes.fit(pod.spec, node, {})):7.2f} µs"
    )


if __name__ == "__main__":
    main()
