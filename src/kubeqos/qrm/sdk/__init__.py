"""Write a resource plugin in twenty lines.

A plugin is any object with a `resource` name and the methods that it needs; all may be plain or `async`:

    class Bandwidth:
        resource = "example.com/bandwidth"

        def hints(self, request): ...        # where it could be placed; None: anywhere, empty: nowhere
        def allocate(self, request): ...     # an Allocation, several by name, or None; raise Refuse to say no
        def release(self, pod_uid): ...      # the pod is gone
        def capacity(self): ...              # how much there is, for Node status
        def allocations(self): ...           # everything given so far, when the plugin changes it by itself
        def save(self): ... / restore(self, state)   # JSON state, kept in the state file

    serve(Bandwidth(), registry="/var/lib/kubelet/plugins_registry")

What a plugin leaves out has a sensible default: without `allocations` the SDK remembers what `allocate` gave.
"""

from kubeqos.qrm.messages import Allocation, DeviceSpec, MountSpec, NumaHint
from kubeqos.qrm.sdk.serving import Options, running, serve
from kubeqos.qrm.sdk.values import Capacity, Kind, Refuse, Request
from kubeqos.topology.hints import Hint

__all__ = [
    "Allocation",
    "Capacity",
    "DeviceSpec",
    "Hint",
    "Kind",
    "MountSpec",
    "NumaHint",
    "Options",
    "Refuse",
    "Request",
    "running",
    "serve",
]
