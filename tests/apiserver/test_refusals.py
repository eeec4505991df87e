"""Nobody is told what a crash could take back: a refusal waits for the write that it rests on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeqos.apiserver.local import LOCAL, LocalTransport
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Answer, Call
from kubeqos.codec import encode_json
from kubeqos.store import Store
from kubeqos.store.writer import Job
from kubeqos.web.pki import Pki

MAPS = "/api/v1/namespaces/default/configmaps"


class SlowDisk:
    """Writes when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.quick = True

    def put(self, job: Job) -> None:
        self.jobs.append(job)
        if self.quick:
            self.go_on()

    def go_on(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()

    async def close(self) -> None:
        self.go_on()


def body(value: str) -> bytes:
    return encode_json({"metadata": {"name": "x"}, "data": {"value": value}})


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        (Call("DELETE", f"{MAPS}/x"), Call("PUT", f"{MAPS}/x", body=body("b")), 404),
        (Call("DELETE", f"{MAPS}/x"), Call("DELETE", f"{MAPS}/x"), 404),
        (Call("DELETE", f"{MAPS}/x"), Call("POST", MAPS, body=body("b")), 201),
        (Call("PUT", f"{MAPS}/x", body=body("b")), Call("POST", MAPS, body=body("c")), 409),
        (Call("PUT", f"{MAPS}/x", body=body("b")), Call("PUT", f"{MAPS}/x", body=body("b")), 200),
        (Call("PUT", f"{MAPS}/x", body=body("b")), Call("PUT", f"{MAPS}/x", {"dryRun": "All"}, body("c")), 200),
    ],
    ids=["update of a deleted", "delete of a deleted", "create over a deleted", "create", "same update", "dry run"],
)
async def test_an_answer_that_rests_on_a_write_comes_after_it(
    tmp_path: Path, first: Call, then: Call, told: int
) -> None:
    disk = SlowDisk()
    store = Store.open(tmp_path / "kubeqos.db", writer=lambda: disk)
    server = ApiServer(Settings(tmp_path, audit=False), store, Pki(tmp_path / "pki"))
    async with server.running():
        wire = LocalTransport(server.application, LOCAL)
        assert (await wire.send(Call("POST", MAPS, body=body("a")))).status == 201
        disk.quick = False
        before: asyncio.Task[Answer] = asyncio.create_task(wire.send(first))
        await asyncio.sleep(0.01)
        after: asyncio.Task[Answer] = asyncio.create_task(wire.send(then))
        await asyncio.sleep(0.05)
        assert not before.done() and not after.done()
        disk.quick = True
        disk.go_on()
        assert (await before).status == 200
        assert (await after).status == told
