"""Resource plugins on a stock node: the kubelet runs the pods, our agent and the CPU plugin say on which CPUs.

Nothing of Kubernetes modified. The machine has two CPUs at least; the pool `online` has the first of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.shared import cgroups
from tests.stock.kube_apiserver import process
from tests.stock.kubelet import NODE
from tests.stock.needs import needs_stock
from tests.stock.whole import PARTS, ROOT, Whole, stock_cluster

pytestmark = [*needs_stock(*PARTS, root=True), pytest.mark.kubectl]
INSTALL = "kubeqos install --image registry.example/kubeqos:1"
ROLES = {"web": {"pool": "online"}, "storage": {"dedicated": True}}
HALF = {"requests": {"cpu": "500m"}}
WEB = {"kubernetes.io/pod-role": "web"}


class Pools(Whole):
    def set_pool(self, *sizes: str) -> None:
        socket = self.folder / "cores" / "plugins_registry" / "cpu.sock"
        words = [sys.executable, "-m", "kubeqos.cli.main", "plugin", "cpu", "set-pool", "--socket", str(socket), *sizes]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        self.start_agent("--node-config", str(self.folder / "node.yaml"))

    def told(self) -> dict[str, str]:
        found: dict[str, str] = (self.get("nodeqos", NODE).get("status") or {}).get("topology") or {}
        return found

    def plugins(self) -> list[str]:
        status = self.get("nodeqos", NODE).get("status") or {}
        return [one["name"] for one in status.get("plugins", ()) if one["healthy"]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Pools]:
    with stock_cluster(Pools) as made, ExitStack() as stack:
        made.run(INSTALL)
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        made.kubectl("create", "namespace", "team")
        state, config = made.folder / "cores", made.folder / "cpu.json"
        registry = state / "plugins_registry"
        registry.mkdir(parents=True)
        (made.folder / "node.yaml").write_text(
            f"apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\nprofile: qrm\nstateDir: {state}\n"
            "qosResourcePlugins: [cpu]\nqosResourceManagerReconcilePeriod: 1s\n"
        )
        config.write_text(json.dumps({"pools": {"online": {"cpus": "0"}}, "roles": ROLES}))
        words = [sys.executable, "-m", "kubeqos.cli.main", "plugin", "cpu", "--registry", str(registry)]
        words += ["--config", str(config), "--state", str(made.folder / "cpu-state.json")]
        stack.enter_context(process(words, made.folder, "plugin"))
        made.start()
        made.eventually("a NodeQOS", lambda: made.get("nodeqoses")["items"])
        made.eventually("the plugin is known", lambda: made.plugins() == ["cpu"])
        with made.watched() as seen:
            yield made
        made.kubectl("delete", "pods", "--all", "-n", "team", "--now")
        assert seen[0]["violations"] == [] and seen[0]["owners"] > 0, seen


@pytest.mark.proves("qrm-pools")
def test_pools_move_running_pods(cluster: Pools) -> None:
    cluster.pod("web", WEB, HALF)
    cluster.pod("other", {}, HALF)
    cluster.eventually("web is in its pool", lambda: cluster.cpus("web") == "0")
    cluster.eventually("other is in what is left", lambda: cluster.cpus("other") == "1")
    cluster.set_pool("online=1-1")
    cluster.eventually("web is moved", lambda: cluster.cpus("web") == "1")
    cluster.eventually("other is moved", lambda: cluster.cpus("other") == "0")
    said = cluster.eventually("told", lambda: cluster.told().get("kubeqos.io/assignments"))
    assert "team/web/c" in said
    assert "team/web/c" in cluster.run(f"kubeqos map {NODE}")
    assert "ResourcePluginsReady" in cluster.run(f"kubeqos describe node {NODE}")


def test_a_pod_that_our_scheduler_places_runs_where_it_belongs_and_keeps_its_cpus_when_resized(cluster: Pools) -> None:
    words = cluster.ours("scheduler", "--stock")
    with process(words, cluster.folder, "scheduler"):
        cluster.pod("placed", WEB, HALF, schedulerName="kubeqos")
        cluster.eventually("placed is in its pool", lambda: cluster.cpus("placed") == "1")
    events = cluster.get("events", "-n", "team", "--field-selector", "involvedObject.name=placed,reason=Scheduled")
    assert {one.get("reportingComponent") or one["source"]["component"] for one in events["items"]} == {"kubeqos"}
    cgroup = cluster.runs("placed")
    assert cgroups.value(cgroup, "cpu.shares") == "512"
    cluster.resize("placed", "250m")
    cluster.eventually("resized", lambda: cgroups.value(cgroup, "cpu.shares") == "256")
    assert cluster.runs("placed") == cgroup and cluster.cpus("placed") == "1"
    cluster.kubectl("delete", "pod", "placed", "-n", "team", "--now")


@pytest.mark.proves("qrm-pools", "restart")
def test_what_was_decided_outlives_the_agent(cluster: Pools) -> None:
    cluster.agent.close()
    cluster.agent = ExitStack()
    assert cluster.cpus("web") == "1"
    cluster.start()
    cluster.eventually("known again", lambda: cluster.plugins() == ["cpu"])
    assert cluster.cpus("web") == "1"
    cluster.set_pool("online=0-0")
    cluster.eventually("web is moved", lambda: cluster.cpus("web") == "0")


@pytest.mark.proves("qrm-pools", "exclusive-cpus")
def test_who_asks_for_cores_of_its_own_is_told_why_it_waits_and_gets_them(cluster: Pools) -> None:
    cluster.kubectl("delete", "pod", "other", "web", "-n", "team", "--now")
    cluster.pod("plain", {})
    cluster.eventually("plain has what is left", lambda: cluster.cpus("plain") == "1")
    whole = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    cluster.pod("storage", {"kubernetes.io/pod-role": "storage"}, whole, owns="1")
    cluster.eventually("refused", lambda: "runs in shared, which has no CPUs" in cluster.said_of("storage"))
    assert "running" not in cluster.pods("storage")["status"]["containerStatuses"][0]["state"]
    cluster.kubectl("delete", "pod", "plain", "-n", "team", "--now")
    assert cluster.cpus("storage") == "1"
    cluster.pod("late", {})
    assert cluster.cpus("late") == "0", "nobody runs on CPUs that somebody owns"


def used(cgroups_: list[str], seconds: float) -> list[float]:
    """How much of a CPU several containers used while some seconds went by."""
    before, begun = [int(cgroups.value(one, "cpu.usage_ns")) for one in cgroups_], time.monotonic()
    time.sleep(seconds)
    after, elapsed = [int(cgroups.value(one, "cpu.usage_ns")) for one in cgroups_], time.monotonic() - begun
    return [(late - early) / 1e9 / elapsed for early, late in zip(before, after, strict=True)]


@pytest.mark.proves("qrm-pools", "resize")
def test_who_has_cores_of_its_own_uses_all_of_them_whatever_its_limit(cluster: Pools) -> None:
    """Two burners with a tenth of a CPU as their limit: the owner is not held to it, by the kubelet's resize either."""
    cluster.kubectl("delete", "pod", "storage", "late", "-n", "team", "--now")
    amounts = {"cpu": "100m", "memory": "32Mi"}
    tenth = {"requests": amounts, "limits": amounts}
    cluster.pod("busy", {"kubernetes.io/pod-role": "storage"}, tenth, "yes >/dev/null", owns="1")
    cluster.pod("held", {}, tenth, "yes >/dev/null")
    cgroups.file(cluster.kubelet.cgroup_root, "cpu.shares").write_text("10000")  # whatever else is done here meanwhile
    both = [cluster.runs("busy"), cluster.runs("held")]
    assert (cluster.cpus("busy"), cluster.cpus("held")) == ("1", "0")

    def is_free() -> bool:
        """A quota would let it have a tenth, whatever else runs here."""
        owner, other = used(both, 3)
        assert other < 0.15, other
        return owner > 0.2

    def quotas() -> list[str]:
        return [cgroups.value(one, "cpu.quota") for busy in both for one in (busy, busy.rpartition("/")[0])]

    assert quotas() == ["-1", "-1", "10000", "10000"]
    cluster.eventually("it uses more than its limit", is_free)
    for name in ("busy", "held"):
        cluster.resize(name, "120m", "requests", "limits")
    cluster.eventually("the kubelet has resized both", lambda: cgroups.value(both[0], "cpu.shares") == "122")
    cluster.eventually("the owner alone has no quota", lambda: quotas() == ["-1", "-1", "12000", "12000"])
    cluster.eventually("it still uses more than its limit", is_free)
