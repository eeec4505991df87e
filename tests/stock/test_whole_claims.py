"""Claims for cores on a stock cluster: the scheduler allocates, the kubelet has them prepared, the kernel keeps them.

Nothing of Kubernetes modified: Dynamic Resource Allocation in front, a compute driver of KEP-3675 behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from kubeqos.model.cpuset import CpuSet
from tests.shared import cgroups
from tests.stock.kube_apiserver import process
from tests.stock.kubelet import NODE
from tests.stock.needs import needs_stock
from tests.stock.whole import OWNS, PARTS, ROOT, Whole, stock_cluster

pytestmark = [*needs_stock(*PARTS, root=True), pytest.mark.kubectl]
EXAMPLE = ROOT / "examples" / "stock" / "claim.yaml"


class Claims(Whole):
    def start(self) -> None:
        self.start_agent("--node-config", str(self.folder / "node.yaml"))

    def devices(self) -> list[Any]:
        return [one for each in self.get("resourceslices")["items"] for one in each["spec"].get("devices") or ()]

    def where(self, name: str, namespace: str = "default") -> str:
        return cgroups.value(self.runs(name, namespace), "cpuset.cpus")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Claims]:
    with stock_cluster(Claims) as made, ExitStack() as stack:
        made.run("kubeqos install --image registry.example/kubeqos:1")
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        made.kubectl("create", "namespace", "team")
        state = made.folder / "cores"
        registry = state / "plugins_registry"
        registry.mkdir(parents=True)
        (made.folder / "node.yaml").write_text(
            f"apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\nprofile: cci\nstateDir: {state}\n"
        )
        words = [sys.executable, "-m", "kubeqos.cli.main", "driver", "reference", "--registry", str(registry)]
        made.parts["driver"] = stack.enter_context(process(words, made.folder, "driver"))
        made.start()
        made.eventually("cores are published", made.devices)
        made.kubelet.runtime.add_image("registry.k8s.io/pause:3.10", ["sleep", "1000000"])
        with made.watched() as seen:
            yield made
        made.kubectl("delete", "pods", "--all", "-n", "team", "--now")
        assert seen[0]["violations"] == [] and seen[0]["owners"] > 0, seen


def test_cores_are_published_with_what_selectors_ask_of(cluster: Claims) -> None:
    first = next(one for one in cluster.devices() if one["name"] == "core-0")
    assert first["attributes"]["numaNode"] == {"int": 0}
    assert first["attributes"]["cpus"] == {"string": "0"}
    assert first["attributes"]["kind"] == {"string": "performance"}


@pytest.mark.proves("cci-claims", "exclusive-cpus")
def test_a_claim_gets_cores_and_others_leave_them(cluster: Claims) -> None:
    cluster.pod("plain", {})
    everything = cluster.cpus("plain")
    for raw in yaml.safe_load_all(EXAMPLE.read_text()):
        if raw["kind"] == "Pod":
            raw["spec"] |= {"hostNetwork": True, "terminationGracePeriodSeconds": 0}
            raw["metadata"]["labels"] = {OWNS: "1.full"}
        cluster.kubectl("apply", "-f", "-", manifest=raw)
    own = cluster.where("solver")
    [result] = cluster.get("resourceclaim", "one-core")["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["device"]) == ("cci.kubeqos.io", f"core-{own}"), (
        "the core that the scheduler chose"
    )
    [told] = cluster.get("resourceclaim", "one-core")["status"]["devices"]
    assert (told["device"], told["data"]) == (f"core-{own}", {"cpus": own, "numaNode": 0})
    described = cluster.kubectl("describe", "resourceclaim", "one-core")
    assert f"core-{own}" in described and "Cpus:" in described
    left = str(CpuSet.parse(everything) - CpuSet.parse(own))
    assert cluster.cpus("plain") == left, "it had left before the other one started"
    cluster.pod("late", {})
    assert cluster.cpus("late") == left


@pytest.mark.proves("cci-claims", "restart")
def test_a_restart_keeps_claims(cluster: Claims) -> None:
    own, left = cluster.where("solver"), cluster.cpus("plain")
    cluster.agent.close()
    cluster.agent = ExitStack()
    cluster.start()
    cluster.pod("later", {})
    # It may have started before the agent was back; then it is moved off.
    cluster.eventually("later is off the claim's core", lambda: cluster.cpus("later") == left)
    assert cluster.where("solver") == own


def test_what_no_driver_gives_is_not_prepared_and_says_why(cluster: Claims) -> None:
    claim = {"requests": [{"name": "cores", "exactly": {"deviceClassName": "cores.kubeqos.io"}}]}
    raw = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "all"}}
    cluster.kubectl("create", "-n", "team", "-f", "-", manifest={**raw, "spec": {"devices": claim}})
    asked = {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}, "claims": [{"name": "compute"}]}
    cluster.pod("greedy", {}, asked, resourceClaims=[{"name": "compute", "resourceClaimName": "all"}])
    cluster.eventually("refused", lambda: "must be 1, the cores of the container's claims" in cluster.said_of("greedy"))
    assert "running" not in str(cluster.pods("greedy")["status"].get("containerStatuses"))
    cluster.kubectl("delete", "pod", "greedy", "-n", "team", "--now")


def test_cores_of_a_pod_that_is_gone_are_everybodys(cluster: Claims) -> None:
    cluster.kubectl("delete", "pod", "solver", "--now")
    cluster.eventually("plain is back", lambda: len(CpuSet.parse(cluster.cpus("plain"))) == len(cluster.devices()))
    assert NODE in cluster.kubectl("get", "resourceslices")


def test_nothing_is_left_after_kubeqos_is_gone(cluster: Claims) -> None:
    everything = cluster.cpus("plain")
    for name, namespace in (("one-core", "default"), ("all", "team")):  # a controller-manager would give them back
        free = '{"metadata": {"finalizers": null}}'
        cluster.kubectl("patch", "resourceclaim", name, "-n", namespace, "--type=merge", "-p", free)
        cluster.kubectl("delete", "resourceclaim", name, "-n", namespace)
    claim = {"requests": [{"name": "cores", "exactly": {"deviceClassName": "cores.kubeqos.io"}}]}
    raw = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "last"}}
    cluster.kubectl("create", "-n", "team", "-f", "-", manifest={**raw, "spec": {"devices": claim}})
    whole = {"cpu": "1", "memory": "16Mi"}
    asked = {"requests": whole, "limits": whole, "claims": [{"name": "compute"}]}
    cluster.pod("last", {}, asked, resourceClaims=[{"name": "compute", "resourceClaimName": "last"}])
    own = cluster.where("last", "team")
    cluster.eventually("plain has left", lambda: own not in cluster.cpus("plain"))
    cluster.parts["driver"].end()  # whoever runs drivers ends them first
    # A kubelet would run the agent as a pod: this one stands for it.
    agent = {"name": "agent", "labels": {"app.kubernetes.io/name": "kubeqos-agent"}}
    spec = {"schedulerName": "nobody", "containers": [{"name": "agent", "image": "x"}]}
    cluster.kubectl(
        *("create", "-n", "kubeqos-system", "-f", "-"),
        manifest={"apiVersion": "v1", "kind": "Pod", "metadata": agent, "spec": spec},
    )
    with ThreadPoolExecutor() as pool:
        leaving = pool.submit(cluster.run, "kubeqos uninstall --yes")
        cluster.eventually("agents are to end", lambda: not cluster.get("daemonsets", "-A")["items"])
        cluster.agent.close()
        cluster.agent = ExitStack()
        cluster.kubectl("delete", "pod", "agent", "-n", "kubeqos-system", "--now")
        assert "resourceslice/" in leaving.result()
    assert cluster.where("last", "team") == everything
    assert cluster.cpus("plain") == everything
    tier = f"{cluster.kubelet.cgroup_root}/kubepods/besteffort"
    assert cgroups.value(tier, "cpuset.cpus") in ("", everything)
    assert not (cluster.folder / "cores").exists()
    assert not list((cluster.kubelet.root / "plugins_registry").glob("*kubeqos*"))
    assert not cluster.devices()
    assert "kubeqos.io" not in cluster.kubectl("get", "crds,clusterroles,validatingwebhookconfigurations", "-o", "name")
    assert "kubeqos.io" not in str(cluster.get("node", NODE))
    # Its kubelet would wait for the driver of its claim.
    cluster.kubectl("delete", "pod", "last", "-n", "team", "--force", "--grace-period=0")
