"""Requests drawn from a seed: what is asked for, how it is written, and bytes that are no request at all."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from kubeqos.apiserver.present.negotiation import binary
from kubeqos.apiserver.registry.kinds import KINDS, Kind
from kubeqos.web.messages import Response
from tests.apiserver.examples import collection, example
from tests.badinput.mutate import TEXTS, as_json, damaged, mutated, scalar, value

PROTOBUF = "application/vnd.kubernetes.protobuf"
PATCHES = (
    "application/strategic-merge-patch+json", "application/merge-patch+json", "application/json-patch+json",
    "application/apply-patch+yaml", "application/apply-patch+cbor",
)  # fmt: skip
TYPES = ("application/json", "application/yaml", PROTOBUF, "text/plain", "", "application/json; charset=x", *PATCHES)
ACCEPTS = (
    "application/json", PROTOBUF, "*/*", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", PROTOBUF + ";as=Table;v=v1;g=meta.k8s.io",
    "application/json;stream=watch", "a/b;q=x", ",,,;=", "text/html,application/json;q=0.9", "application/cbor",
)  # fmt: skip
PARAMETERS = (
    "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "dryRun",
    "includeObject", "sendInitialEvents", "allowWatchBookmarks", "pretty", "fieldManager", "force", "fieldValidation",
    "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "timeout", "container", "tailLines", "sinceTime",
    "command", "previous", "stdin", "ports",
)  # fmt: skip
VALUES = (
    *TEXTS, "All", "Exact", "NotOlderThan", "Strict", "Ignore", "Background", "Foreground", "Orphan", "a in (b,c)",
    "!a", "a=b,c!=d", "a notin (", "metadata.name=x", "spec.nodeName=n", "status.phase!=Running", "metadata.name=x0,",
    "5s", "-1s", "1.5h", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0", "99999999999999999999",
)  # fmt: skip
HEADERS = (
    "Accept", "Content-Type", "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-x",
    "Upgrade", "Accept-Encoding", "Connection", "Expect", "X-" + "y" * 60, "Origin", "Cookie", "Content-Encoding",
    "Sec-WebSocket-Protocol", "If-None-Match", "Host", "Range", "Kubectl-Command", "Authorization",
)  # fmt: skip
NAMES = ("x", "x0", "x1", "x2", "default", "things.example.com", "192.0.2.1")
QUIET = ("admissionregistration.k8s.io",)
"""Groups whose objects would change what is answered to everybody else: their writes stay dry."""
LOST = ("namespaces", "nodes")
"""What would take the rest with it is deleted only when it has another name."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What goes over the wire, and what it is counted as."""

    what: str
    data: bytes
    answers: bool = True
    """Whether exactly one answer is owed: of bytes that are no request the connection may just end."""


@cache
def _protobuf(index: int) -> bytes | None:
    """The least object of a kind, as clients send it in binary."""
    kind = KINDS[index]
    if not kind.stored or kind.definition is not None:
        return None
    whole = json.dumps({"kind": kind.kind, "apiVersion": kind.api_version, **example(kind)}).encode()
    made = binary(Response(200, whole), PROTOBUF)
    return made.body if made.content_type.startswith(PROTOBUF) else None


class Drawing:
    """One stream of requests."""

    def __init__(self, seed: int, token: str, *, dry: float = 0.7) -> None:
        self.random = Random(seed)
        self._token = token
        self._dry = dry
        self._drawn: tuple[tuple[int, Callable[[], Sent]], ...] = (
            (400, self.write), (250, self.patch), (150, self.read), (50, self.subresource), (40, self.path),
            (40, self.headers), (30, self.framing), (2, self.large),
        )  # fmt: skip

    def draw(self) -> Sent:
        weights = [weight for weight, _ in self._drawn]
        return self.random.choices(self._drawn, weights)[0][1]()

    # what is asked for

    def write(self) -> Sent:
        index = self.random.randrange(len(KINDS))
        kind, named = KINDS[index], self.random.random() < 0.3
        method = "PUT" if named else "POST"
        path = collection(kind) + (f"/{self._name()}" if named else "")
        packed = _protobuf(index) if self.random.random() < 0.25 else None
        if packed is not None:
            what, body, kind_of_body = "protobuf", damaged(self.random, packed), PROTOBUF
        else:
            what, kind_of_body = "manifests", "application/json"
            body = as_json(self.random, self._body(kind))
        return self._request(what, method, path, self._options(kind), body, kind_of_body)

    def patch(self) -> Sent:
        kind = self.random.choice([kind for kind in KINDS if kind.stored])
        below = self.random.choice(["", "", *(f"/{sub.name}" for sub in kind.subresources if "patch" in sub.verbs)])
        patch_type = self.random.choice(PATCHES)
        if "json-patch" in patch_type:
            body: Any = [self._operation() for _ in range(self.random.randrange(4))]
        else:
            body = mutated(self.random, {**self._header(kind), **example(kind, self._name())})
        if self.random.random() < 0.1:
            body = value(self.random)
        path = f"{collection(kind)}/{self._name()}{below}"
        return self._request("patches", "PATCH", path, self._options(kind), as_json(self.random, body), patch_type)

    def read(self) -> Sent:
        kind = self.random.choice(KINDS)
        named = self.random.random() < 0.4
        path = collection(kind) + (f"/{self._name()}" if named else "")
        query = self._query()
        method = "GET"
        if self.random.random() < 0.2 and (named or kind.plural not in LOST) and "delete" in kind.verbs:
            method = "DELETE"
            query = {**query, **self._options(kind, certain=kind.plural in LOST)}
        elif self.random.random() < 0.15:
            query = {**query, "watch": "1", "timeoutSeconds": "0", "resourceVersion": self.random.choice(VALUES)}
        body = as_json(self.random, value(self.random)) if method == "DELETE" and self.random.random() < 0.3 else b""
        return self._request("queries", method, path, query, body, "application/json" if body else "")

    def subresource(self) -> Sent:
        kind = self.random.choice([kind for kind in KINDS if kind.subresources])
        sub = self.random.choice(kind.subresources)
        verb = self.random.choice(sub.verbs)
        method = {"get": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}[verb]
        path = f"{collection(kind)}/{self._name()}/{sub.name}"
        body = b"" if method == "GET" else as_json(self.random, self._body(kind))
        of = self.random.choice(PATCHES) if method == "PATCH" else "application/json"
        return self._request("subresources", method, path, {**self._query(), **self._options(kind)}, body, of)

    def path(self) -> Sent:
        kind = self.random.choice(KINDS)
        path = damaged(self.random, f"{collection(kind)}/{self.random.choice(TEXTS)}".encode())
        method = self.random.choice(("GET", "POST", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"))
        return self._request("paths", method, "/" + quote(path.lstrip(b"/"), safe="/:?&=%"), {}, b"", "")

    def headers(self) -> Sent:
        path = collection(self.random.choice(KINDS))
        chosen = {
            self.random.choice(HEADERS): "".join(c for c in str(scalar(self.random)) if " " <= c <= "~")
            for _ in range(self.random.randrange(1, 6))
        }
        method = self.random.choice(("GET", "GET", "POST"))
        body = as_json(self.random, value(self.random)) if method == "POST" else b""
        return self._request("headers", method, path, self._query(), body, self.random.choice(TYPES), chosen)

    def framing(self) -> Sent:
        whole = self.write().data if self.random.random() < 0.5 else self.read().data
        head, _, body = whole.partition(b"\r\n\r\n")
        kind = self.random.randrange(4)
        if kind == 0:
            head = head.replace(
                b"Content-Length: ", b"Content-Length: " + self.random.choice([b"-", b"9", b"x", b"0x"])
            )
        elif kind == 1:
            head += self.random.choice(
                [
                    b"\r\nTransfer-Encoding: chunked",
                    b"\r\nContent-Length: 3",
                    b"\r\n folded",
                    b"\r\nTransfer-Encoding: x",
                ]
            )
        elif kind == 2:
            head = damaged(self.random, head)
        else:
            body = b"%x\r\n" % self.random.choice((0, 1, 5, 2**40)) + body
            head = head.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX-Length")
        return Sent("framing", head + b"\r\n\r\n" + body, answers=False)

    def large(self) -> Sent:
        kind = self.random.choice([kind for kind in KINDS if kind.stored])
        raw = example(kind)
        many = self.random.choice((1_000, 10_000, 60_000))
        raw["metadata"]["annotations"] = {f"k{n}": "v" for n in range(many)}
        if self.random.random() < 0.5:
            raw["spec"] = [raw.get("spec")] * min(many, 2_000)
        body = json.dumps(raw).encode()
        extra = {}
        if self.random.random() < 0.3:
            body, extra = gzip.compress(body, 1), {"Content-Encoding": "gzip"}
        return self._request("sizes", "POST", collection(kind), {"dryRun": "All"}, body, "application/json", extra)

    # how it is written

    def _body(self, kind: Kind) -> Any:
        raw = example(kind, self._name()) if kind.stored else {"metadata": {"name": self._name()}}
        raw = {**self._header(kind), **raw}
        return value(self.random) if self.random.random() < 0.05 else mutated(self.random, raw)

    def _header(self, kind: Kind) -> dict[str, Any]:
        return {"kind": kind.kind, "apiVersion": kind.api_version}

    def _operation(self) -> Any:
        at = "/".join(["", *(self.random.choice(("metadata", "spec", "labels", "-", "0", *TEXTS)) for _ in range(3))])
        names = ("add", "remove", "replace", "move", "copy", "test", "x")
        return mutated(
            self.random, {"op": self.random.choice(names), "path": at, "from": at, "value": value(self.random)}
        )

    def _name(self) -> str:
        return self.random.choice(NAMES) if self.random.random() < 0.95 else quote(self.random.choice(TEXTS), safe="")

    def _accept(self) -> str:
        return ACCEPTS[0] if self.random.random() < 0.8 else self.random.choice(ACCEPTS)

    def _options(self, kind: Kind, *, certain: bool = False) -> dict[str, str]:
        found = {}
        if certain or kind.group in QUIET or self.random.random() < self._dry:
            found["dryRun"] = "All"
        if self.random.random() < 0.2:
            found["fieldValidation"] = self.random.choice(("Strict", "Warn", "Ignore", "x"))
        if self.random.random() < 0.2:
            found["fieldManager"] = self.random.choice(TEXTS)
        return found

    def _query(self) -> dict[str, str]:
        return {self.random.choice(PARAMETERS): self.random.choice(VALUES) for _ in range(self.random.randrange(4))}

    def _request(
        self, what: str, method: str, path: str, query: dict[str, str], body: bytes, content_type: str,
        more: dict[str, str] | None = None,
    ) -> Sent:  # fmt: skip
        target = f"{path}?{urlencode(query, errors='replace')}" if query else path
        headers = {"Host": "x", "Authorization": f"Bearer {self._token}", "Accept": self._accept()}
        if content_type:
            headers["Content-Type"] = content_type
        if body or method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(body))
        headers |= more or {}
        head = "".join(f"{name}: {given}\r\n" for name, given in headers.items())
        return Sent(what, f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace") + body)
