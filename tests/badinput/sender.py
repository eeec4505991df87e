"""Raw connections: what is sent is sent byte by byte, what comes back is read as HTTP and nothing else."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

from tests.badinput.requests import Sent
from tests.badinput.server import Served

PATIENCE = 60.0
"""Seconds until an answer that is owed counts as none."""
GRACE = 0.02
"""Seconds in which bytes that are no request may be answered."""
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: bytes
    closes: bool


@dataclass
class Findings:
    """Counts, and everything that may not be."""

    sent: dict[str, int] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def count(self, one: Sent, code: int) -> None:
        self.sent[one.what] = self.sent.get(one.what, 0) + 1
        self.codes[code] = self.codes.get(code, 0) + 1

    def blame(self, one: Sent, what: str) -> None:
        self.wrong.append(f"{what}\n    {one.data[:3000]!r}")


class Sender:
    """One connection after the other; each serves as long as the server keeps it."""

    def __init__(self, served: Served, findings: Findings) -> None:
        self._served, self._findings = served, findings
        self._connection: ssl.SSLSocket | None = None
        self._file: Any = None

    def send(self, one: Sent) -> None:
        for attempt in (1, 2):
            fresh = self._connection is None or not one.answers
            try:
                if fresh:
                    self._connect()
                answer = self._exchange(one)
            except TimeoutError:
                self.close()
                if one.answers:
                    self._findings.blame(one, f"no answer within {PATIENCE:.0f} s")
                self._findings.count(one, 0)
                return
            except (OSError, EOFError) as error:
                self.close()
                if one.answers and fresh and attempt == 2:
                    self._findings.blame(one, f"the connection ended without an answer: {error}")
                if one.answers and attempt == 1:
                    continue  # the server may have closed an idle one, or one after an answer before
                self._findings.count(one, 0)
                return
            self._judge(one, answer)
            if answer.closes or not one.answers:
                self.close()
            return

    def _connect(self) -> None:
        self.close()
        plain = socket.create_connection(("127.0.0.1", self._served.port), timeout=PATIENCE)
        self._connection = self._served.tls.wrap_socket(plain, server_hostname="localhost")
        self._file = self._connection.makefile("rb")

    def _exchange(self, one: Sent) -> Answer:
        assert self._connection is not None
        self._connection.settimeout(PATIENCE)
        self._connection.sendall(one.data)
        if not one.answers:
            self._connection.settimeout(GRACE)
        return self._read(one)

    def _read(self, one: Sent) -> Answer:
        while True:
            line = self._file.readline(10_000)
            if not line:
                raise EOFError
            code = int(line.split(b" ", 2)[1])
            headers = {}
            while (field_line := self._file.readline(100_000)) not in (b"\r\n", b"\n"):
                if not field_line:
                    raise EOFError
                name, _, value = field_line.partition(b":")
                headers[name.strip().lower()] = value.strip()
            if code != 100:
                break
        closes = headers.get(b"connection", b"").lower() == b"close" or code == 101
        if one.data.startswith(b"HEAD ") or code in (204, 304):
            return Answer(code, b"", closes)
        if b"content-length" in headers:
            return Answer(code, self._file.read(int(headers[b"content-length"])), closes)
        return Answer(code, b"", True)  # a stream: that it began is enough

    def _judge(self, one: Sent, answer: Answer) -> None:
        self._findings.count(one, answer.code)
        if answer.code >= 500 and not (answer.code == 504 and b"Too large resource version" in answer.body):
            self._findings.blame(one, f"{answer.code}: {answer.body[:LONGEST]!r}")
        elif answer.code >= 400 and answer.body.startswith(b"{"):
            said = json.loads(answer.body)
            if (said.get("kind"), said.get("status"), said.get("code")) != ("Status", "Failure", answer.code):
                self._findings.blame(one, f"{answer.code} without its Status: {answer.body[:LONGEST]!r}")

    def close(self) -> None:
        if self._connection is not None:
            self._file.close()
            self._connection.close()
        self._connection = None


class Slow:
    """Clients that send a byte now and then, and never come to an end."""

    def __init__(self, served: Served, count: int) -> None:
        self._served = served
        self._open: list[ssl.SSLSocket] = []
        self._count = count
        self.opened = 0

    def trickle(self) -> None:
        while len(self._open) < self._count:
            plain = socket.create_connection(("127.0.0.1", self._served.port), timeout=PATIENCE)
            one = self._served.tls.wrap_socket(plain, server_hostname="localhost")
            one.sendall(
                b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            )
            self._open.append(one)
            self.opened += 1
        for one in list(self._open):
            try:
                one.sendall(b"X-Slow: y\r\n" if self.opened % 2 else b"\r\n{")
            except OSError:  # cut off, which is right
                self._open.remove(one)
                one.close()

    def close(self) -> None:
        for one in self._open:
            one.close()
