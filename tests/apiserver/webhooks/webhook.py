"""A webhook of the tests' own: HTTPS on loopback, answers by path, and remembers what it was asked."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kubeqos.web.pki import Pki

Raw = dict[str, Any]
Answer = Callable[[Raw], Any]
"""From the request of a review to a response; what is no dict is sent as it is."""
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


class Webhook:
    def __init__(self, folder: Path) -> None:
        pki = Pki(folder / "webhook-pki")
        self.authority = base64.b64encode(pki.ca_pem).decode()
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Raw]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                path = self.path.partition("?")[0]
                outer.asked.append((path, body["request"]))
                outer.reviewed(self, body, outer.answers[path](body["request"]))

            def log_message(self, *_: Any) -> None:
                """Not on the terminal of the tests."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*pki.server_files(["127.0.0.1", "hook.default.svc"]))
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]

    def reviewed(self, handler: BaseHTTPRequestHandler, body: Raw, answer: Any) -> None:
        if isinstance(answer, dict):
            answer = {**body, "request": None, "response": {"uid": body["request"]["uid"], **answer}}
            answer = json.dumps(answer).encode()
        code, text = answer if isinstance(answer, tuple) else (200, answer)
        handler.send_response(code)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def entry(self, path: str, resources: list[str], operations: list[str] | None = None, **more: Any) -> Raw:
        """One webhook of a configuration."""
        groups = [more.pop("group", "")]
        rule = {
            "operations": operations or ["CREATE"],
            "apiGroups": groups,
            "apiVersions": ["*"],
            "resources": resources,
        }
        client = more.pop("client", {"url": f"https://127.0.0.1:{self.port}{path}"})
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": {"caBundle": self.authority, **client},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            **more,
        }

    @contextmanager
    def configured(self, call: Callable[..., Any], kind: str, *entries: Raw) -> Iterator[None]:
        """These webhooks, for the duration of a block; `call` is a server's."""
        plural = f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations"
        name = f"{kind.lower()}-{entries[0]['name'].partition('.')[0]}"
        body = {"metadata": {"name": name}, "webhooks": list(entries)}
        call("POST", plural, body)
        try:
            yield
        finally:
            call("DELETE", f"{plural}/{name}")


@contextmanager
def running_webhook(folder: Path) -> Iterator[Webhook]:
    made = Webhook(folder)
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()


def allow(_request: Raw) -> Raw:
    return {"allowed": True}


def patch(*operations: Raw) -> Answer:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": text}


def label(name: str, value: str) -> Answer:
    """Sets a label, whether there are any or not."""

    def answer(request: Raw) -> Raw:
        if request["object"] is None:
            return {"allowed": True}
        labels = {**(request["object"]["metadata"].get("labels") or {}), name: value}
        return dict(patch({"op": "add", "path": "/metadata/labels", "value": labels})(request))

    return answer


def slow(_request: Raw) -> Raw:
    time.sleep(3)
    return {"allowed": True}
