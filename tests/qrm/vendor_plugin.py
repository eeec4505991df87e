"""A vendor's plugin in a process of its own, asked only by pods that request `x.io/link`.

`python -m tests.qrm.vendor_plugin REGISTRY`
"""

from __future__ import annotations

import sys

from kubeqos.qrm.sdk import Allocation, Request, serve


class Link:
    resource = "x.io/link"

    def hints(self, _request: Request) -> None:
        """Anywhere."""

    def allocate(self, request: Request) -> Allocation:
        return Allocation(quantity=request.quantity, scalar=True, envs={"LINK": "up"})


if __name__ == "__main__":
    serve(Link(), sys.argv[1])
