"""Kill the server with SIGKILL while it is written to: what it acknowledged is there, and quotas add up."""

from __future__ import annotations

import http.client
import os
import random
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kubeqos.codec import decode_json, encode_json
from kubeqos.model.quantity import Quantity
from tests.apiserver import crash_server
from tests.shared.victims import kills, nursery

KILLS = kills(local=25)
KILLS_PER_DIRECTORY = 25  # a young database also meets kills, and an old one does not make every check long
WRITERS = 6
TOKEN = "crash"
PODS = "/api/v1/namespaces/default/pods"
QUOTA = "/api/v1/namespaces/default/resourcequotas/q"


class Server:
    """`kubeqos apiserver` in a process of its own."""

    def __init__(self, directory: Path, *flags: str) -> None:
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{TOKEN},crash,crash,"system:masters"\n')
        tokens.chmod(0o600)
        self.directory = directory
        data = str(directory / "data")
        arguments = ["--data-dir", data, "--port", "0", "--token-auth-file", str(tokens), "--no-audit", *flags]
        context = nursery()
        ours, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=crash_server.run, args=(arguments, theirs))
        self.process.start()
        theirs.close()
        with os.fdopen(os.dup(ours.fileno())) as output:
            line = output.readline()
        ours.close()
        assert line.startswith("serving https://"), line
        self.port = int(line.split()[1].rpartition(":")[2])
        self.kubeconfig = directory / "data/kubeconfig"
        self.tls = ssl.create_default_context(cafile=str(directory / "data/pki/ca.crt"))

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls, timeout=20)

    def kill(self) -> None:
        assert self.process.is_alive(), "the server died by itself"
        self.process.kill()
        self.process.join()


def call(connection: http.client.HTTPSConnection, method: str, path: str, body: object = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else encode_json(body), headers)
    response = connection.getresponse()
    return response.status, decode_json(response.read())


class Writer(threading.Thread):
    """Creates and deletes pods until the connection dies, and remembers what was acknowledged."""

    def __init__(self, server: Server, prefix: str) -> None:
        super().__init__(daemon=True)
        self.server, self.prefix = server, prefix
        self.alive_names: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.unsure = ""
        self.surprise: Any = None
        self.acknowledged = 0

    def run(self) -> None:
        try:
            connection = self.server.connect()
            for number in range(1_000_000):
                if not self.create(connection, f"{self.prefix}-{number}"):
                    return
                if number % 3 == 2 and not self.delete(connection, f"{self.prefix}-{number - 1}"):
                    return
        except (OSError, http.client.HTTPException):
            return  # the server is gone: that is the point

    def create(self, connection: http.client.HTTPSConnection, name: str) -> bool:
        cpu = {"requests": {"cpu": "100m"}}
        spec = {"containers": [{"name": "c", "image": "x", "resources": cpu}]}
        self.unsure = name
        code, obj = call(connection, "POST", PODS, {"metadata": {"name": name}, "spec": spec})
        if code != 201:
            self.surprise = obj
            return False
        self.alive_names[name] = int(obj["metadata"]["resourceVersion"])
        self.acknowledged += 1
        return True

    def delete(self, connection: http.client.HTTPSConnection, name: str) -> bool:
        self.unsure = name
        code, obj = call(connection, "DELETE", f"{PODS}/{name}")
        if code != 200:
            self.surprise = obj
            return False
        self.alive_names.pop(name)
        self.deleted.add(name)
        self.acknowledged += 1
        return True


def check(server: Server, writers: list[Writer], newest: int, story: str) -> int:
    """Every acknowledgement holds, and the quota counts the pods that are there; the revision the server is at."""
    connection = server.connect()
    code, listed = call(connection, "GET", PODS)
    assert code == 200
    found = {pod["metadata"]["name"]: int(pod["metadata"]["resourceVersion"]) for pod in listed["items"]}
    revision = int(listed["metadata"]["resourceVersion"])
    assert revision >= newest, f"revisions only grow, {story}"
    for writer in writers:
        assert writer.surprise is None, (writer.surprise, story)
        for name, version in writer.alive_names.items():
            if name != writer.unsure or name in found:
                assert found.get(name) == version, f"{name} was acknowledged at {version}, {story}"
        assert not writer.deleted & found.keys(), f"an acknowledged deletion came back, {story}"
    _, quota = call(connection, "GET", QUOTA)
    used = quota["status"]["used"]
    assert Quantity.parse(used["pods"]) == Quantity.parse(len(found)), story  # as numbers: a thousand pods are "1k"
    assert Quantity.parse(used["requests.cpu"]) == Quantity.parse(f"{100 * len(found)}m"), story
    connection.close()
    return revision


def one_directory(directory: Path, chance: random.Random, rounds: int, story: str) -> int:
    """Kill the server of one data directory so often; how many writes it acknowledged."""
    directory.mkdir()
    server = Server(directory)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1000000", "requests.cpu": "1000000"}}}
    assert call(server.connect(), "POST", QUOTA.rpartition("/")[0], quota)[0] == 201
    everyone: list[Writer] = []
    newest = 0
    try:
        for number in range(rounds):
            writers = [Writer(server, f"r{number}-w{writer}") for writer in range(WRITERS)]
            for writer in writers:
                writer.start()
            started = time.monotonic()
            enough = chance.randint(1, 20)
            while sum(writer.acknowledged for writer in writers) < enough and time.monotonic() - started < 10:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.1))
            server.kill()
            for writer in writers:
                writer.join(60)
            everyone += writers
            server = Server(directory)
            newest = check(server, everyone, newest, f"{story}, round {number} in {directory.name}")
    finally:
        server.kill()
    return sum(writer.acknowledged for writer in everyone)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("total", [pytest.param(KILLS, id=f"{KILLS} kills")])
def test_acknowledged_writes_survive_kill_9(tmp_path: Path, total: int) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    acknowledged = 0
    for start in range(0, total, KILLS_PER_DIRECTORY):
        rounds = min(KILLS_PER_DIRECTORY, total - start)
        acknowledged += one_directory(tmp_path / f"directory-{start}", chance, rounds, f"seed {seed}")
    print(f"{total} kills, {acknowledged} acknowledged writes, none lost")
    assert acknowledged > total
