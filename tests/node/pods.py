"""Small makers of pods, so that tests read like stories."""

from __future__ import annotations

import itertools
from typing import Any

_serial = itertools.count(1)


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.org/app:1", **fields}


def resources(**amounts: str) -> dict[str, Any]:
    """The same amounts as requests and limits, which makes a pod Guaranteed."""
    return {"requests": dict(amounts), "limits": dict(amounts)}


def pod(name: str = "web", *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod bound to node `n1`, with a uid of its own; keywords are fields of its spec, `annotations` apart."""
    annotations = spec.pop("annotations", {})
    uid = spec.pop("uid", f"uid-{next(_serial)}")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": annotations, "generation": 1},
        "spec": {
            "nodeName": "n1",
            "restartPolicy": "Always",
            "containers": list(containers) or [container()],
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
    }
