"""The short form of the campaign, and what it found, each by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from random import Random

import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.node.cri.observer import seen_container
from kubeqos.node.pod.observed import Stage
from kubeqos.stock.agent.adjusting import asked_shares
from tests.apiserver.live import LiveServer, live_server
from tests.badinput.campaign import Wishes, campaign
from tests.badinput.mutate import damaged, mutated
from tests.badinput.requests import Drawing

APPLY = {"Content-Type": "application/apply-patch+yaml"}


def test_the_same_seed_is_the_same_requests() -> None:
    first, second, other = (Drawing(seed, "t") for seed in (7, 7, 8))
    drawn = [one.draw() for one in [first] * 200]
    assert drawn == [second.draw() for _ in range(200)]
    assert drawn != [other.draw() for _ in range(200)]
    assert {one.what for one in drawn} > {"manifests", "patches", "queries", "protobuf"}


def test_what_is_mutated_is_left_alone_itself() -> None:
    raw = {"a": [1, {"b": "c"}], "d": None}
    for seed in range(200):
        mutated(Random(seed), raw)
        damaged(Random(seed), b"")
    assert raw == {"a": [1, {"b": "c"}], "d": None}


def test_a_few_hundred_requests_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(Wishes(requests=500, seed=3008)) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_requests_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(Wishes(requests=40_000, minutes=10, seed=1)) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fuzzed_messages_are_believed_or_refused() -> None:
    pytest.importorskip(
        "atheris", reason="atheris has no wheel for this Python: there is one for 3.11 to 3.13 on Linux"
    )
    words = [sys.executable, "-m", "tests.badinput.messages", "--runs", "50000"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


# what was found


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("found") / "data") as server:
        yield server


@pytest.mark.parametrize("metadata", [80, "x", [{"name": "x"}], True])
def test_an_applied_object_without_metadata_is_the_clients_mistake(live: LiveServer, metadata: object) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    answer = live.call("PATCH", "/api/v1/namespaces/default/configmaps/new?fieldManager=f", body, APPLY)
    assert answer.code == 400, answer.body


def test_a_state_of_containers_that_nobody_knows_is_none_that_runs() -> None:
    status = cri.ContainerStatus(state=7)  # type: ignore[arg-type]
    assert seen_container(status).stage is Stage.EXITED


@pytest.mark.parametrize(("noted", "asked"), [("512 20", 512), ("512 21", 20), ("", 20), ("9" * 5000 + " 20", 20)])
def test_shares_that_were_noted(noted: str, asked: int) -> None:
    assert asked_shares(20, noted) == asked
