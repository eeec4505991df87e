"""The folder of shortcuts is taken away, and nothing changes: same answers, same stored bytes.

The package is copied without the folder, and `kubeqos apiserver` runs from that copy beside one that has everything.
Both hear the same requests.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.pods import different, one_template

import kubeqos
from kubeqos.codec import decode_json, encode_json
from kubeqos.store import Store
from tests.apiserver.shortcuts.test_podoutline import LIMITS, LOOKALIKES
from tests.apiserver.shortcuts.test_stencils import event

PACKAGE = Path(kubeqos.__file__).parent
TOKEN = "token-of-the-tests"
CORE = "/api/v1/namespaces"
_OWN = (
    (rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", b"UID"),
    (rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", b"TIME"),
    (rb'"resourceVersion":"\d+"', b'"resourceVersion":"N"'),
    (rb"generated-[a-z0-9]{5}", b"generated-NAME"),
    (rb'"targetPort":\d+', b'"targetPort":PORT'),  # of the Service by which pods find the server
    (rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----", b"CERTIFICATE"),
    (rb'"(\d+m)?\d+s"', b'"AGE"'),  # of a row in a table
)
"""What no two servers have in common."""


def plain(text: bytes) -> bytes:
    for pattern, shown in _OWN:
        text = re.sub(pattern, shown, text)
    return re.sub(rb'"continue":"([^"]+)"', _without_revision, text)


def _without_revision(found: re.Match[bytes]) -> bytes:
    """Where a list goes on, but not at which revision: one server may just have renewed a lease."""
    token = base64.urlsafe_b64decode(found[1] + b"==")
    return b'"continue":' + re.sub(rb'"rv":\d+', b'"rv":N', token)


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package can be imported from, without the folder."""
    folder = tmp_path_factory.mktemp("without")
    shortcuts = str(PACKAGE / "apiserver")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or (folder == shortcuts and name == "shortcuts")}

    shutil.copytree(PACKAGE, folder / "kubeqos", ignore=ignored)
    return folder


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree)}


class Server:
    """`kubeqos apiserver` of one tree, and what it said."""

    def __init__(self, tree: Path, folder: Path) -> None:
        folder.mkdir()
        tokens = folder / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        tokens.chmod(0o600)
        self.data = folder / "data"
        arguments = ["--data-dir", str(self.data), "--port", "0", "--token-auth-file", str(tokens), "--no-audit"]
        gates = ["--feature-gates", "QOSResources=true"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.parts.apiserver", *arguments, *gates],
            stdout=subprocess.PIPE,
            env=environment(tree),
            cwd=folder,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split()[1].rpartition(b":")[2])
        tls = ssl.create_default_context(cafile=str(self.data / "pki/ca.crt"))
        self._connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=60)

    def call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, list[str], bytes]:
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "User-Agent": "tests/1"}
        self._connection.request(method, path, body, sent | headers)
        response = self._connection.getresponse()
        return response.status, list(response.headers.get_all("warning") or ()), response.read()

    def stop(self) -> None:
        self._connection.close()
        self.process.terminate()
        assert self.process.wait(30) == 0

    def stored(self) -> list[tuple[bytes, bytes]]:
        """Everything that the stopped server has kept."""

        async def read() -> list[tuple[bytes, bytes]]:
            store = Store.open(self.data / "kubeqos.db")
            found = [(plain(one.key.encode()), plain(one.value)) for one in store.range("/registry/").items]
            await store.close()
            return sorted(found)

        return asyncio.run(read())


class Both:
    """The server that has shortcuts, and the one that has none."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers

    def same(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        """Ask both, and get the same answer. A body may depend on what the server has stored."""
        answers = []
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        for server in self.servers:
            raw = body(server) if callable(body) else body
            raw = raw if raw is None or isinstance(raw, bytes) else encode_json(raw)
            answers.append(server.call(method, path, raw, sent))
        (code, warnings, text), other = answers
        assert (code, warnings, plain(text)) == (other[0], other[1], plain(other[2])), (method, path)
        return code


@contextmanager
def both(without: Path, folder: Path) -> Iterator[Both]:
    """Two servers; when the block ends, they have stored the same."""
    with ExitStack() as ends:
        servers = []
        for name, tree in (("with", PACKAGE.parent), ("without", without)):
            server = Server(tree, folder / name)
            ends.callback(server.process.kill)
            servers.append(server)
        yield Both(servers)
        for server in servers:
            server.stop()
        first, second = (server.stored() for server in servers)
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert one == other


def of_the_pod(name: str, body: Callable[[str], Any]) -> Callable[[Server], Any]:
    """A body that names the uid which a server has given to a pod."""

    def made(server: Server) -> Any:
        _, _, text = server.call("GET", f"{CORE}/default/pods/{name}", None, {})
        return body(decode_json(text)["metadata"]["uid"])

    return made


def binding(name: str, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


def turned(value: Any) -> Any:
    """The same with its fields in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(inner) for key, inner in reversed(value.items())}
    return [turned(inner) for inner in value] if isinstance(value, list) else value


def test_there_is_no_folder(without: Path) -> None:
    asked = "import kubeqos.apiserver.handlers as h; print(h.__file__); import kubeqos.apiserver.shortcuts"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env=environment(without),
        cwd=without,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith(str(without))
    assert "No module named 'kubeqos.apiserver.shortcuts'" in done.stderr


def test_pods_alike_and_unlike(without: Path, tmp_path: Path) -> None:
    pods = f"{CORE}/default/pods"
    with both(without, tmp_path) as two:
        for number in range(5):
            assert two.same("POST", pods, one_template(f"alike-{number}", number)) == 201
            assert two.same("POST", pods, different(f"unlike-{number}", number)) == 201
            assert two.same("POST", pods, turned(different(f"turned-{number}", number))) == 201
            spread = encode_json(different(f"spread-{number}", number)).replace(b",", b" ,\n ")
            assert two.same("POST", pods, spread) == 201
            generated = different("", number)
            generated["metadata"] = {"generateName": "generated-", "labels": {"app": "web"}}
            assert two.same("POST", pods, generated) == 201
            kubectl = f"{pods}?fieldManager=kubectl-create&fieldValidation=Strict"
            assert two.same("POST", kubectl, one_template(f"k-{number}", number), User_Agent="kubectl/v1.37") == 201
            assert two.same("POST", f"{pods}?dryRun=All", one_template("dry", number)) == 201
            assert two.same("POST", pods, one_template("alike-0", number)) == 409
            assert two.same("POST", pods.replace("default", "nowhere"), one_template("x", number)) == 404
            twice = encode_json(one_template(f"twice-{number}", number)).replace(b'"kind"', b'"kind":"Pod","kind"')
            assert two.same("POST", pods, twice) == 201
            assert two.same("POST", f"{pods}?fieldValidation=Strict", twice) == 400
            assert two.same("POST", pods, one_template("Not A Name", number)) == 422
            unknown = one_template(f"unknown-{number}", number)
            unknown["spec"]["priorityClassName"] = "none-such"
            assert two.same("POST", pods, unknown) == 403
        for number, (usual, others) in enumerate(LOOKALIKES.values()):
            for place, raw in enumerate([usual, usual, usual, *others, usual]):
                metadata = {"name": f"l{number}-{place}", **raw.get("metadata", {})}
                two.same("POST", pods, {**raw, "metadata": metadata})
        two.same("GET", f"{pods}?labelSelector=app%21%3Dweb")  # those with generated names come in any order
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        two.same("GET", f"{pods}?limit=3&labelSelector=app%21%3Dweb", Accept=table)
        assert two.same("DELETE", f"{pods}/alike-1", {}) == 200
        assert two.same("POST", pods, one_template("alike-1", 1)) == 201


def test_what_admission_looks_at(without: Path, tmp_path: Path) -> None:
    pods = f"{CORE}/team/pods"
    with both(without, tmp_path) as two:
        two.same("POST", CORE, {"metadata": {"name": "team"}})
        hard = {"pods": "14", "requests.cpu": "2", "limits.memory": "100Gi"}
        two.same("POST", f"{CORE}/team/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        codes = []
        for number in range(6):
            codes.append(two.same("POST", pods, one_template(f"a{number}", number)))
            codes.append(two.same("POST", pods, different(f"b{number}", 300 * number)))
        two.same("POST", f"{CORE}/team/limitranges", LIMITS)
        for number in range(4):
            codes.append(two.same("POST", pods, one_template(f"c{number}", number)))
            codes.append(two.same("POST", pods, different(f"d{number}", 900 + number)))
            bare = {"metadata": {"name": f"e{number}"}, "spec": {"containers": [{"name": "c", "image": "app"}]}}
            codes.append(two.same("POST", pods, bare))
        urgent = {"metadata": {"name": "urgent"}, "value": 7, "globalDefault": True}
        two.same("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
        two.same("DELETE", f"{CORE}/team/pods/a0?gracePeriodSeconds=0", {})
        two.same("DELETE", f"{CORE}/team/limitranges/l", {})
        codes += [two.same("POST", pods, one_template(f"f{number}", number)) for number in range(4)]
        assert {201, 403} == set(codes)
        assert two.same("GET", f"{CORE}/team/resourcequotas/q") == 200
        two.same("DELETE", f"{CORE}/team", {})
        assert two.same("POST", pods, one_template("late", 1)) in (403, 404)


def test_events(without: Path, tmp_path: Path) -> None:
    events = f"{CORE}/default/events"
    with both(without, tmp_path) as two:
        for number in range(4):
            for agent in ("kubeqos", "other/1.0"):
                name = f"{agent[:2]}{number}"
                assert two.same("POST", events, event(name), User_Agent=agent) == 201
                assert two.same("POST", events, turned(event(f"t-{name}", "größe \n")), User_Agent=agent) == 201
        annotated = event(
            "annotated", metadata={"name": "annotated.1", "namespace": "default", "annotations": {"a": "b"}}
        )
        assert two.same("POST", events, annotated) == 201
        part = event("part")
        part["involvedObject"]["fieldPath"] = "spec.containers{c}"
        for name in ("part.1", "part.2", "part.3"):
            part["metadata"]["name"] = name
            assert two.same("POST", events, part) == 201
        assert two.same("POST", events, event("ku1")) == 409
        assert two.same("POST", events, event("odd", count=2**31)) == 400
        assert two.same("POST", events, event("odd", count=1.5)) == 400
        assert two.same("POST", events, event("odd", firstTimestamp="yesterday")) == 400
        assert two.same("POST", events, event("Not A Name")) == 422
        twice = encode_json(event("twice")).replace(b'"reason"', b'"reason":"Other","reason"')
        assert two.same("POST", events, twice) == 201
        assert two.same("POST", events.replace("default", "nowhere"), event("x")) == 400
        assert two.same("PATCH", f"{events}/ku1.17", {"count": 2}, Content_Type="application/merge-patch+json") == 200


def test_bindings(without: Path, tmp_path: Path) -> None:
    pods = f"{CORE}/default/pods"
    with both(without, tmp_path) as two:
        for number in range(12):
            assert two.same("POST", pods, different(f"p{number}", number)) == 201
        gated = one_template("gated", 1)
        gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        assert two.same("POST", pods, gated) == 201

        def bind(name: str, body: Any, query: str = "") -> int:
            return two.same("POST", f"{pods}/{name}/binding{query}", body)

        why = {"kubeqos.io/placement": 'best of 3: "% é"'}
        assert bind("p0", of_the_pod("p0", lambda uid: binding("p0", uid=uid, annotations=why))) == 201
        assert bind("p1", of_the_pod("p1", lambda uid: turned(binding("p1", uid=uid, annotations=why)))) == 201
        assert bind("p2", encode_json(binding("p2")).replace(b",", b" ,\n ")) == 201
        assert bind("p3", {"target": {"name": "n1"}, "metadata": {"name": "p3"}}) == 201
        assert bind("p4", encode_json(binding("p4")).replace(b'"name":"n1"', b'"name":"n0","name":"n1"')) == 201
        assert bind("p5", binding("p5"), "?dryRun=All") == 201
        assert two.same("POST", f"{CORE}/default/bindings", binding("p6", namespace="default")) == 201
        assert bind("p0", binding("p0", "n2")) == 409
        assert bind("gated", binding("gated")) == 409
        assert bind("none", binding("none")) == 404
        assert bind("p7", binding("p7", uid="7d1c7b1e-0000-4000-8000-000000000000")) == 409
        assert bind("p7", binding("other")) == 400
        assert bind("p7", binding("p7", node="")) == 400
        assert bind("p7", binding("p7", annotations={"no/such/key": "x"})) == 422
        assert bind("p7", b"[]") == 400
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        patch = {"status": {"conditions": [waits], "nominatedNodeName": "n2"}}
        merge = "application/merge-patch+json"
        assert two.same("PATCH", f"{pods}/p8/status", patch, Content_Type=merge) == 200
        assert bind("p8", binding("p8")) == 201
        two.same("GET", pods)


def test_components_in_the_servers_process(without: Path, tmp_path: Path) -> None:
    """Their requests come in batches; with fixed clocks and uids not even a revision differs."""
    script = Path(__file__).with_name("embedded.py")
    said = []
    for name, tree in (("with", PACKAGE.parent), ("without", without)):
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / name)],
            env=environment(tree), cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert said[0] == said[1]
    assert sum('"nodeName"' in line for line in said[0]) == 13
    assert sum('"kind":"Event"' in line for line in said[0]) == 8
