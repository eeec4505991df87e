"""A real containerd for clusters with this machine as a node."""

from tests.node.conftest import containerd

__all__ = ["containerd"]
