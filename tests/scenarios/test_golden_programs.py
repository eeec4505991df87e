"""What programs say that run until they are told to end, those that look into them, and those that make files.

And the test that no subcommand is without a golden file.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from kubeqos.cli.main import application
from tests.scenarios import test_golden
from tests.scenarios.programs import started
from tests.scenarios.recording import FOLDER, compare
from tests.scenarios.terminal import ROOT, environment

READY = "[info     ] "
CLASSES = "resources:\n  rdt: {provider: named, capacity: {gold: 2}, classes: [gold, silver]}\n"
ALONE = {
    "up": ("up --nodes 2 --data-dir FOLDER/data --port 0", "kubeqos top"),
    "up-foreign": ("up --data-dir FOLDER --port 0", ""),
    "down": ("down --data-dir FOLDER/data", ""),
    "status": ("status --data-dir FOLDER/data", ""),
    "demo": ("demo --data-dir FOLDER/data", ""),
    "apiserver": ("apiserver --data-dir FOLDER/data --port 0", "serving"),
    "runtime": (
        "runtime --machine laptop8 --classes FOLDER/classes.yaml --listen unix://FOLDER/cri.sock",
        "simulated runtime",
    ),
    "driver-reference": ("driver reference --machine kep80 --registry FOLDER", READY),
    "driver-power": ("driver power --machine hybrid20 --sysfs FOLDER --registry FOLDER", READY),
    "driver-hpc": ("driver hpc --machine kep80 --registry FOLDER", READY),
    "driver-test": ("driver test --machine kep80 --script FOLDER/script.json --registry FOLDER", READY),
    "plugin-cpu": ("plugin cpu --machine kep80 --registry FOLDER --state FOLDER/state", READY),
    "plugin-memory": ("plugin memory --machine kep80 --registry FOLDER --state FOLDER/state", READY),
    "plugin-nic": ("plugin nic --machine kep80 --registry FOLDER --state FOLDER/state", READY),
    "plugin-knob": ("plugin knob --config FOLDER/knob.yaml --registry FOLDER --state FOLDER/state", READY),
    "plugin-retire": ("plugin retire example.com/nic --registry FOLDER", ""),
    "relay-hook": ("relay-hook --listen unix:///run/kubeqos/cri.sock --for cri-o", ""),
    "cci-new": ("cci new fast.example.com --into FOLDER/fast", ""),
    "provider-new": ("provider new turbo --folder FOLDER", ""),
    "provider-conformance": ("provider conformance /nowhere/turbo.sock", ""),
    "qrm-new": ("qrm new hugepool --folder FOLDER", ""),
}
BESIDE = {
    "scheduler": ("scheduler --kubeconfig CLUSTER/api/kubeconfig --port 0", "scheduling for"),
    "controllers": ("controllers --kubeconfig CLUSTER/api/kubeconfig --port 0", "controllers:"),
    "install": ("install --kubeconfig CLUSTER/api/kubeconfig --image kubeqos:1 --classes FOLDER/classes.yaml", ""),
    "agent": ("agent --kubeconfig CLUSTER/api/kubeconfig --node-name n1 --config FOLDER/none.yaml --port 0", ""),
    "controller": (
        "controller --kubeconfig CLUSTER/api/kubeconfig --port 0 --webhook-bind-address 127.0.0.1 --webhook-port 0",
        "controller for stock clusters",
    ),
    "node": (
        "node --kubeconfig CLUSTER/api/kubeconfig --simulated laptop8 --node-name n1 --state-dir FOLDER",
        "8 CPUs",
    ),
    "runtime-ps": ("runtime ps --endpoint unix://CLUSTER/cri.sock", ""),
    "runtime-classes": ("runtime classes --endpoint unix://CLUSTER/cri.sock", ""),
    "runtime-inspect": ("runtime inspect nothing --endpoint unix://CLUSTER/cri.sock", ""),
    "runtime-none": ("runtime ps --endpoint unix://FOLDER/none.sock", ""),
    "plugin-cpu-pools": ("plugin cpu pools --socket CLUSTER/cpu.sock", ""),
    "plugin-cpu-set-pool": ("plugin cpu set-pool --socket CLUSTER/cpu.sock online=24", ""),
    "qrm-conformance": ("qrm conformance CLUSTER/knob.sock", ""),
    "cci-conformance": ("cci conformance CLUSTER/reference.cci.kubeqos.io.sock --machine kep80", ""),
    "relay": (
        "relay --listen unix://FOLDER/relay.sock --runtime unix://CLUSTER/cri.sock --config FOLDER/relay.yaml"
        " --state FOLDER/state.json --cgroup-root FOLDER --resctrl-root FOLDER",
        READY,
    ),
}


def prepare(folder: Path) -> None:
    """Files that some of the commands read."""
    (folder / "classes.yaml").write_text(CLASSES)
    (folder / "relay.yaml").write_text("resources: {}\n")
    (folder / "script.json").write_text("[]\n")
    shutil.copy(ROOT / "examples/qrm/knob.yaml", folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_alone(name: str) -> None:
    words, until = ALONE[name]
    compare(name, words, environment(), until, prepare)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """An API server, a runtime, plugins and a driver, each as a process, with their sockets in one folder."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-") as name, ExitStack() as programs:
        folder = Path(name)
        prepare(folder)
        for words, until in (
            ("apiserver --data-dir FOLDER/api --port 0", "serving"),
            ALONE["runtime"],
            ALONE["plugin-cpu"],
            ALONE["plugin-knob"],
            ALONE["driver-reference"],
        ):
            programs.enter_context(started(words.replace("FOLDER", name).split(), until))
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("name", BESIDE)
def test_beside_others(name: str, cluster: Path) -> None:
    words, until = BESIDE[name]
    compare(name, words, environment({"CLUSTER": str(cluster)}), until, prepare)


def subcommands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Everything that can be called."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from subcommands(child, (*path, name))


def test_every_subcommand_has_a_golden_file() -> None:
    words = [*test_golden.OFFLINE.values(), *test_golden.ONLINE.values(), *(each for each, _ in ALONE.values())]
    asked = [tuple(each.split()) for each in (*words, *(each for each, _ in BESIDE.values()))]
    missing = [
        " ".join(path)
        for path in subcommands(application)
        if path and not any(each[: len(path)] == path for each in asked)
    ]
    assert not missing


def test_no_file_is_left_behind() -> None:
    told = {*test_golden.OFFLINE, *test_golden.ONLINE, *ALONE, *BESIDE}
    assert {path.stem for path in FOLDER.glob("*.txt")} == told
