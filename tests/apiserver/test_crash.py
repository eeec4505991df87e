"""Kill the server with SIGKILL while it is written to: what it acknowledged is there, and quotas add up.

The number of rounds is KUBEQOS_CRASHES (default 12; CI runs 200).
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kubeqos.codec import decode_json, encode_json

ROUNDS = int(os.environ.get("KUBEQOS_CRASHES", "12"))
TOKEN = "crash"
PODS = "/api/v1/namespaces/default/pods"
QUOTA = "/api/v1/namespaces/default/resourcequotas/q"


class Process:
    """`kubeqos apiserver` in a process of its own."""

    def __init__(self, directory: Path) -> None:
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{TOKEN},crash,crash,"system:masters"\n')
        tokens.chmod(0o600)
        self.directory = directory
        arguments = [
            "--data-dir",
            str(directory / "data"),
            "--port",
            "0",
            "--token-auth-file",
            str(tokens),
            "--no-audit",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.apiserver", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split()[1].rpartition(":")[2])

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.directory / "data/pki/ca.crt"))
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=20)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def call(connection: http.client.HTTPSConnection, method: str, path: str, body: object = None) -> tuple[int, object]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else encode_json(body), headers)
    response = connection.getresponse()
    return response.status, decode_json(response.read())


class Writer(threading.Thread):
    """Creates and deletes pods until the connection dies, and remembers what was acknowledged."""

    def __init__(self, server: Process, prefix: str) -> None:
        super().__init__(daemon=True)
        self.server, self.prefix = server, prefix
        self.alive_names: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()

    def run(self) -> None:
        try:
            connection = self.server.connect()
            for number in range(100_000):
                name = f"{self.prefix}-{number}"
                self.unsure = {name}
                spec = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]}
                code, obj = call(connection, "POST", PODS, {"metadata": {"name": name}, "spec": spec})
                assert code == 201, obj
                self.alive_names[name] = int(obj["metadata"]["resourceVersion"])  # type: ignore[index]
                self.unsure = set()
                if number % 3 == 2:
                    victim = f"{self.prefix}-{number - 1}"
                    self.unsure = {victim}
                    code, _ = call(connection, "DELETE", f"{PODS}/{victim}")
                    assert code == 200
                    self.alive_names.pop(victim)
                    self.deleted.add(victim)
                    self.unsure = set()
        except (OSError, http.client.HTTPException):
            return  # the server is gone: that is the point


def check(server: Process, writers: list[Writer], newest: int) -> int:
    connection = server.connect()
    code, listed = call(connection, "GET", PODS)
    assert code == 200
    found = {pod["metadata"]["name"]: pod for pod in listed["items"]}  # type: ignore[index]
    revision = int(listed["metadata"]["resourceVersion"])  # type: ignore[index]
    assert revision >= newest, "revisions only grow"
    for writer in writers:
        for name, version in writer.alive_names.items():
            if name not in writer.unsure:
                assert name in found, f"{name} was acknowledged at {version}"
                assert int(found[name]["metadata"]["resourceVersion"]) == version
        assert not writer.deleted & found.keys(), "an acknowledged deletion came back"
    _, quota = call(connection, "GET", QUOTA)
    used = quota["status"]["used"]  # type: ignore[index]
    assert used["pods"] == str(len(found))
    millis = 100 * len(found)
    assert used["requests.cpu"] == (str(millis // 1000) if millis % 1000 == 0 else f"{millis}m")
    return revision


@pytest.mark.slow
def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    random.seed(7)
    server = Process(tmp_path)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1000000", "requests.cpu": "1000000"}}}
    assert call(server.connect(), "POST", QUOTA.rpartition("/")[0], quota)[0] == 201
    everyone: list[Writer] = []
    newest = 0
    try:
        for round_number in range(ROUNDS):
            writers = [Writer(server, f"r{round_number}-w{number}") for number in range(6)]
            for writer in writers:
                writer.start()
            time.sleep(random.uniform(0.05, 0.35))
            server.kill()
            for writer in writers:
                writer.join(20)
            everyone += writers
            server = Process(tmp_path)
            newest = check(server, everyone, newest)
    finally:
        server.kill()
    assert sum(len(writer.alive_names) for writer in everyone) > ROUNDS
