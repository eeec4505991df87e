"""A plugin that leaves for good: nobody waits for it, its resources go, what it gave stays, and nothing revives it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeqos.cli.extend.plugin import command
from kubeqos.plugins.managers import Refusal
from kubeqos.plugins.registration import retirement
from kubeqos.qrm.sdk import Allocation, Capacity, Options, running
from kubeqos.qrm.settings import QrmSettings
from kubeqos.topology.alignment.hints import Policy
from tests.qrm.harness import admitted, pod, until
from tests.qrm.live import QUICK, Scripted, bench

LINK = {"x.io/link": "1"}


def link() -> Scripted:
    capacity = {"x.io/link": Capacity(4, node=True)}
    return Scripted("x.io/link", Allocation(quantity=1, envs={"LINK": "up"}), capacity=lambda: capacity)


def leave_word(folder: Path, name: str = "x.io/link") -> None:
    """What `kubeqos plugin retire` does."""
    (folder / "r").mkdir(exist_ok=True)
    retirement(folder / "r", name).write_text(name)


async def test_who_retires_is_waited_for_no_more_and_its_pods_are_told(folder: Path) -> None:
    async with bench(folder) as node:
        async with node.plugin(link()):
            await node.admit(pod("one", **LINK), Policy.BEST_EFFORT)
            assert [one.name for one in node.manager.node_resources()] == ["x.io/link"]
        await node.gone("x.io/link")
        refused = await node.admit(pod("two", **LINK), Policy.BEST_EFFORT)
        assert isinstance(refused, Refusal) and refused.retry, "one that is down is waited for"
        leave_word(folder)
        await until("it is forgotten", lambda: node.manager.endpoints.get("x.io/link") is None)
        assert node.manager.node_resources() == []
        refused = await node.admit(pod("two", **LINK), Policy.BEST_EFFORT)
        assert isinstance(refused, Refusal) and not refused.retry, "nobody waits, and nobody runs without"
        assert (refused.reason, refused.message) == (
            "OutOfx.io/link",
            "Node didn't have enough resource: x.io/link, whose resource plugin is retired",
        )
        assert not isinstance(await node.admit(pod("three", cpu="1"), Policy.BEST_EFFORT), Refusal)
        told = [(one.pod_uid, one.message) for one in node.events if one.reason == "ResourcePluginRetired"]
        assert told == [
            ("", "plugin x.io/link is retired; pods do not wait for it any more"),
            ("uid-one", "container container0 keeps what plugin x.io/link gave it: the plugin is retired"),
        ]
        held = node.manager.allocations.get("uid-one", "container0")
        assert held is not None and held.resources["x.io/link"].envs == {"LINK": "up"}
        saved = node.manager.save()
        assert "x.io/link" not in saved["plugins"]


async def test_a_restart_revives_nothing_and_a_plugin_that_comes_again_does(folder: Path) -> None:
    known = admitted(pod("one", **LINK))
    async with bench(folder) as node, node.plugin(link()):
        await node.admit(known.raw, Policy.BEST_EFFORT)
        saved = node.manager.save()  # of a moment at which it was still there
    leave_word(folder)
    async with bench(folder, settings=QUICK) as node:
        await node.manager.restore(saved, {known.uid: known})
        await until("it is forgotten again", lambda: node.manager.endpoints.get("x.io/link") is None)
        async with node.plugin(link()):
            assert not retirement(folder / "r", "x.io/link").exists()
            assert [one.name for one in node.manager.node_resources()] == ["x.io/link"]


@pytest.mark.parametrize("name", ["x.io/link", "cpu"])
async def test_what_the_settings_expect_is_waited_for_until_it_retires(folder: Path, name: str) -> None:
    """Then cores are what the node has of itself, and of anything else it has nothing."""
    settings = QrmSettings(reconcile_seconds=0.05, expected=frozenset({name}))
    async with bench(folder, settings=settings) as node:
        refused = await node.admit(pod("one", **{name: "1"}), Policy.BEST_EFFORT)
        assert isinstance(refused, Refusal) and "not registered yet" in refused.message and refused.retry
        leave_word(folder, name)
        await until("told", lambda: any(one.reason == "ResourcePluginRetired" for one in node.events))
        refused = await node.admit(pod("one", **{name: "1"}), Policy.BEST_EFFORT)
        assert isinstance(refused, Refusal) == (name != "cpu") and not getattr(refused, "retry", False)


async def test_who_holds_something_of_a_retired_plugin_keeps_it_when_it_grows(folder: Path) -> None:
    known, grown = (admitted(pod("one", **LINK, cpu=cpu)) for cpu in ("1", "2"))
    async with bench(folder) as node:
        async with node.plugin(link()):
            await node.admit(known.raw, Policy.BEST_EFFORT)
        leave_word(folder)
        await until("it is forgotten", lambda: node.manager.endpoints.get("x.io/link") is None)
        assert await node.manager.resize(known, grown) is None
        held = node.manager.allocations.get(known.uid, "container0")
        assert held is not None and held.resources["x.io/link"].envs == {"LINK": "up"}


async def test_a_plugin_says_itself_that_its_end_is_for_good(folder: Path) -> None:
    async with bench(folder) as node:
        async with running(link(), Options(folder / "r", retires=True)):
            await node.usable("x.io/link")
        await until("it is forgotten", lambda: node.manager.endpoints.get("x.io/link") is None)
        async with running(link(), Options(folder / "r")):
            await node.usable("x.io/link")
        await node.gone("x.io/link")
        assert node.manager.endpoints.get("x.io/link") is not None, "without that word it is waited for"


async def test_the_command_leaves_the_word_unless_the_plugin_runs(folder: Path) -> None:
    (folder / "r").mkdir(exist_ok=True)
    words = ["retire", "x.io/link", "--registry", str(folder / "r")]
    async with running(link(), Options(folder / "r")):
        failed = CliRunner().invoke(command, words)
        assert failed.exit_code and "plugin x.io/link still runs" in str(failed.exception)
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0 and "x.io/link is retired" in done.output
    assert retirement(folder / "r", "x.io/link").read_text() == "x.io/link"
    missing = CliRunner().invoke(command, ["retire", "x", "--registry", str(folder / "nowhere")])
    assert missing.exit_code and "there is no plugin folder" in str(missing.exception)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"unknown"])
async def test_a_word_about_nobody_harms_nobody(folder: Path, content: bytes) -> None:
    async with bench(folder) as node, node.plugin(link()):
        (folder / "r" / "odd.retired").write_bytes(content)
        await asyncio.sleep(0.1)
        assert [one for one in node.events if one.reason == "ResourcePluginRetired"] == []
        assert not isinstance(await node.admit(pod("one", **LINK), Policy.BEST_EFFORT), Refusal)
