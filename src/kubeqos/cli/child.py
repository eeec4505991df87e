"""`python -m kubeqos.cli.child PARENT WORDS…` is `kubeqos WORDS…` that ends with the process PARENT, which started it.

`python -m kubeqos.cli.child PARENT --exec PROGRAM WORDS…` is any other program that does.

Plugins and drivers run so beside `kubeqos up`: whatever ends the cluster, they neither outlive it nor write into the
state of the next one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from kubeqos.cli.main import main

EXEC = "--exec"
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)


def run() -> None:
    """Tie this process to its parent, then be `kubeqos`, or the program that is named."""
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:  # it was gone before it could be watched
        return
    if sys.argv[1:2] == [EXEC]:
        program = sys.argv[2]
        try:
            os.execvp(program, sys.argv[2:])  # which keeps the death signal
        except OSError as error:
            sys.exit(f"Error: {program} cannot be started: {error.strerror}")
    main()


if __name__ == "__main__":
    run()
