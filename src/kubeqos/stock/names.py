"""Names by which the parts in a stock cluster know each other's doings. Pure.

A class with a capacity is an extended resource of the node, so that the stock scheduler counts it; one without is a
label. Both are made from the class's resource and name, whose slash has no place in the part behind the domain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GROUP = "kubeqos.io"
API_VERSION = f"{GROUP}/v1alpha1"
QUOTA, LIMITS, CLASS, RESOURCE, NODE = "QOSClassQuota", "QOSClassLimits", "QOSClass", "QOSResource", "NodeQOS"
MANAGED = {"app.kubernetes.io/managed-by": "kubeqos-controller"}
"""Labels of QOSClasses that describe what nodes offer and nobody else has described."""
COUNTED_DOMAIN = "qos.kubeqos.io/"
OFFERED_DOMAIN = "class.qos.kubeqos.io/"
PLUGIN = "kubeqos"
"""Our name among the NRI plugins of a runtime."""
CONTAINERD_CONFIG = Path("/etc/containerd/config.toml")
RESTART_CONTAINERD = "nsenter --target 1 --mount -- systemctl --no-block restart containerd"
"""Restarts a containerd that systemd keeps, from within a pod that sees the host's processes."""
REQUIRED_PLUGINS = "required-plugins.noderesource.dev/pod"
"""The annotation by which a pod runs only where these NRI plugins are, if the runtime's own validator is on."""
LEAVING = f"{GROUP}/leaving"
"""The annotation of a NodeQOS whose agent, when it ends, leaves nothing of ours on the node."""
ROOM = f"{GROUP}/room"
"""The annotation of a Node by which kube-schedulers hear that there is room again; since when."""
_LONGEST = 63


def is_managed(class_raw: Mapping[str, Any]) -> bool:
    """Whether we made this object: only then its spec follows the nodes."""
    labels = (class_raw.get("metadata") or {}).get("labels") or {}
    return MANAGED.items() <= labels.items()


def extended_resource(resource: str, cls: str) -> str:
    """The extended resource that counts a class: `qos.kubeqos.io/blockio.slow`."""
    return COUNTED_DOMAIN + joined(resource, cls)


def node_label(resource: str, cls: str) -> str:
    """The label of nodes that offer a class without counting it."""
    return OFFERED_DOMAIN + joined(resource, cls)


def joined(resource: str, cls: str) -> str:
    """Resource and class as one name of at most 63 characters, different for different classes.

    A domain's slash becomes two underscores, which no domain contains. Where that could be read in two ways (a class
    with a dot, a name with such underscores), or is too long, a digest of both tells them apart.
    """
    name = f"{resource.replace('/', '__')}.{cls.replace('/', '__')}"
    plain = not ("." in cls or "/" in cls or "__" in resource)
    if plain and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(f"{resource} {cls}".encode()).hexdigest()[:10]
    return f"{name[: _LONGEST - len(digest) - 1].rstrip('._-')}.{digest}"
