"""A server whose disk is full: writes are turned away without a 5xx, reads go on, and freed space is enough."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeqos.apiserver.local import LOCAL, LocalTransport
from kubeqos.apiserver.observe import Audit
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Answer, Call
from kubeqos.codec import decode_json, encode_json
from kubeqos.store import Store
from kubeqos.web.pki import Pki

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_writes_are_turned_away_reads_go_on_and_room_is_enough(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "kubeqos.db", max_bytes=3_000_000)
    server = ApiServer(Settings(tmp_path, audit=False), store, Pki(tmp_path / "pki"))
    async with server.running():
        wire = LocalTransport(server.application, LOCAL)

        async def create(name: str) -> Answer:
            body = {"metadata": {"name": name}, "data": {"text": "x" * 400_000}}
            return await wire.send(Call("POST", MAPS, body=encode_json(body)))

        codes = [(await create(f"m{number}")).status for number in range(12)]
        made = [number for number, code in enumerate(codes) if code == 201]
        assert set(codes) == {201, 429}, "refused, but not by a failure of the server"
        refused = decode_json((await create("more")).body)
        assert (refused["reason"], refused["code"]) == ("TooManyRequests", 429)
        assert "the disk is full" in refused["message"] and "free space" in refused["message"]
        together = await asyncio.gather(*(create(f"t{number}") for number in range(5)))
        assert {answer.status for answer in together} == {429}
        listed = decode_json((await wire.send(Call("GET", MAPS))).body)
        assert len([one for one in listed["items"] if "text" in (one.get("data") or {})]) == len(made)
        for number in made[1:]:
            body = {"metadata": {"name": f"m{number}"}, "data": {}}
            await wire.send(Call("PUT", f"{MAPS}/m{number}", body=encode_json(body)))
        answers = []
        for _ in range(20):  # what was overwritten is forgotten step by step
            answers.append((await create("more")).status)
            await asyncio.sleep(0.05)
        assert 201 in answers
        assert store.failure is None


def test_an_audit_log_that_cannot_be_rotated_goes_on_in_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit(tmp_path / "audit.log", max_bytes=10)
    request = Request("GET", "/api", {}, "", "", identity=LOCAL)

    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("builtins.open", full)
        for _ in range(2):
            audit.record(request, "", 200, 0.0, 0.0)
            audit.flush()
    audit.record(request, "", 200, 0.0, 0.0)
    audit.close()
    lines = [file.read_text().count("\n") for file in sorted(tmp_path.glob("audit.log*"))]
    assert sum(lines) == 3
