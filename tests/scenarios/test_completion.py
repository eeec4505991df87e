"""Completion: kubectl asks `kubectl_complete-qos`, shells ask click; both know the cluster's names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.cli.completion import answer
from kubeqos.cli.main import COMMANDS
from tests.scenarios.cluster import ScenarioCluster, needs_kubectl, scenario_cluster
from tests.scenarios.terminal import environment
from tests.scenarios.test_cli import QOS
from tests.scenarios.test_scheduling import pod

BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioCluster]:
    folder = tmp_path_factory.mktemp("completion")
    with scenario_cluster(folder) as made:
        made.node("node-a", qos=QOS)
        made.node("other")
        made.apply(pod("web-1"), pod("web-2"))
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limits"}, "spec": {"hard": {}}}
        made.apply({**quota, "spec": {"hard": {"pods": "9"}, "scopes": ["NotTerminating"]}})
        helper = folder / "bin" / "kubectl_complete-qos"
        helper.parent.mkdir()
        helper.write_text(f"#!{sys.executable}\nfrom kubeqos.cli.completion import kubectl_main\nkubectl_main()\n")
        helper.chmod(0o755)
        plugin = helper.with_name("kubectl-qos")
        plugin.write_text(f"#!{sys.executable}\nfrom kubeqos.cli.main import main\nmain()\n")
        plugin.chmod(0o755)
        made.environment["PATH"] = f"{helper.parent}:{os.environ['PATH']}"
        made.environment["PYTHONPATH"] = environment()["PYTHONPATH"]
        yield made


@pytest.mark.kubectl
@needs_kubectl
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["describe", "node", ""], ["node-a\tcpu 4", "other\tcpu 4", ":4"]),
        (["describe", "node", "no"], ["node-a\tcpu 4", ":4"]),
        (["describe", "pod", ""], ["web-1\tPending", "web-2\tPending", ":4"]),
        (["describe", "quota", ""], ["limits\tNotTerminating", ":4"]),
        (["map", "n"], ["node-a\tcpu 4", ":4"]),
        (["why", "web-2"], ["web-2\tPending", ":4"]),
        (["story", "web-2"], ["web-2\tPending", ":4"]),
        (["why", "-n", "kube-s"], ["kube-system", ":4"]),
        (["classes", "r"], ["rdt\tgold, bronze", ":4"]),
        (["classify", "-f", ""], [":0"]),
        (["top", "n"], ["nodes\tShow CPU and memory in use on each node,...", ":4"]),
    ],
)
def test_kubectl_completes_the_plugin(cluster: ScenarioCluster, typed: list[str], expected: list[str]) -> None:
    if typed[:2] == ["describe", "pod"] or typed[0] in ("why", "story"):
        expected = [line.replace("Pending", cluster.pod("web-1")["status"]["phase"]) for line in expected]
    assert cluster.kubectl("__complete", "qos", *typed).splitlines() == expected


def test_every_command_is_offered() -> None:
    *lines, directive = answer([""]).splitlines()
    assert [line.partition("\t")[0] for line in lines] == sorted(COMMANDS)
    assert directive == ":4"


def test_a_cluster_that_is_not_there_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    assert answer(["describe", "node", ""]) == ":4"
    assert answer(["why", ""]) == ":4"


@pytest.mark.skipif(BASH is None, reason="bash is not on PATH")
def test_bash_reads_the_script_and_completes(tmp_path: Path) -> None:
    command = tmp_path / "kubeqos"
    command.write_text(f"#!{sys.executable}\nfrom kubeqos.cli.main import main\nmain()\n")
    command.chmod(0o755)
    script = (
        "source <(kubeqos completion bash)\n"
        "COMP_WORDS=(kubeqos simulate co) COMP_CWORD=2\n"
        "_kubeqos_completion kubeqos\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    assert BASH is not None
    done = subprocess.run(
        [BASH, "-c", script],
        env=environment({"PATH": f"{tmp_path}:{os.environ['PATH']}"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "compare"


def test_the_executable_is_installed_with_the_package() -> None:
    wanted = 'kubectl_complete-qos" = "kubeqos.cli.completion:kubectl_main"'
    assert wanted in (Path(__file__).parents[2] / "pyproject.toml").read_text()
