"""Pods for benchmarks of creates: one template, and pods that are all different.

"All different" means what it says: no two pods share name, labels, environment, image or resources, and the names of
their labels and variables differ too.
"""

from __future__ import annotations

from typing import Any


def one_template(name: str, number: int) -> dict[str, Any]:
    """Pods of one small template, as a ReplicaSet makes them: only the name differs."""
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    container = {"name": "c", "image": "registry.example/app:1", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def different(name: str, number: int) -> dict[str, Any]:
    """The pod of a number; pods of different numbers have nothing in common but their outline."""
    labels = {"app": f"app-{number}", "tier": f"tier-{number % 7}", f"team.example/t{number % 97}": f"v{number}"}
    env = [
        {"name": "RUN", "value": f"run-{number}"},
        {"name": f"OPTION_{number % 89}", "value": f"--seed={number} --mode={number % 3}"},
        {"name": "ENDPOINT", "value": f"https://host-{number}.example:8443/{number % 11}"},
    ]
    cpu, memory = 10 + number % 3989, 16 + number % 4093
    resources = {
        "requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"},
        "limits": {"cpu": f"{cpu * 2}m", "memory": f"{memory + 64}Mi"},
    }
    image = f"registry.example/team-{number % 101}/app:{number}"
    container = {"name": f"c{number % 5}", "image": image, "env": env, "resources": resources}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
