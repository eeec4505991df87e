"""What the doctor finds, and what is to be done about it."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.cli.main import application
from kubeqos.cli.output import table
from kubeqos.cli.stock.doctor import local_facts, managers_of, required_plugins
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.light import LightApi
from kubeqos.cri.providers.blockio import BlockIo, transition
from kubeqos.cri.providers.effects import CgroupWrite
from kubeqos.errors import ConfigurationError
from kubeqos.stock import validator
from kubeqos.stock.cores.assembly import refuse_kubelet
from kubeqos.stock.examination import (
    IO_LIMITS,
    IO_WEIGHTS,
    KINDS,
    MANAGER_STATES,
    Finding,
    LocalFacts,
    block_io,
    cluster,
    cores_beside,
    installed,
    is_fit,
    machine,
    node,
    partitions_of,
)
from tests.apiserver.live import live_server
from tests.stock.containerd2 import configuration


@pytest.mark.parametrize(
    ("runtime", "state", "words"),
    [
        ("containerd://2.4.2", "ok", "containerd://2.4.2"),
        ("containerd://1.7.9", "missing", "not by default"),
        ("containerd://1.6.20~ds1", "missing", "has no NRI"),
        ("cri-o://1.31.0", "ok", "cri-o"),
        ("cri-o://1.28.1", "missing", "not by default"),
        ("docker://27.0.0", "missing", "use the relay"),
        ("", "missing", "unknown runtime"),
    ],
)
def test_which_runtimes_take_plugins(runtime: str, state: str, words: str) -> None:
    raw = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}}
    [nri, agent] = node(raw, None)
    assert nri.state == state
    assert words in nri.details
    assert agent.details == "has not reported"


def test_a_cluster_that_is_too_old_or_not_ours_to_change() -> None:
    [version, rights, _] = cluster({"gitVersion": "v1.28.4"}, may_install=False, has_claims=False)
    assert version.state == rights.state == "missing"
    assert is_fit(cluster({"gitVersion": "v1.37.1+k3s1"}, may_install=True, has_claims=True))


@pytest.mark.parametrize(
    ("has_claims", "state", "words"), [(True, "ok", "is served"), (False, "note", "1.34 or newer")]
)
def test_whether_pods_can_claim_cores(has_claims: bool, state: str, words: str) -> None:
    [*_, told] = cluster({"gitVersion": "v1.33.1"}, may_install=True, has_claims=has_claims)
    assert (told.what, told.state) == ("claims for cores", state)
    assert "resource.k8s.io/v1" in told.details and words in told.details


def test_what_is_installed() -> None:
    assert installed([], None, hooks=False)[0].details == "not installed: kubeqos install"
    names = [f"{kind}.kubeqos.io" for kind in KINDS]
    assert is_fit(installed(names, {"status": {"readyReplicas": 2}}, hooks=True))
    lacking = installed(names[:3], {}, hooks=False)
    assert [finding.state for finding in lacking] == ["missing"] * 3
    assert "qosclassquotas" in lacking[0].details


def test_a_node_that_reports() -> None:
    raw = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0"}}}
    well = {"status": {"classCount": 4, "conditions": [{"type": "Healthy", "status": "True"}]}}
    assert node(raw, well)[1].details == "4 classes"
    unwell = {"status": {"conditions": [{"type": "Healthy", "status": "False", "message": "xyz is away"}]}}
    assert node(raw, unwell)[1].details == "xyz is away"


@pytest.mark.parametrize(
    ("text", "found", "state"),
    [(configuration(Path("/x"), Path("/x/s")), True, "ok"), ("version = 3\n", False, "note"), ("]", None, "note")],
)
def test_whether_who_asks_starts_without_the_agent_is_the_runtimes_setting(
    tmp_path: Path, text: str, found: bool | None, state: str
) -> None:
    (tmp_path / "config.toml").write_text(text)
    nobody = tmp_path / "socket"
    assert required_plugins(tmp_path / "config.toml", nobody) == (found, False)
    assert required_plugins(tmp_path / "missing", nobody) == (None, False)
    facts = LocalFacts(root=True, nri_socket=True, cgroup_version=2, resctrl=True, validator=found)
    [told] = [one for one in machine(facts) if one.what == "required plugins"]
    assert told.state == state


def test_a_runtime_that_has_not_read_its_settings_is_to_be_restarted(tmp_path: Path) -> None:
    config, address = tmp_path / "config.toml", tmp_path / "socket"
    config.write_text("version = 3\n")
    with socket.socket(socket.AF_UNIX) as runtime:
        runtime.bind(str(address))
        runtime.listen()
        assert required_plugins(config, address) == (False, False)
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(address))
            validator.write(config, Path("/"), validator.running(link))
        assert required_plugins(config, address) == (True, True)
    facts = LocalFacts(root=True, nri_socket=True, cgroup_version=2, resctrl=True, validator=True, restart_needed=True)
    [told] = [one for one in machine(facts) if one.what == "required plugins"]
    assert (told.state, told.details.endswith("restart it")) == ("note", True)


def test_a_node_says_whether_its_runtime_checks() -> None:
    raw = {"metadata": {"name": "n"}, "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.4.2"}}}
    for status, state in {"True": "ok", "False": "note"}.items():
        conditions = [{"type": "RequiredPluginsChecked", "status": status, "message": "xyz"}]
        [_, told, _] = node(raw, {"status": {"classCount": 4, "conditions": conditions}})
        assert (told.what, told.state, told.details) == ("node n: required plugins", state, "xyz")


def test_this_machine() -> None:
    assert is_fit(machine(LocalFacts(root=True, nri_socket=True, cgroup_version=1, resctrl=False)))
    assert not is_fit(machine(LocalFacts(root=True, nri_socket=False, cgroup_version=2, resctrl=True)))


@pytest.mark.parametrize(
    ("kernel", "version", "state", "words"),
    [
        ("6.7.0-rc1", 2, "ok", "Linux 6.7.0-rc1"),
        ("6.12.9+bpo-cloud-amd64", 2, "ok", "Linux 6.12.9"),
        ("10.0.1", 2, "ok", "Linux 10.0.1"),
        ("6.6.87.2-microsoft", 2, "note", "use Linux 6.7, or let the runtime require the plugin"),
        ("5.15.0-1051-aws", 2, "note", "use Linux 6.7"),
        ("6.12.9", 1, "note", "use version 2 of control groups"),
        ("", 2, "note", "of unknown version"),
    ],
)
def test_which_kernels_keep_others_off_owned_cpus(kernel: str, version: int, state: str, words: str) -> None:
    found, details = partitions_of(kernel, version)
    assert found == state and words in details


def test_a_node_tells_its_kernel_and_its_kubelet_what_it_pins() -> None:
    info = {"containerRuntimeVersion": "containerd://2.4.2", "kernelVersion": "6.1.0-50-cloud-amd64"}
    raw = {"metadata": {"name": "n"}, "status": {"nodeInfo": info}}
    found = {one.what: one for one in node(raw, None, {"cpuManagerPolicy": "static", "memoryManagerPolicy": "None"})}
    assert found["node n: CPU partitions"].state == "note"
    cores = found["node n: cores"]
    assert cores.state == "note" and "(cpuManagerPolicy is static)" in cores.details
    assert "node n: cores" not in {one.what for one in node(raw, None)}, "nothing is said where nobody told"


class Kubelets(LightApi):
    """An API server that hands questions on to kubelets."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def get(self, path: str, **_: str) -> dict[str, Any]:
        self.asked.append(path)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "managers"),
    [
        (
            {"kubeletconfig": {"cpuManagerPolicy": "static"}},
            {"cpuManagerPolicy": "static", "memoryManagerPolicy": "none"},
        ),
        ({"other": 1}, None),
        (ApiError(403, "Forbidden", "no"), None),
        (Unreachable("away", where="x", applied=False), None),
    ],
)
def test_kubelets_are_asked_where_they_can_answer(
    answer: dict[str, Any] | Exception, managers: dict[str, str] | None
) -> None:
    api = Kubelets(answer)
    raw: dict[str, Any] = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert managers_of(api, raw) == managers
    assert api.asked == ["/api/v1/nodes/n/proxy/configz"]
    raw["status"]["conditions"][0]["status"] = "Unknown"
    assert managers_of(api, raw) is None
    assert len(api.asked) == 1, "nobody waits for a node that is away"


POLICIES = {"cpuManagerPolicy": (None, "none", "static"), "memoryManagerPolicy": (None, "None", "Static")}


@pytest.mark.parametrize("policies", list(itertools.product(*POLICIES.values())))
def test_the_doctor_says_of_a_kubelet_what_the_agent_would(tmp_path: Path, policies: tuple[str | None, ...]) -> None:
    folder = tmp_path / "var/lib/kubelet"
    folder.mkdir(parents=True)
    pinning = []
    for setting, policy in zip(POLICIES, policies, strict=True):
        if policy is not None:
            (folder / MANAGER_STATES[setting]).write_text(f'{{"policyName": "{policy}", "checksum": 1}}')
        if (policy or "none").lower() != "none":
            pinning.append(setting)
    state, details = cores_beside(local_facts(tmp_path).managers)
    assert state == ("note" if pinning else "ok")
    assert all(setting in details for setting in pinning)
    if pinning:
        with pytest.raises(ConfigurationError, match="pins containers itself"):
            refuse_kubelet(folder)
    else:
        refuse_kubelet(folder)


THROTTLED = BlockIo(weight=100, throttles={("ThrottleReadBps", (8, 0)): 1})


@pytest.mark.parametrize("version", [1, 2])
def test_the_files_that_are_looked_for_are_those_that_classes_write(version: int) -> None:
    effects = [one for one in transition(BlockIo(), THROTTLED, version) if isinstance(one, CgroupWrite)]
    written = {file for effect in effects for file, _ in effect.choices}
    assert written == {*IO_LIMITS[version], *IO_WEIGHTS[version]}


@pytest.mark.parametrize(
    ("files", "throttles", "weights"),
    [
        (
            ("kubepods.slice/io.max", "kubepods.slice/io.weight", "a/io.bfq.weight"),
            "io.max",
            "io.bfq.weight, io.weight",
        ),
        (("system.slice/io.max",), "io.max", "load the module bfq"),
        (("system.slice/io.stat",), "CONFIG_BLK_DEV_THROTTLING", "load the module bfq"),
        (("blkio/blkio.throttle.read_bps_device",), "blkio.throttle.read_bps_device", "load the module bfq"),
        (("blkio/blkio.leaf_weight", "blkio/a/blkio.bfq.weight"), "CONFIG_BLK_DEV_THROTTLING", "blkio.bfq.weight"),
    ],
)
def test_which_classes_of_block_io_the_kernel_keeps(
    tmp_path: Path, files: tuple[str, ...], throttles: str, weights: str
) -> None:
    told = blockio_of(tmp_path, *files)
    assert throttles in told["blockio throttles"].details
    assert weights in told["blockio weights"].details
    assert all((one.state == "note") == ("or leave" in one.details) for one in told.values())


def test_where_no_group_has_block_io_nothing_is_promised(tmp_path: Path) -> None:
    told = blockio_of(tmp_path, "io.stat", "io.cost.qos", "system.slice/io.pressure")
    assert list(told) == ["blockio"] and told["blockio"].state == "note"


def blockio_of(root: Path, *files: str) -> Mapping[str, Finding]:
    cgroups = root / "sys/fs/cgroup"
    old = files[0].startswith("blkio/")
    for name in (*files, "memory/tasks" if old else "cgroup.controllers"):
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).touch()
    facts = local_facts(root)
    assert facts.cgroup_version == (1 if old else 2)
    return {one.what: one for one in block_io(facts.io_files, facts.cgroup_version)}


def test_a_machine_is_looked_at_below_its_root(tmp_path: Path) -> None:
    for name, text in {
        "proc/sys/kernel/osrelease": "6.12.9\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset io\n",
        "sys/fs/resctrl/schemata": "",
        "var/run/nri/nri.sock": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    facts = local_facts(tmp_path)
    assert (facts.kernel, facts.cgroup_version, facts.resctrl, facts.nri_socket) == ("6.12.9", 2, True, True)
    told = {one.what: one.state for one in machine(facts)}
    assert (told["CPU partitions"], told["cores"], told["rdt"], told["blockio"]) == ("ok", "ok", "ok", "note")
    bare = local_facts(tmp_path / "nothing")
    assert (bare.kernel, bare.nri_socket, bare.resctrl, bare.io_files, bare.managers) == ("", False, False, None, {})


PAGE = Path(__file__).parents[2] / "docs" / "stock.md"


def test_the_page_shows_what_is_said() -> None:
    shown = PAGE.read_text().partition("### What a node has")[2].partition("```text\n")[2].partition("```")[0]
    files = frozenset({"io.max", "io.stat"})
    facts = LocalFacts(True, True, 2, False, validator=True, kernel="6.12.9", io_files=files)
    rows = [(each.what, each.state, each.details) for each in machine(facts)]
    assert [line.rstrip() for line in shown.splitlines()] == [
        line.rstrip() for line in table(["check", "state", "details"], rows).splitlines()
    ]


def test_a_cluster_is_looked_at_and_nothing_is_changed(tmp_path: Path) -> None:
    with live_server(tmp_path / "data") as live:
        info = {"containerRuntimeVersion": "containerd://2.4.2", "kernelVersion": "5.15.0"}
        ready = [{"type": "Ready", "status": "True"}]
        metadata = {"name": "n1"}
        raw = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "status": {"nodeInfo": info, "conditions": ready},
        }
        assert live.call("POST", "/api/v1/nodes", raw).code == 201
        before = live.call("GET", "/api/v1/nodes/n1").body
        served = live.call("GET", "/apis/resource.k8s.io/v1").code
        done = CliRunner().invoke(application, ["doctor", "--kubeconfig", str(live.kubeconfig)])
        assert live.call("GET", "/api/v1/nodes/n1").body == before
    rows = {line.split("  ")[0]: line for line in done.output.splitlines()}
    assert ("ok" in rows["claims for cores"]) == (served == 200), done.output
    assert "use Linux 6.7" in rows["node n1: CPU partitions"]
