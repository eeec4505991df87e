"""A webhook that allows everything without looking: what load generator, TLS and machine take by themselves.

Run by `bench.webhook` as a process of its own: `python -m bench.answering CERTIFICATE KEY PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from kubeqos.web.asgi import Receive, Scope, Send, read_body, respond
from kubeqos.web.garbage import freeze_loaded
from kubeqos.web.messages import Response
from kubeqos.web.serving import serve
from kubeqos.web.sockets import listen
from kubeqos.web.tls import server_context

ALLOWED = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}'
LONGEST_BODY = 8 << 20


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    await read_body(receive, LONGEST_BODY)
    await respond(Response(200, ALLOWED), [(b"content-type", b"application/json")], scope, receive, send)


async def main(certificate: Path, key: Path, port: int) -> None:
    async with serve(application, listen("127.0.0.1", port), server_context(certificate, key, None)):
        freeze_loaded()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
