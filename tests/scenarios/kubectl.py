"""The real kubectl against a live server, with a home and a discovery cache of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kubeqos.codec import decode_json
from tests.apiserver.live import LiveServer

BINARY = shutil.which("kubectl")


class Refused(AssertionError):
    """kubectl failed; the text is what it printed."""


class Kubectl:
    """`kubectl("get", "pods")` returns what it printed."""

    def __init__(self, live: LiveServer, home: Path) -> None:
        self.live = live
        self.home = home
        self.environment = {**os.environ, "KUBECONFIG": str(live.kubeconfig), "HOME": str(home)}

    def __call__(self, *arguments: str, stdin: object = None, timeout: float = 60) -> str:
        text = None if stdin is None else stdin if isinstance(stdin, str) else yaml.safe_dump(stdin)
        done = subprocess.run(
            [BINARY or "kubectl", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment,
        )
        if done.returncode:
            raise Refused(done.stderr.strip() or done.stdout.strip())
        return done.stdout + done.stderr

    def object(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = decode_json(self(*arguments, "-o", "json").encode())
        return found

    def table(self, *arguments: str) -> list[list[str]]:
        """The rows of a printed table, by columns of two spaces and more."""
        lines = [line for line in self("get", *arguments).splitlines() if line.strip()]
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def pod(name: str, *, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **spec: Any) -> Any:
    """A manifest as a user writes it."""
    resources: dict[str, Any] = {}
    if requests:
        resources["requests"] = requests
    if limits:
        resources["limits"] = limits
    container = {"name": "c", "image": "registry.example/app:1", "resources": resources}
    body: dict[str, Any] = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}
