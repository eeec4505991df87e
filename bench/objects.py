"""What every write pays for its object: strict decoding, canonical form, field ownership; and the patches."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

from kubeqos.apiserver.patch import Writer, apply_configuration, apply_patch, track
from kubeqos.codec import decode_json, encode_json
from kubeqos.model import schema

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "team", "labels": {"app": "web"}, "annotations": {"note": "x" * 200}},
    "spec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "containers": [
            {
                "name": f"c{number}",
                "image": "registry.example/web:1",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {
                    "requests": {"cpu": "250m", "memory": "128Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi"},
                },
            }
            for number in range(2)
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def best_us(work: Callable[[], object], number: int = 1000) -> float:
    """Microseconds of processor time in the best of several runs."""
    return min(timeit.repeat(work, timer=time.process_time, number=number, repeat=9)) / number * 1e6


def load_ms() -> float:
    """Milliseconds to read the tables and one kind, in a fresh process."""
    program = (
        "import time; from kubeqos.model import schema; t = time.perf_counter();"
        "schema.kind('', 'v1', 'Pod').fields; print((time.perf_counter() - t) * 1e3)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(5)
    ]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    """Print each figure next to its target."""
    body = encode_json(POD)
    raw = decode_json(body)
    kind = schema.kind("", "v1", "Pod")
    writer = Writer("kubectl-create", "v1", "2024-01-01T00:00:00Z", ignored={"f:status": {}})
    new = schema.normalise(raw, kind)
    live = schema.normalise(raw, kind)
    live["metadata"]["managedFields"] = track(None, new, kind, writer)
    patch = {"spec": {"containers": [{"name": "c1", "image": "registry.example/web:2"}]}}
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1"}, **patch}
    rows: list[tuple[str, float, float]] = [
        ("tables loaded (ms)", load_ms(), 5),
        ("strict decoding, duplicates included", best_us(lambda: schema.check(raw, kind, body)), 20),
        ("canonical form", best_us(lambda: schema.normalise(raw, kind)), 20),
        ("field ownership of a create", best_us(lambda: track(None, new, kind, writer)), 40),
        ("field ownership of an update", best_us(lambda: track(live, {**live, "spec": {}}, kind, writer)), 80),
        ("strategic merge patch, decoded", best_us(lambda: apply_patch("strategic", live, patch, kind)), 150),
        (
            "server-side apply, forced",
            best_us(lambda: apply_configuration(live, config, kind, writer, force=True)),
            300,
        ),
    ]
    machine = f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"
    print(f"objects: a pod of {len(body)} bytes; {machine}")
    for what, figure, target in rows:
        unit = "ms" if "(ms)" in what else "µs"
        print(f"  {what.replace(' (ms)', ''):40} {figure:8.1f} {unit}   target ≤ {target:g} {unit}")


if __name__ == "__main__":
    main()
