"""Write a resource plugin in twenty lines.

A plugin is any object with a `resource` name and the methods that it needs; all may be plain or `async`:

    class Bandwidth:
        resource = "example.com/bandwidth"

        def hints(self, request): ...        # where it could be placed; None: anywhere, empty: nowhere
        def allocate(self, request): ...     # an Allocation, several by name, or None; raise Refuse to say no
        def release(self, pod_uid): ...      # the pod is gone
        def capacity(self): ...              # how much there is, for Node status; a Division of it, for the scheduler
        def allocations(self): ...           # everything given so far, when the plugin changes it by itself
        def pod_hints(self, request): ...    # the same for a pod as a whole, where the node aligns whole pods
        def allocate_pod(self, request): ... # its containers share what is given; `request.container` is empty
        def pre_start(self, pod_uid, container): ...   # before each start; what it raises holds the start back
        def health(self): ...                # what is wrong, or nothing: pods wait while something is
        def save(self): ... / restore(self, state)   # JSON state, kept in the state file; restore alone is given
                                                     # pod → container → resource → Allocation

        def on_change(self, save): ...       # once; call `save` when the state changes without a call of the manager

    serve(Bandwidth(), registry="/var/lib/kubeqos/plugins_registry")

What a plugin leaves out has a sensible default: without `allocations` the SDK remembers what `allocate` gave.
"""

from kubeqos.model.annotations.topologysummary import Division, PoolRule, Rules
from kubeqos.qrm.messages import Allocation, DeviceSpec, MountSpec, NumaHint
from kubeqos.qrm.sdk.serving import Options, running, serve
from kubeqos.qrm.sdk.values import Capacity, Kind, Refuse, Request
from kubeqos.topology.alignment.hints import Hint

__all__ = [
    "Allocation",
    "Capacity",
    "DeviceSpec",
    "Division",
    "Hint",
    "Kind",
    "MountSpec",
    "NumaHint",
    "Options",
    "PoolRule",
    "Refuse",
    "Request",
    "Rules",
    "running",
    "serve",
]
