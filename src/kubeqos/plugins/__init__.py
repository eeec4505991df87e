"""Plugin registration: the one way by which resource plugins, compute drivers and class providers join a node.

Holds both ends of the `pluginregistration` protocol (the watcher that the node agent runs, the endpoint that the SDKs
serve) and the contract of resource managers. It knows no particular plugin.
"""

from typing import Final

REGISTRY: Final = "plugins_registry"
"""The folder of a node in which plugins put their sockets, as a kubelet calls it."""
