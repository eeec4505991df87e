"""Plugin registration: the one way by which resource plugins, compute drivers and class providers join a node.

Holds both ends of the `pluginregistration` protocol (the watcher that the node agent runs, the endpoint that the SDKs
serve) and the contract of resource managers. It knows no particular plugin.
"""

from pathlib import Path
from typing import Final

REGISTRY: Final = "plugins_registry"
"""The folder of a node in which plugins put their sockets, as a kubelet calls it."""
STATE_DIR: Final = Path("/var/lib/kubeqos")
"""Where a node keeps everything unless its owner says otherwise."""
DEFAULT_REGISTRY: Final = STATE_DIR / REGISTRY
"""Where plugins and drivers register then: what SDKs, commands and the node agent start from."""
