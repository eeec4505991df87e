"""`kubeqos dashboard` beside a real Kubernetes API server: maps, pods, reasons, and what an identity may not see."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeqos.codec import encode_yaml
from tests.dashboard.objects import assignments, node, pod
from tests.dashboard.test_beside import Beside, beside
from tests.scenarios.cluster import KUBECTL
from tests.stock.kube_apiserver import kube_apiserver
from tests.stock.needs import needs_stock

pytestmark = [*needs_stock("kube-apiserver", "etcd"), pytest.mark.kubectl]
SECONDS = 60.0


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """A server with a node of ours, a namespace of bob's, and a pod in each of two namespaces."""
    with tempfile.TemporaryDirectory(prefix="kq-") as folder, kube_apiserver(Path(folder)) as found:
        on = node(placed=assignments(hpc="!4-7"))
        del on["status"]["qosResources"]  # which Kubernetes does not know
        apply(found, on)
        run(found, "patch", "node", "n1", "--subresource=status", "--patch", encode_yaml({"status": on["status"]}))
        for place in ("bobs", "secret"):
            run(found, "create", "namespace", place)
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": place},
            }
            apply(found, account)
            made = pod("web", namespace=place)
            del made["metadata"]["uid"]
            apply(found, made)
        # The role `view` is put together by kube-controller-manager, which does not run here.
        run(found, "create", "role", "reads", "-n", "bobs", "--verb=get,list,watch", "--resource=pods,events")
        run(found, "create", "rolebinding", "bob", "-n", "bobs", "--role=reads", "--user=bob")
        yield found


def run(kubeconfig: Path, *words: str, given: str = "") -> None:
    command = [str(KUBECTL), "--kubeconfig", str(kubeconfig), *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def apply(kubeconfig: Path, raw: dict[str, Any]) -> None:
    run(kubeconfig, "apply", "-f", "-", given=encode_yaml(raw))


def until(found: Beside, path: str, true: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not true(told := found.ask("GET", path).body):
        assert time.monotonic() < deadline, told
        time.sleep(0.1)
    return told


def test_the_administrator_sees_the_machine_and_follows_pods(kubeconfig: Path) -> None:
    with beside(kubeconfig) as found:
        told = until(found, "cluster", lambda told: "n1" in told.get("nodes", ()))
        assert told["nodes"]["n1"]["exclusive"] == 4
        drawn = found.ask("GET", "nodes/n1").body
        assert drawn["layout"] and any("hpc" in str(one) for one in drawn["owners"])
        later = pod("later", namespace="bobs")
        del later["metadata"]["uid"]
        apply(kubeconfig, later)
        until(found, "pods", lambda told: "bobs/later" in told["pods"])
        assert found.ask("GET", "pods/bobs/later").body["qosClass"] == "Burstable"


def test_an_identity_of_one_namespace_sees_that_one(kubeconfig: Path) -> None:
    document = yaml.safe_load(kubeconfig.read_text())
    for user in document["users"]:
        user["user"] |= {"as": "bob", "as-groups": ["system:authenticated"]}
    other = kubeconfig.with_name("bob.kubeconfig")
    other.write_text(yaml.safe_dump(document))
    with beside(other, "-n", "bobs") as found:
        until(found, "pods", lambda told: "bobs/web" in told.get("pods", ()))
        assert all(key.startswith("bobs/") for key in found.ask("GET", "pods").body["pods"])
        assert found.ask("GET", "cluster").body["leftOut"] == ["nodes: this user may not list them"]
        assert found.ask("GET", "pods/secret/web").code == 404
