"""`python -m kubeqos.cli.child PARENT WORDS…` is `kubeqos WORDS…` that ends with the process PARENT, which started it.

Plugins and drivers run so beside `kubeqos up`: whatever ends the cluster, they neither outlive it nor write into the
state of the next one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from kubeqos.cli.main import main

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)


def run() -> None:
    """Tie this process to its parent, then be `kubeqos`."""
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() == parent:  # else it was gone before it could be watched
        main()


if __name__ == "__main__":
    run()
