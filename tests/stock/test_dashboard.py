"""`kubeqos dashboard` beside a real Kubernetes API server: maps, pods, reasons, and what an identity may not see."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeqos.codec import encode_yaml
from tests.dashboard.objects import assignments, node, pod
from tests.dashboard.test_beside import beside, until
from tests.scenarios.cluster import KUBECTL
from tests.stock.kube_apiserver import kube_apiserver
from tests.stock.needs import needs_stock

pytestmark = [*needs_stock("kube-apiserver", "etcd"), pytest.mark.kubectl]


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


def as_user(kubeconfig: Path, name: str) -> Path:
    document = yaml.safe_load(kubeconfig.read_text())
    for user in document["users"]:
        user["user"] |= {"as": name, "as-groups": ["system:authenticated"]}
    other = kubeconfig.with_name(f"{name}.kubeconfig")
    other.write_text(yaml.safe_dump(document))
    return other


def test_an_identity_of_one_namespace_sees_that_one(kubeconfig: Path) -> None:
    with beside(as_user(kubeconfig, "bob"), "-n", "bobs") as found:
        until(found, "pods", lambda told: "bobs/web" in told.get("pods", ()))
        assert all(key.startswith("bobs/") for key in found.ask("GET", "pods").body["pods"])
        assert found.ask("GET", "cluster").body["leftOut"] == ["nodes: this user may not list them"]
        assert found.ask("GET", "pods/secret/web").code == 404


def test_a_role_that_names_one_pod_shows_that_one_and_follows_it(kubeconfig: Path) -> None:
    run(kubeconfig, "create", "role", "one", "-n", "secret", "--verb=get", "--resource=pods", "--resource-name=web")
    run(kubeconfig, "create", "rolebinding", "uma", "-n", "secret", "--role=one", "--user=uma")
    other = pod("other", namespace="secret")
    del other["metadata"]["uid"]
    apply(kubeconfig, other)
    with beside(as_user(kubeconfig, "uma"), "-n", "secret") as found:
        until(found, "pods", lambda told: told.get("pods", {}).keys() == {"secret/web"})
        assert found.ask("GET", "session").body["sees"]["pods"] == "secret/web"
        assert found.ask("GET", "pods/secret/other").code == 404
        assert found.ask("GET", "pods/secret/web").body["name"] == "web"
        run(kubeconfig, "delete", "pod", "web", "-n", "secret", "--now")
        until(found, "pods", lambda told: told["pods"] == {})
