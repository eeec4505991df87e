"""How long one small pod takes through decoding, defaulting and validation."""

from __future__ import annotations

import copy
import timeit

from kubeqos.codec import encode_json
from kubeqos.rules.decoding import Decoded, decode
from kubeqos.rules.defaulting.defaults import add_default_tolerations, apply_defaults, prepare_create
from kubeqos.rules.validation import validate

TARGET_US = 40.0
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "default", "labels": {"app": "web", "tier": "front"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/app:1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
            }
        ]
    },
}
EXPECTED = ("", "v1", "Pod")


def main() -> None:
    body = encode_json(POD)
    decoded = decode(body, "application/json", EXPECTED)
    assert isinstance(decoded, Decoded)
    pod = decoded.raw
    apply_defaults("Pod", pod)
    add_default_tolerations(pod["spec"])
    prepare_create("Pod", pod, "2026-01-01T00:00:00Z")
    assert validate("Pod", pod) == []
    fresh = decode(body, "application/json", EXPECTED)
    assert isinstance(fresh, Decoded)
    copying = _micros(lambda: copy.deepcopy(fresh.raw))
    print(f"decode a small pod             {_micros(lambda: decode(body, 'application/json', EXPECTED)):8.1f} µs")
    print(f"default and prepare            {_micros(lambda: _prepared(copy.deepcopy(fresh.raw))) - copying:8.1f} µs")
    print(f"validate                       {_micros(lambda: validate('Pod', pod)):8.1f} µs  (target ≤ {TARGET_US:.0f})")


def _prepared(raw: dict[str, object]) -> None:
    apply_defaults("Pod", raw)
    prepare_create("Pod", raw, "2026-01-01T00:00:00Z")


def _micros(call: object) -> float:
    timer = timeit.Timer(call)  # type: ignore[arg-type]
    return min(timer.repeat(5, 2000)) / 2000 * 1e6


if __name__ == "__main__":
    main()
