"""`kubeqos runtime`: a simulated runtime in a process of its own, and the commands that look into it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.codec import decode_json
from kubeqos.cri.client import CriClient
from kubeqos.model.hardware.machinefile import machine_to_yaml
from kubeqos.model.hardware.named import split80
from tests.cri.pods import container, pod
from tests.shared import commands

CLASSES = """
resources:
  rdt: {provider: named, mutable: true, default: silver, capacity: {gold: 2}, classes: [gold, silver]}
  network: {provider: named, level: pod, classes: [fast]}
"""
KUBEQOS = [sys.executable, "-m", "kubeqos.cli.main", "runtime"]


def kubeqos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run("runtime", *arguments, timeout=60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a runtime that listens on cri.sock and shows its cgroups."""
    folder = tmp_path_factory.mktemp("rt")
    (folder / "machine.yaml").write_text(machine_to_yaml(split80()))
    (folder / "classes.yaml").write_text(CLASSES)
    files = ["--machine", f"{folder}/machine.yaml", "--classes", f"{folder}/classes.yaml"]
    places = ["--listen", f"unix://{folder}/cri.sock", "--cgroup-root", f"{folder}/cgroup"]
    with subprocess.Popen([*KUBEQOS, *files, *places], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        banner = process.stderr.readline()
        (folder / "pid").write_text(str(process.pid))
        assert "80 CPUs, 2 NUMA node(s); QoS-class resources: rdt (container), network (pod)" in banner
        asyncio.run(start_web(f"unix://{folder}/cri.sock"))
        yield folder
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not (folder / "cri.sock").exists()


async def start_web(endpoint: str) -> None:
    """A pod with a server and a container that has done its work."""
    async with CriClient(endpoint) as client:
        config = pod("web", classes={"network": "fast"}, annotations={"simulate.kubeqos.io/load": "cpu=2 memory=32Mi"})
        sandbox = await client.run_pod_sandbox(config)
        wanted = container("nginx", ["nginx"], classes={"rdt": "gold"}, cpuset_cpus="4-7")
        wanted.envs.add(key="AFFINITY_NIC", value="eth1 in größe".encode())
        await client.start_container(await client.create_container(sandbox, wanted, config))
        await client.start_container(await client.create_container(sandbox, container("setup", ["true"]), config))


def test_ps_shows_containers_with_their_pods_and_classes(served: Path) -> None:
    header, *rows = kubeqos("ps", "--endpoint", f"unix://{served}/cri.sock").stdout.splitlines()
    assert header.split() == ["CONTAINER", "NAME", "POD", "NAMESPACE", "STATE", "ATTEMPT", "CLASSES"]
    assert [row.split()[1:] for row in rows] == [["nginx", "web", "default", "Running", "0", "rdt=gold"]]
    everything = decode_json(kubeqos("ps", "-a", "-o", "json", "--endpoint", f"unix://{served}/cri.sock").stdout)
    assert [(row["name"], row["state"], row["classes"]) for row in everything] == [
        ("nginx", "Running", "rdt=gold"),
        ("setup", "Exited", "rdt=silver"),
    ]


def test_inspect_takes_the_beginning_of_an_id(served: Path) -> None:
    where = ("-o", "json", "--endpoint", f"unix://{served}/cri.sock")
    short = kubeqos("ps", *where[2:]).stdout.splitlines()[1].split()[0]
    shown = decode_json(kubeqos("inspect", short, *where).stdout)
    assert shown["status"]["resources"]["qosResources"] == [{"name": "rdt", "class": "gold"}]
    assert shown["info"]["info"]["cgroup"]["cpuset.cpus"] == "4-7"
    assert shown["info"]["info"]["env"] == {"AFFINITY_NIC": "eth1 in größe"}
    sandbox = decode_json(kubeqos("inspect", shown["info"]["info"]["sandboxID"], *where).stdout)
    assert sandbox["status"]["qosResources"] == [{"name": "network", "class": "fast"}]


def test_classes_shows_capacity_and_use(served: Path) -> None:
    rows = kubeqos("classes", "--endpoint", f"unix://{served}/cri.sock").stdout.splitlines()
    assert [row.split() for row in rows] == [
        ["RESOURCE", "LEVEL", "CLASS", "CAPACITY", "ASSIGNED", "MUTABLE"],
        ["network", "pod", "fast", "unlimited", "1", "false"],
        ["rdt", "container", "gold", "2", "1", "true"],
        ["rdt", "container", "silver", "unlimited", "0", "true"],
    ]


def test_the_class_table_is_read_again_on_sighup(served: Path) -> None:
    def offered() -> set[tuple[str, str]]:
        rows = decode_json(kubeqos("classes", "-o", "json", "--endpoint", f"unix://{served}/cri.sock").stdout)
        return {(row["resource"], row["class"]) for row in rows}

    table, pid = served / "classes.yaml", int((served / "pid").read_text())
    before = offered()
    table.write_text("resources: [{name: broken}]")
    os.kill(pid, signal.SIGHUP)
    assert offered() == before
    table.write_text(CLASSES + "  ulimits: {provider: named, classes: [many]}\n")
    os.kill(pid, signal.SIGHUP)
    assert offered() == before | {("ulimits", "many")}
    table.write_text(CLASSES)
    os.kill(pid, signal.SIGHUP)
    assert offered() == before


def test_the_cgroup_folder_shows_settings_and_live_meters(served: Path) -> None:
    def meter() -> int:
        (file,) = (served / "cgroup").rglob("cpu.stat")
        return int((file.read_text().split() or ["", "0"])[1])

    (cpus,) = (served / "cgroup").rglob("cpuset.cpus")
    assert cpus.read_text() == "4-7\n"
    first = meter()
    for _ in range(100):
        if meter() > first:
            return
        time.sleep(0.1)
    raise AssertionError("the meters stand still")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ps", "--endpoint", "unix:///nowhere/x.sock"), "check that the runtime runs"),
        (("ps", "--endpoint", "x.sock"), "is not an address"),
        (("--machine", "/no/such/machine.yaml"), "cannot read the machine: No such file or directory"),
        (("--fault", "Status=OFTEN"), "'OFTEN' is not a status code"),
        (("--latency", "Sttaus=1s"), "METHOD is one of"),
    ],
)
def test_a_mistake_is_one_message_without_a_traceback(arguments: tuple[str, ...], message: str) -> None:
    failed = kubeqos(*arguments)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_an_unknown_id_and_a_taken_socket_say_so(served: Path) -> None:
    endpoint = f"unix://{served}/cri.sock"
    assert "no container or sandbox 'zzz'" in kubeqos("inspect", "zzz", "--endpoint", endpoint).stderr
    assert "another server is listening" in kubeqos("--listen", endpoint).stderr
    assert (served / "cri.sock").is_socket()
