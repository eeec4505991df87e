"""An unmodified kube-apiserver and kube-scheduler, and our scheduler beside them: by its own, and as an extender.

Nodes have no kubelet; what one would say of them, and what our agents would report, is written by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from tools.stock import find

from tests.stock.kube_apiserver import acting_as, free_ports, kube_apiserver, process
from tests.stock.needs import needs_stock
from tests.stock.scheduling.stories import NUMA, POOL_FULL, POOLS, WEB, Raw, node, pod, report
from tests.stock.test_stock_apiserver import Stock, eventually

pytestmark = [*needs_stock("kube-apiserver", "etcd", "kube-scheduler", "helm"), pytest.mark.kubectl]
PATIENCE = 90
STOCK, OURS = "default-scheduler", "kubeqos"
EXTENDED = Path(__file__).parents[3] / "examples" / "stock" / "kube-scheduler.yaml"


class Cluster(Stock):
    def put(self, raw: Raw) -> None:
        """An object with its status, which is a write of its own."""
        kind, name, status = raw["kind"], raw["metadata"]["name"], {"status": raw.pop("status")}
        self.kubectl("create", "-f", "-", manifest={**raw, "spec": {}})
        self.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
        if kind == "Node":
            self.kubectl("patch", "node", name, "-p", '{"spec": {"taints": null}}')  # a controller-manager would

    def ask(self, name: str, by: str, *words: Any, **more: Any) -> None:
        raw = pod(name, *words, schedulerName=by, terminationGracePeriodSeconds=0, **more)
        del raw["metadata"]["uid"], raw["status"]
        self.kubectl("create", "-f", "-", manifest=raw)

    def lands(self, name: str) -> str:
        return str(eventually(lambda: self.node_of(name), PATIENCE))

    def waits(self, name: str, why: str) -> None:
        eventually(lambda: why in self.condition(name), PATIENCE)

    def clean(self) -> None:
        self.gone("--all")

    def gone(self, *names: str) -> None:
        """Deleted at once: there is no kubelet that would say that they have ended."""
        self.kubectl("delete", "pods", *names, "--grace-period=0", "--force")


def extended(folder: Path, kubeconfig: Path, port: int) -> Path:
    """The configuration of the page, with this machine's addresses."""
    config = yaml.safe_load(EXTENDED.read_text())
    config["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    config["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}/extender"
    path = folder / "kube-scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        time.sleep(0.2)
        return False


def installed_by_helm(made: Cluster, program: list[str], chart: Path) -> None:
    """By the chart, which renders to what `kubeqos install` applies."""
    [helm] = find("helm") or ()
    environment = {**os.environ, "KUBECONFIG": str(made.kubeconfig), "HOME": str(chart.parent)}

    def run(*words: str) -> str:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def listed(text: str) -> list[Any]:
        found = [raw for raw in yaml.safe_load_all(text) if raw]
        return sorted(found, key=lambda raw: (raw["kind"], raw["metadata"]["name"]))

    classes = EXTENDED.with_name("classes.yaml")
    run(*program, "install", "--chart", str(chart))
    chosen = ["--set", "image=registry.example/kubeqos:1", "--set-file", f"classes={classes}"]
    rendered = run(str(helm), "template", "kubeqos", str(chart), "--include-crds", *chosen)
    same = ["--image", "registry.example/kubeqos:1", "--classes", str(classes), "--dry-run"]
    assert listed(rendered) == listed(run(*program, "install", *same))
    assert "STATUS: deployed" in run(str(helm), "install", "kubeqos", str(chart), *chosen)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    [scheduler] = find("kube-scheduler") or ()
    program = [sys.executable, "-m", "kubeqos.cli.main"]
    with tempfile.TemporaryDirectory(prefix="kq-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        made = Cluster(kubeconfig)
        installed_by_helm(made, program, folder / "chart")
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for raw in (node("pools"), node("numa"), node("plain"), report("pools", POOLS, slow=1), report("numa", NUMA)):
            made.put(raw)
        [port] = free_ports(1)
        account = acting_as(kubeconfig, "kubeqos-scheduler")  # with the rights of the installation, no more
        ours = [*program, "scheduler", "--stock", "--kubeconfig", str(account), "--port", str(port), "--leader-elect"]
        ours += ["--leader-elect-resource-namespace", "kubeqos-system"]
        stack.enter_context(process(ours, folder, "scheduler"))
        eventually(lambda: answers(port), PATIENCE)
        words = [str(scheduler), "--config", str(extended(folder, kubeconfig, port)), "--secure-port=0"]
        stack.enter_context(process(words, folder, "kube-scheduler"))
        made.kubectl("create", "priorityclass", "vital", "--value=1000")
        yield made


@pytest.mark.parametrize("by", [OURS, STOCK])
def test_pools_numa_nodes_and_classes_decide(cluster: Cluster, by: str) -> None:
    cluster.clean()
    cluster.ask("plain", by, "1", nodeSelector={"kubernetes.io/hostname": "plain"})
    assert cluster.lands("plain") == "plain"
    cluster.ask("slow", by, "1", "blockio=slow")
    assert cluster.lands("slow") == "pools"
    cluster.ask("second", by, "1", "blockio=slow")
    cluster.waits("second", "QoS class blockio=slow exhausted (1/1 used)")
    cluster.waits("second", "QoS resource blockio not available")
    here = {"nodeSelector": {"kubernetes.io/hostname": "pools"}, "annotations": WEB}
    cluster.ask("web", by, "1", **here)
    assert cluster.lands("web") == "pools"
    cluster.ask("more", by, "1", **here)
    cluster.waits("more", POOL_FULL)
    cluster.ask("wide", by, "4", nodeSelector={"kubernetes.io/hostname": "numa"})
    cluster.waits("wide", "NUMA")
    cluster.gone("slow", "web")
    # Nothing else happens here: a stock scheduler that asked before the extender had heard of it asks again even so.
    assert cluster.lands("second") == "pools"
    assert cluster.lands("more") == "pools"


@pytest.mark.parametrize("by", [OURS, STOCK])
def test_the_important_pod_has_the_class(cluster: Cluster, by: str) -> None:
    cluster.clean()
    # A stock scheduler looks for victims where it is short of something itself: of CPUs, here.
    cluster.ask("holder", by, "4", "blockio=slow")
    assert cluster.lands("holder") == "pools"
    cluster.ask("other", by, "1", nodeSelector={"kubernetes.io/hostname": "pools"}, annotations=WEB)
    assert cluster.lands("other") == "pools"
    cluster.ask("vital", by, "2", "blockio=slow", priorityClassName="vital")
    assert cluster.lands("vital") == "pools"
    names = {one["metadata"]["name"] for one in cluster.get("pods")["items"]}
    assert "vital" in names and "holder" not in names


def test_each_says_who_placed_a_pod(cluster: Cluster) -> None:
    cluster.clean()
    for by in (OURS, STOCK):
        cluster.ask(f"by-{by}", by, "1")
        assert cluster.lands(f"by-{by}")

    def placed() -> dict[str, str]:
        events = cluster.get("events")["items"]
        found = [one for one in events if one["reason"] == "Scheduled" and one["involvedObject"]["name"][:3] == "by-"]
        return {
            one["involvedObject"]["name"]: one.get("reportingComponent") or one["source"]["component"] for one in found
        }

    eventually(lambda: placed() == {f"by-{by}": by for by in (OURS, STOCK)}, PATIENCE)


def test_a_right_that_is_taken_away_is_missed(cluster: Cluster) -> None:
    """A few on a real server; all of them on ours (tests/stock/test_rights.py)."""
    cluster.clean()
    [number] = [
        number
        for number, rule in enumerate(cluster.get("clusterrole", "kubeqos-scheduler")["rules"])
        if rule["resources"] == ["pods/binding"]
    ]
    rule = f"/rules/{number}/verbs"
    for verbs in (["get"], ["create"]):
        patch = json.dumps([{"op": "replace", "path": rule, "value": verbs}])
        cluster.kubectl("patch", "clusterrole", "kubeqos-scheduler", "--type=json", "-p", patch)
        if verbs == ["get"]:

            def denied() -> bool:
                """It takes a moment until a server knows of a change of rights."""
                cluster.clean()
                cluster.ask("unbound", OURS, "1")
                eventually(lambda: "binding rejected" in said() or cluster.node_of("unbound"), PATIENCE)
                return not cluster.node_of("unbound")

            def said() -> str:
                return str([one["message"] for one in cluster.get("events")["items"]])

            eventually(denied, PATIENCE)
    assert cluster.lands("unbound")
