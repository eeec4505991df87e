"""Our scheduler and kube-scheduler on a real kube-apiserver, each for its own pods, in one sitting.

Ours has the ClusterRole `system:kube-scheduler` and nothing else, until a test gives it `system:volume-scheduler`,
which kube-scheduler has too. What both say of pods with volume claims is compared word for word.
"""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from tools.stock import find

from tests.stock.kube_apiserver import free_ports, kube_apiserver, process
from tests.stock.needs import needs_stock
from tests.stock.test_stock_apiserver import Stock, eventually

pytestmark = [*needs_stock("kube-apiserver", "etcd", "kube-scheduler"), pytest.mark.kubectl]
PATIENCE = 90
USER, OURS, THEIRS = "our-scheduler", "ours", "theirs"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
MAKER = "maker.example.com"
SELECTED = "volume.kubernetes.io/selected-node"
ONCE = ["ReadWriteOncePod"]


class Pair(Stock):
    """A stock cluster of three nodes with both schedulers."""

    folder: Path
    port: int

    def readyz(self) -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=10) as answer:
                return str(answer.read().decode()).splitlines()
        except HTTPError as error:
            return str(error.read().decode()).splitlines()
        except OSError:
            return []

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", manifest={"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def status(self, kind: str, name: str, status: dict[str, Any], namespace: str = "") -> None:
        words = ["-n", namespace] if namespace else []
        patch = json.dumps({"status": status})
        self.kubectl("patch", kind, name, *words, "--subresource=status", "--type=merge", "-p", patch)

    def allow(self, role: str) -> None:
        self.kubectl(
            "create", "clusterrolebinding", f"{USER}-{role.rpartition(':')[2]}", "--clusterrole", role, "--user", USER
        )


def node(name: str, zone: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}}}


def pod(name: str, scheduler: str, *claims: str, **spec: Any) -> dict[str, Any]:
    volumes = [{"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    body = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "volumes": volumes}
    containers = [{"name": "c", "image": "app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**body, "containers": containers, **spec},
    }


def claim(name: str, volume: str = "", cls: str = "slow", **spec: Any) -> dict[str, Any]:
    marks = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    asks = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": cls}
    metadata = {"name": name, "namespace": "default", "annotations": marks}
    named = {"volumeName": volume} if volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {**asks, **named, **spec},
    }


def volume(name: str, on: str = "", cls: str = "slow", **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": cls,
    }
    if on:
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    metadata = {"name": name, "labels": more.pop("labels", {})}
    source = {"csi": {"driver": MAKER, "volumeHandle": name}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": {**spec, **source, **more}}


def storage_class(name: str, mode: str, provisioner: str = MAKER) -> dict[str, Any]:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    return {**kind, "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}


def as_user(kubeconfig: Path, user: str) -> Path:
    """A kubeconfig of somebody else, by an administrator who acts as that user."""
    document = yaml.safe_load(kubeconfig.read_text())
    for one in document["users"]:
        one["user"] |= {"as": user}
    path = kubeconfig.with_name(f"{user}.kubeconfig")
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    [theirs] = find("kube-scheduler") or ()
    with tempfile.TemporaryDirectory(prefix="kq-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        pair = Pair(kubeconfig)
        pair.folder, [pair.port] = folder, free_ports(1)
        pair.apply(*(node(name, zone) for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b"))))
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        for name in ("n1", "n2", "n3"):
            pair.status("node", name, {"capacity": amounts, "allocatable": amounts})
            pair.kubectl("patch", "node", name, "-p", '{"spec": {"taints": null}}')
        pair.allow("system:kube-scheduler")
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        config |= {"clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}
        (folder / "theirs.yaml").write_text(json.dumps({**config, "profiles": [{"schedulerName": THEIRS}]}))
        words = [str(theirs), "--config", str(folder / "theirs.yaml"), "--secure-port=0"]
        stack.enter_context(process(words, folder, "kube-scheduler"))
        mine = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "SchedulerConfiguration"}
        (folder / "ours.yaml").write_text(json.dumps({**mine, "profiles": [{"schedulerName": OURS}]}))
        ours = [sys.executable, "-m", "kubeqos.cli.main", "scheduler", "--config", str(folder / "ours.yaml")]
        ours += ["--kubeconfig", str(as_user(kubeconfig, USER)), "--port", str(pair.port)]
        stack.enter_context(process(ours, folder, "scheduler"))
        yield pair


def test_the_role_of_kube_scheduler_is_enough_for_pods_without_volumes(pair: Pair) -> None:
    eventually(lambda: pair.readyz()[:1] == ["ok"], PATIENCE)
    pair.apply(pod("plain", OURS))
    eventually(lambda: pair.node_of("plain"), PATIENCE)
    without = [line for line in pair.readyz() if line.startswith("[!]does without ")]
    assert [line.split()[2].rstrip(":") for line in without] == ["storageclasses"]
    assert 'storageclasses.storage.k8s.io is forbidden: User "our-scheduler" cannot list' in without[0]
    log = (pair.folder / "scheduler.log").read_text()
    assert sum("cannot be read" in line and "storageclasses" in line for line in log.splitlines()) == 1


def test_what_it_may_not_read_is_what_a_pod_is_told(pair: Pair) -> None:
    pair.apply(storage_class("lazy", "WaitForFirstConsumer"), claim("early", cls="lazy"), pod("early", OURS, "early"))
    eventually(lambda: "this scheduler cannot read storage classes" in pair.condition("early"), PATIENCE)
    pair.allow("system:volume-scheduler")  # which is noticed by itself
    eventually(lambda: pair.get("pvc", "early")["metadata"]["annotations"].get(SELECTED), PATIENCE)
    eventually(lambda: pair.readyz() == ["ok"], PATIENCE)
    pair.kubectl("delete", "pod", "early", "--now")


CASES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "missing": ([], ["missing"]),
    "immediate": ([claim("immediate")], ["immediate"]),
    "no-class": ([claim("no-class", cls="")], ["no-class"]),
    "unknown-class": ([claim("unknown-class", cls="nobody")], ["unknown-class"]),
    "no-volume": ([claim("no-volume", "gone")], ["no-volume"]),
    "elsewhere": ([volume("elsewhere", "n9"), claim("elsewhere", "elsewhere")], ["elsewhere"]),
    "zone": ([volume("zone", labels={ZONE: "z"}), claim("zone", "zone")], ["zone"]),
    "none-left": ([claim("none-left", cls="local")], ["none-left"]),
    "two-nodes": (
        [volume("on1", "n1"), volume("on2", "n2"), claim("on1", "on1"), claim("on2", "on2")],
        ["on1", "on2"],
    ),
    "reachable": ([volume("on3", "n3"), claim("on3", "on3")], ["on3"]),
    "zoned": ([volume("in-a", labels={ZONE: "a"}), claim("in-a", "in-a")], ["in-a"]),
}


def test_both_say_the_same_of_volume_claims_and_choose_the_same_nodes(pair: Pair) -> None:
    local = storage_class("local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    pair.apply(storage_class("slow", "Immediate"), local, *(one for made, _ in CASES.values() for one in made))
    pods = [pod(f"{case}-{who}", who, *claims) for case, (_, claims) in CASES.items() for who in (OURS, THEIRS)]
    pair.apply(*pods)

    def said(who: str) -> dict[str, str]:
        found = {one["metadata"]["name"]: one for one in pair.get("pods")["items"]}
        return {case: outcome(found[f"{case}-{who}"]) for case in CASES}

    eventually(lambda: all(said(THEIRS).values()), PATIENCE)
    theirs = said(THEIRS)
    eventually(lambda: said(OURS) == theirs or _differing(said(OURS), theirs), PATIENCE)
    assert said(OURS) == theirs
    assert (theirs["reachable"], theirs["zoned"]) == ("n3", "n1")


def outcome(raw: dict[str, Any]) -> str:
    """The node that a pod was given, or why it waits."""
    conditions = raw["status"].get("conditions") or ()
    waits = next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")
    # After a reason that has nothing to do with nodes kube-scheduler adds that it did not find a note of its own.
    return str(raw["spec"].get("nodeName", "")) or waits.removesuffix(" not found").rstrip()


def _differing(ours: dict[str, str], theirs: dict[str, str]) -> bool:
    """Both have spoken, so that waiting longer would not help; the assertion that follows shows it."""
    return all(ours.values()) and any(ours[case] != theirs[case] for case in ours)


def test_a_pod_with_claims_of_devices_is_left_to_kube_scheduler(pair: Pair) -> None:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    devices = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "gpu"}}
    pair.apply({**devices, "spec": {"devices": {"requests": requests}}})
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    pair.apply(pod("devices", OURS, resourceClaims=claims))
    told = 'ResourceClaim "default/gpu" asks for devices (resource.k8s.io/v1), which this scheduler does not allocate'
    eventually(lambda: pair.condition("devices").startswith(told), PATIENCE)
    assert not pair.node_of("devices")


def test_both_keep_a_claim_for_one_pod(pair: Pair) -> None:
    pair.apply(volume("once", accessModes=ONCE), claim("once", "once", accessModes=ONCE), pod("holder", THEIRS, "once"))
    eventually(lambda: pair.node_of("holder"), PATIENCE)
    pair.apply(pod("once-ours", OURS, "once"), pod("once-theirs", THEIRS, "once"))
    eventually(lambda: pair.condition("once-ours") and pair.condition("once-theirs"), PATIENCE)
    assert "ReadWriteOncePod access mode already in-use by another pod" in pair.condition("once-theirs")
    assert pair.condition("once-ours") == pair.condition("once-theirs")


def test_both_ask_the_provisioner_for_the_node_that_they_chose(pair: Pair) -> None:
    for who, chosen in ((OURS, "n1"), (THEIRS, "n2")):
        name = f"lazy-{who}"
        pair.apply(claim(name, cls="lazy"), pod(name, who, name, nodeSelector={HOST: chosen}))

    def selected(who: str) -> str:
        return str((pair.get("pvc", f"lazy-{who}")["metadata"].get("annotations") or {}).get(SELECTED, ""))

    eventually(lambda: (selected(OURS), selected(THEIRS)) == ("n1", "n2"), PATIENCE)
    eventually(lambda: f'waits for provisioner "{MAKER}"' in pair.condition(f"lazy-{OURS}"), PATIENCE)
    for who, chosen in ((OURS, "n1"), (THEIRS, "n2")):  # what a provisioner and the volume controller do
        name = f"lazy-{who}"
        pair.apply(volume(name, chosen, "lazy"))
        done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}}
        pair.kubectl("patch", "pvc", name, "-p", json.dumps(done))
    eventually(lambda: (pair.node_of(f"lazy-{OURS}"), pair.node_of(f"lazy-{THEIRS}")) == ("n1", "n2"), PATIENCE)


def test_both_give_a_volume_that_is_there_to_its_first_consumer(pair: Pair) -> None:
    for who, there in ((OURS, "n2"), (THEIRS, "n3")):
        name = f"static-{who}"
        pair.apply(storage_class(name, "WaitForFirstConsumer", "kubernetes.io/no-provisioner"))
        pair.apply(volume(name, there, name), claim(name, cls=name))
        pair.status("pv", name, {"phase": "Available"})
        pair.apply(pod(name, who, name))

    def given(who: str) -> Any:
        found = pair.get("pv", f"static-{who}")
        ref = found["spec"].get("claimRef") or {}
        fields = sorted(key for key in ref if key != "resourceVersion")
        return ref.get("name", "").removesuffix(f"-{who}"), fields, sorted(found["metadata"]["annotations"])

    eventually(lambda: given(OURS)[0] and given(THEIRS)[0], PATIENCE)
    assert given(OURS) == given(THEIRS)
    for who in (OURS, THEIRS):
        name = f"static-{who}"
        done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}}
        pair.kubectl("patch", "pvc", name, "-p", json.dumps(done))
    eventually(lambda: (pair.node_of("static-ours"), pair.node_of("static-theirs")) == ("n2", "n3"), PATIENCE)
