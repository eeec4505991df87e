"""Volumes that a node makes by itself, and what becomes of a pod whose volume it cannot make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.node.cri.context import Context
from kubeqos.node.runtime.volumes import MountProblem, content, decoded, needs, write_all
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.rules.qos.cgroups import NodeMemory
from tests.node.pods import container, pod
from tests.node.world import World

LOOKUP = {("ConfigMap", "settings"): {"a": b"1", "b": b"2"}, ("Secret", "keys"): {"key": b"\x00\xff"}}


def with_volumes(*volumes: dict[str, Any]) -> AdmittedPod:
    raw = pod("web", volumes=list(volumes), uid="web")
    raw["metadata"]["labels"] = {"app": "web", "tier": "front"}
    return AdmittedPod.of(raw)


def context(folder: Path) -> Context:
    return Context(folder / "logs", folder, NodeMemory(1 << 30, 1 << 30), node_name="n1")


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ({"configMap": {"name": "settings"}}, {"a": b"1", "b": b"2"}),
        ({"configMap": {"name": "settings", "items": [{"key": "b", "path": "deep/b"}]}}, {"deep/b": b"2"}),
        ({"configMap": {"name": "absent", "optional": True}}, {}),
        ({"secret": {"secretName": "keys"}}, {"key": b"\x00\xff"}),
        (
            {
                "downwardAPI": {
                    "items": [
                        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    ]
                }
            },
            {"name": b"web", "labels": b'app="web"\ntier="front"'},
        ),
        (
            {"projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "keys"}}]}},
            {"a": b"1", "b": b"2", "key": b"\x00\xff"},
        ),
    ],
)
def test_filled_volumes(tmp_path: Path, volume: dict[str, Any], files: dict[str, bytes]) -> None:
    named = {"name": "v", **volume}
    assert content(with_volumes(named), named, context(tmp_path), LOOKUP) == files


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"configMap": {"name": "absent"}}, 'configmap "absent" not found'),
        ({"secret": {"secretName": "keys", "items": [{"key": "no", "path": "x"}]}}, "has no key no"),
        ({"nfs": {"server": "x", "path": "/"}}, "unsupported type nfs"),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}, 'serviceaccount "default" not'),
        ({"projected": {"sources": [{"clusterTrustBundle": {"path": "ca"}}]}}, "clusterTrustBundle"),
        ({"configMap": {"name": "settings", "items": [{"key": "a", "path": "../out"}]}}, "outside"),
    ],
)
def test_what_cannot_be_made(tmp_path: Path, volume: dict[str, Any], why: str) -> None:
    with pytest.raises(MountProblem, match=why):
        write_all(with_volumes({"name": "v", **volume}), context(tmp_path), LOOKUP)


def test_volumes_are_written_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    made = with_volumes({"name": "v", "configMap": {"name": "settings"}}, {"name": "e", "emptyDir": {}})
    assert needs(made) == {("ConfigMap", "settings")}
    write_all(made, context(tmp_path), LOOKUP)
    folder = tmp_path / "pods/web/volumes/kubernetes.io~configmap/v"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"a": b"1", "b": b"2"}
    assert (tmp_path / "pods/web/volumes/kubernetes.io~empty-dir/e").is_dir()
    write_all(made, context(tmp_path), {("ConfigMap", "settings"): {"b": b"3"}})
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"b": b"3"}


def test_binary_and_encoded_data_are_decoded() -> None:
    assert decoded("Secret", {"data": {"k": "AP8="}}) == {"k": b"\x00\xff"}
    assert decoded("ConfigMap", {"data": {"t": "x"}, "binaryData": {"b": "AP8="}}) == {"t": b"x", "b": b"\x00\xff"}


async def test_a_pod_with_a_volume_that_cannot_be_made_waits_and_says_so(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("web", container(), volumes=[{"name": "v", "nfs": {"server": "x", "path": "/"}}]))
        assert node.status(uid)["phase"] == "Pending" and not node.runtime.core.sandboxes
        text = 'Unable to attach or mount volumes: volume "v" has unsupported type nfs'
        assert ("FailedMount", text) in node.events


async def test_everything_of_a_pod_goes_with_it(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        mounts = [{"name": "scratch", "mountPath": "/tmp"}]
        uid = await node.start(
            pod("web", container(volumeMounts=mounts), volumes=[{"name": "scratch", "emptyDir": {}}])
        )
        mount, _ = node.running(uid)["main"].config.mounts  # the other is for its last words
        assert Path(mount.host_path).is_dir() and mount.container_path == "/tmp"
        await node.end(uid)
        await node.advance(3)
        assert not Path(mount.host_path).exists() and not list((tmp_path / "logs").iterdir())


async def test_last_words_are_shown_in_status(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("web", container(command=["sh", "-c", "sleep 2"]), restartPolicy="Never"))
        (words,) = node.running(uid)["main"].config.mounts
        assert words.container_path == "/dev/termination-log"
        Path(words.host_path).write_text("out of luck")
        await node.advance(3)
        assert node.container(uid)["state"]["terminated"]["message"] == "out of luck"
