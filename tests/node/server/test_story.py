"""`kubeqos story POD`: through the API server to the pod's node, over HTTPS; and what it prints replays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubeqos.cli.main import application
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS
from kubeqos.codec import decode_json
from kubeqos.errors import InputError
from tests.apiserver.live import LiveServer, live_server
from tests.node.pods import container, pod
from tests.node.server.test_services import unnamed
from tests.node.server.test_serving import node, started
from tests.node.test_live import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api") as live:
        yield live


async def kubeqos(server: LiveServer, *words: str) -> Result:
    """Run the command line beside the node's loop."""
    line = [*words, "--kubeconfig", str(server.kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, application, line)


async def restarted(api: HttpApi, name: str) -> None:
    async def once() -> bool:
        status = (await api.get(PODS, name, "default")).get("status") or {}
        return any(one["restartCount"] >= 1 for one in status.get("containerStatuses") or ())

    await until("the container restarts", once)


async def test_what_a_live_node_did_is_told_and_replays(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, _running, api):
        crash = container("boom", command=["sh", "-c", "sleep 1; exit 3"])
        await started(api, pod("web", container(readinessProbe={"exec": {"command": ["true"]}}), crash))
        await restarted(api, "web")
        words = await kubeqos(server, "story", "web")
        assert words.exit_code == 0, words.output
        first, *lines = words.output.splitlines()
        assert first.startswith("default/web (") and "Z  known" in lines[0]
        assert any("Starting → Running" in line for line in lines)
        printed = await kubeqos(server, "story", "web", "-o", "playbook")
        raw: Any = decode_json((await kubeqos(server, "story", "web", "-o", "json")).output)
        assert raw["name"] == "web" and raw["steps"][0]["stimulus"]["kind"] == "PodSet"
    names: dict[str, Any] = {}
    exec(compile(printed.output, "recorded.py", "exec"), names)
    names["test_web"]()
    assert printed.output.count("        >> at(") > 8


async def test_who_has_no_story_is_told_why(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, _running, api):
        await started(api, pod("web"))
        await api.create(
            PODS, unnamed({**pod("lost"), "spec": {"containers": [container()], "nodeSelector": {"a": "b"}}})
        )
        waiting = await kubeqos(server, "story", "lost")
        assert isinstance(waiting.exception, InputError) and "is on no node yet" in str(waiting.exception)
        nobody = await kubeqos(server, "story", "nobody")
        assert 'pods "nobody" not found' in str(nobody.exception)
