"""What the doctor finds, and what is to be done about it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kubeqos.cli.stock.doctor import required_plugins
from kubeqos.stock import validator
from kubeqos.stock.examination import KINDS, LocalFacts, cluster, installed, is_fit, machine, node
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
    [version, rights] = cluster({"gitVersion": "v1.28.4"}, may_install=False)
    assert version.state == rights.state == "missing"
    assert is_fit(cluster({"gitVersion": "v1.37.1+k3s1"}, may_install=True))


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
