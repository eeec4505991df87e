"""A cluster of real Kubernetes parts on our API server, as their tests see it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.apiserver.live import Answer, LiveServer


class Cluster:
    """Our API server, and the parts of Kubernetes that were started on it."""

    def __init__(self, live: LiveServer, folder: Path, parts: tuple[str, ...]) -> None:
        self.live, self.folder, self.parts = live, folder, parts

    def kubectl(self, *words: str, manifest: Any = None, code: int = 0) -> str:
        text = None if manifest is None else json.dumps(manifest)
        command = ["kubectl", "--kubeconfig", str(self.live.kubeconfig), *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def create(self, kind: str, name: str, spec: Any, version: str = "v1", **metadata: Any) -> None:
        raw = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
        self.kubectl("create", "-f", "-", manifest=raw)

    def eventually(self, what: str, is_so: Callable[[], Any], seconds: float = 90) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := is_so()):
            assert time.monotonic() < deadline, (
                f"never happened: {what}\n{self.kubectl('get', 'all,events')}{self._logs()}"
            )
            time.sleep(0.3)
        return found

    def _logs(self) -> str:
        """How the logs of the parts end."""
        return "".join(f"{log.name}:\n{log.read_text()[-3000:]}\n" for log in self.folder.glob("*.log"))

    def phase(self, pod: str) -> str:
        return str((self.get("pod", pod).get("status") or {}).get("phase"))

    def runs(self, pod: str) -> None:
        """Wait until every container of a pod is ready."""

        def is_ready() -> bool:
            conditions = (self.get("pod", pod).get("status") or {}).get("conditions") or ()
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        self.eventually(f"{pod} is ready", is_ready)

    def unknown(self) -> list[str]:
        """The kinds and subresources that Kubernetes' parts asked for and the server does not have."""
        assert self.live.server.audit is not None
        self.live.server.audit.flush()
        lines = list(map(json.loads, (self.folder / "data" / "audit.log").read_text().splitlines()))
        theirs = [one for one in lines if one["agent"].startswith(self.parts)]
        assert {agent.partition("/")[0] for agent in (one["agent"] for one in theirs)} == set(self.parts)
        return not_served(self.live, {one["path"] for one in theirs if one["code"] == 404})


def not_served(live: LiveServer, missed: Iterable[str]) -> list[str]:
    """Of paths where nothing was found, those where never anything will be.

    An object may be gone, and with it what lives below it: the server names it then. Who asks for a kind or a
    subresource that is not served is told of no name.
    """
    return sorted(path for path in set(map(place, missed)) if is_unknown(live.call("GET", path)))


def is_unknown(answer: Answer) -> bool:
    named = isinstance(answer.body, dict) and (answer.body.get("details") or {}).get("name")
    return answer.code == 404 and not named


def place(path: str) -> str:
    """What a path is about: the collection of an object, and the subresource if it has one, of whatever object."""
    found = re.match(r"(/api/v1|/apis/[^/]+/[^/]+)(/namespaces/[^/]+(?=/(?!status$|finalize$)))?/[^/]+", path)
    if found is None:
        return path
    below = path[found.end() :].strip("/").split("/")
    return f"{found[0]}/any/{below[1]}" if len(below) > 1 else found[0]
