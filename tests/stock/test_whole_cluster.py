"""Nothing of Kubernetes modified: kube-apiserver, kube-scheduler, kubelet, containerd 2; beside them our own parts.

A class that the node's agent reports is counted by the stock scheduler, asked for by annotation, judged by the webhook,
and done by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml

from tests.cri.relay.test_containerd import disk_number, needs_disk
from tests.shared import cgroups
from tests.stock.kube_apiserver import free_ports, process
from tests.stock.kubelet import NODE
from tests.stock.needs import needs_stock
from tests.stock.whole import PARTS, ROOT, SLOW, Whole, stock_cluster

pytestmark = [*needs_stock(*PARTS, root=True), pytest.mark.kubectl, needs_disk]
BEST_EFFORT_SHARES = 2
"""What a kubelet gives a container that requests no CPU; its class scales that."""
RDT = {"partitions": {"all": {"l3Allocation": "100%", "classes": {"gold": {}, "silver": {"l3Allocation": "50%"}}}}}
RESCTRL = ("--simulated-resctrl", "laptop8")
PAGE = (ROOT / "docs" / "stock.md").read_text()
FIVE = PAGE.partition("in five commands")[2].partition("```sh\n")[2].partition("\n```")[0].splitlines()


class Examined(Whole):
    doctor: str
    """What the doctor said before anything was installed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Examined]:
    with stock_cluster(Examined) as made, ExitStack() as stack:
        made.doctor = made.run(FIVE[0])
        made.run(FIVE[1])
        given = made.get("configmap", "kubeqos-classes", "-n", "kubeqos-system")
        classes = yaml.safe_load(given["data"]["classes.yaml"])
        classes["resources"]["rdt"] = {"provider": "rdt", "config": RDT}
        made.kubectl("apply", "-f", "-", manifest={**given, "data": {"classes.yaml": yaml.safe_dump(classes)}})
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        made.kubectl("create", "namespace", "team")
        made.kubectl("label", "namespace", "team", "qos.kubeqos.io/enforce=true")
        [port] = free_ports(1)
        hooks = ["--webhook-bind-address", "127.0.0.1", "--webhook-port", str(port)]
        hooks += ["--webhook-url", f"https://127.0.0.1:{port}"]
        stack.enter_context(process(made.ours("controller", *hooks), made.folder, "controller"))
        made.start_agent(*RESCTRL, "--state", str(made.folder / "relay.json"))
        made.eventually("the class is counted", lambda: made.capacity() == "1")
        made.eventually("registered", lambda: made.get("mutatingwebhookconfigurations")["items"])
        yield made
        made.kubectl("delete", "pods", "--all", "-n", "team", "--now")


@pytest.mark.proves("class-blockio", "class-cpu")
def test_a_class_is_asked_for_counted_and_done(cluster: Whole) -> None:
    def judged() -> bool:
        cluster.kubectl("delete", "pod", "one", "-n", "team", "--ignore-not-found", "--now")
        cluster.asking("one", "blockio=slow,cpu-class=high")
        resources = cluster.pods("one")["spec"]["containers"][0]["resources"]
        return bool((resources.get("requests") or {}).get(SLOW) == "1")

    cluster.eventually("judged", judged)  # the webhooks are known to the API server a moment after they were registered
    cgroup = cluster.runs("one")
    assert cgroups.value(cgroup, "io.read_bps") == f"{disk_number()} {1 << 20}"
    assert cgroups.value(cgroup, "cpu.shares") == cgroups.scaled(BEST_EFFORT_SHARES, 400)
    cluster.asking("two", "blockio=slow")

    def waits() -> bool:
        conditions = cluster.pods("two")["status"].get("conditions") or ()
        return any(f"Insufficient {SLOW}" in one.get("message", "") for one in conditions)

    cluster.eventually("two waits", waits)
    cluster.eventually("told", lambda: (cluster.get("qosclass", "blockio.slow").get("status") or {}).get("used") == 1)
    cluster.kubectl("delete", "pod", "one", "-n", "team", "--now")
    assert cgroups.value(cluster.runs("two"), "io.read_bps") == f"{disk_number()} {1 << 20}"


@pytest.mark.proves("class-rdt")
def test_a_class_of_cache_has_the_process_of_its_pod(cluster: Whole) -> None:
    """No such hardware here: the tree behaves as the kernel's, everything else is real."""
    cluster.asking("cached", "rdt=gold")
    cluster.asking("halved", "rdt=silver")
    tree = cluster.folder / "resctrl"
    for name, group in (("cached", "kubeqos.gold"), ("halved", "kubeqos.silver")):
        process_ = (cgroups.folders(cluster.runs(name))[0] / "cgroup.procs").read_text().split()[0]
        assert process_ in (tree / group / "tasks").read_text().split()
    gold, silver = ((tree / f"kubeqos.{one}" / "schemata").read_text() for one in ("gold", "silver"))
    assert _bits(silver) * 2 == _bits(gold), (gold, silver)
    cluster.kubectl("delete", "pod", "cached", "halved", "-n", "team", "--now")


def _bits(schemata: str) -> int:
    """How many parts of the first cache a group may use."""
    [line] = [one for one in schemata.splitlines() if one.strip().startswith("L3:")]
    return int(line.partition("=")[2].partition(";")[0], 16).bit_count()


@pytest.mark.proves("class-blockio")
def test_whoever_matters_more_takes_the_place_of_who_has_the_class(cluster: Whole) -> None:
    cluster.kubectl("delete", "pods", "--all", "-n", "team", "--now")
    important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}}
    cluster.kubectl("create", "-f", "-", manifest={**important, "value": 1000})
    cluster.asking("first", "blockio=slow")
    cluster.runs("first")
    cluster.asking("better", "blockio=slow", priorityClassName="important")
    assert cgroups.value(cluster.runs("better"), "io.read_bps") == f"{disk_number()} {1 << 20}"
    assert "Preempted by" in cluster.said_of("first")
    cluster.kubectl("delete", "pods", "--all", "-n", "team", "--now")


def test_the_five_commands(cluster: Whole) -> None:
    assert [line.partition(" ")[0] for line in FIVE] == ["kubeqos", "kubeqos", "kubectl", "kubectl", "kubectl"]
    cluster.kubectl("delete", "pods", "--all", "-n", "team", "--now")
    cluster.kubelet.runtime.add_image("registry.k8s.io/pause:3.10", ["sleep", "1000000"])
    cluster.run(FIVE[2])
    # The pod of the page, in the node's network: this machine has no other for pods.
    example = yaml.safe_load((ROOT / FIVE[3].rpartition(" ")[2]).read_text())
    cluster.kubectl("apply", "-f", "-", manifest={**example, "spec": {**example["spec"], "hostNetwork": True}})
    assert cgroups.value(cluster.runs("reader", "default"), "io.read_bps") == f"{disk_number()} {1 << 20}"
    shown = cluster.run(FIVE[4])
    assert "qosclass.kubeqos.io/blockio.slow" in shown
    assert f"nodeqos.kubeqos.io/{NODE}" in shown
    cluster.kubectl("delete", "pod", "reader", "--now")


def test_the_doctor_tells_what_a_real_cluster_has(cluster: Examined) -> None:
    rows = {line.rpartition("  ok  ")[0].strip() for line in cluster.doctor.splitlines()}
    assert {"Kubernetes", "rights to install", "claims for cores", f"node {NODE}: NRI"} <= rows, cluster.doctor


@pytest.mark.proves("resize", "class-cpu")
def test_a_class_scales_what_a_pod_asks_for_after_a_resize(cluster: Whole) -> None:
    cluster.pod("resized", {"qos.kubeqos.io/container.c": "cpu-class=high"}, {"requests": {"cpu": "100m"}})
    cgroup = cluster.runs("resized")
    assert cgroups.value(cgroup, "cpu.shares") == cgroups.scaled(102, 400)
    cluster.resize("resized", "200m")
    cluster.eventually("scaled again", lambda: cgroups.value(cgroup, "cpu.shares") == cgroups.scaled(204, 400))
    assert cluster.runs("resized") == cgroup, "the same container"
    cluster.kubectl("delete", "pod", "resized", "-n", "team", "--now")


def test_nobody_who_asks_starts_without_the_agent_and_all_others_do(cluster: Whole) -> None:
    cluster.agent.close()
    cluster.asking("high", "cpu-class=high")
    cluster.asking("plain")
    cluster.runs("plain")
    refusal = 'required plugin "kubeqos" not present'
    cluster.eventually("refused", lambda: refusal in cluster.said_of("high"))
    cluster.agent = ExitStack()
    cluster.start_agent(*RESCTRL, "--state", str(cluster.folder / "relay.json"))
    assert cgroups.value(cluster.runs("high"), "cpu.shares") == cgroups.scaled(BEST_EFFORT_SHARES, 400)
