"""Our kinds on a real API server: their schemas are accepted, good objects are kept, bad ones are refused."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kubeqos.codec import decode_json, encode_yaml
from kubeqos.manifests import read
from kubeqos.stock.convert import to_stock
from tests.scenarios.cluster import KUBECTL
from tests.stock.kube_apiserver import kube_apiserver
from tests.stock.needs import needs_stock
from tests.stock.refusals import BY_RULE, GOLD, REFUSALS, own

pytestmark = [*needs_stock("kube-apiserver", "etcd"), pytest.mark.kubectl]
EXAMPLES = Path(__file__).parents[2] / "examples" / "qos-classes"


class Server:
    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), "--kubeconfig", str(self._kubeconfig), *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)

    def apply(self, *objects: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return self.kubectl("apply", "-f", "-", given="---\n".join(map(encode_yaml, objects)))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="kq-") as folder, kube_apiserver(Path(folder)) as kubeconfig:
        server = Server(kubeconfig)
        definitions = server.kubectl("apply", "-f", str(files("kubeqos.stock") / "crds"))
        assert definitions.returncode == 0, definitions.stderr
        ready = server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        assert ready.returncode == 0, ready.stderr
        yield server


def test_no_definition_is_warned_of(server: Server) -> None:
    """A schema that is not structural is stored, with a condition that says so."""
    crds = decode_json(server.kubectl("get", "crd", "-o", "json").stdout.encode())["items"]
    assert len(crds) == 5
    for crd in crds:
        conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_converted_examples_are_kept_whole(server: Server) -> None:
    objects = to_stock(
        [manifest.raw for manifest in read([str(EXAMPLES / "quota.yaml"), str(EXAMPLES / "limit-range.yaml")])]
    )
    applied = server.apply(*objects)
    assert applied.returncode == 0, applied.stderr
    for raw in objects:
        plural = raw["kind"].lower() if raw["kind"].endswith("s") else f"{raw['kind'].lower()}s"
        stored = decode_json(server.kubectl("get", plural, raw["metadata"]["name"], "-o", "json").stdout.encode())
        assert stored["spec"] == raw["spec"]


@pytest.mark.parametrize(("raw", "what"), REFUSALS)
def test_what_makes_no_sense_is_refused(server: Server, raw: dict[str, Any], what: str) -> None:
    refused = server.apply(raw)
    assert refused.returncode != 0
    assert what in refused.stderr


def test_a_class_shows_what_it_is(server: Server) -> None:
    assert server.apply(own("QOSClass", {**GOLD, "description": "half of the cache"})).returncode == 0
    shown = server.kubectl("get", "qosclasses").stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["NAME", "RESOURCE", "CLASS", "LEVEL", "COUNTED"],
        ["x", "rdt", "gold", "container", "false"],
    ]


@pytest.mark.parametrize(("before", "after", "what"), BY_RULE)
def test_what_an_object_speaks_of_does_not_change(
    server: Server, before: dict[str, Any], after: dict[str, Any], what: str
) -> None:
    assert server.apply(before).returncode == 0
    refused = server.apply(after)
    assert refused.returncode != 0
    assert what in refused.stderr
