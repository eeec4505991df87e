"""`kubeqos relay`: what a user sees when something is wrong before it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = "resources: {cpu: {provider: cpu, classes: {a: {weight: 10}}}}\n"


def relay(folder: Path, classes: str = GOOD, **options: str) -> subprocess.CompletedProcess[str]:
    config = folder / "classes.yaml"
    config.write_text(classes)
    chosen = {
        "listen": f"unix://{folder}/cri.sock",
        "runtime": f"unix://{folder}/runtime.sock",
        "config": str(config),
        "state": f"{folder}/state/relay.json",
        **options,
    }
    arguments = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "kubeqos.cli.main", "relay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("classes", "options", "lines"),
    [
        (
            "resources:\n  cpu:\n    provider: cpu\n    clases: {}\n",
            {},
            [
                "Error: resources.cpu.clases: unknown key",
                "  at  FOLDER/classes.yaml:4  resources.cpu.clases",
                "  did you mean 'classes'?",
            ],
        ),
        (GOOD, {"config": "/nonexistent/classes.yaml"}, ["Error: cannot read the class configuration: [Errno 2]"]),
        (GOOD, {"listen": "localhost:80"}, ["Error: --listen 'localhost:80' is not a socket"]),
        (
            GOOD,
            {"listen": f"unix:///tmp/{'x' * 105}.sock"},
            ["Error: cannot listen: AF_UNIX path too long", f"  at  /tmp/{'x' * 105}.sock"],
        ),
        (GOOD, {"listen": "unix:///proc/nowhere/cri.sock"}, ["Error: cannot listen: No such file or directory"]),
        (GOOD, {"metrics": "9465"}, ["Error: --metrics '9465' is not an address"]),
        (
            "resources: {rdt: {provider: rdt, config: {partitions: {a: {classes: {b: {}}}}}}}\n",
            {"resctrl-root": "/nonexistent"},
            ["Error: rdt: resctrl is not mounted", "  at  /nonexistent"],
        ),
    ],
)
def test_a_wrong_setting_is_one_clear_message(tmp_path: Path, classes, options, lines):
    done = relay(tmp_path, classes, **options)
    assert done.returncode == 1
    said = done.stderr.replace(str(tmp_path), "FOLDER").splitlines()
    for line, expected in zip(said, lines, strict=False):
        assert line.startswith(expected)
    assert len(said) >= len(lines)
    assert "Traceback" not in done.stderr
