"""`kubeqos dashboard`: the same page beside a cluster, as a client of its API with what its user may read."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kubeqos.codec import encode_json
from kubeqos.dashboard.server import Dashboard
from tests.apiserver.live import Answer, LiveServer
from tests.dashboard.conftest import API
from tests.dashboard.objects import assignments, node, pod


@pytest.fixture(scope="module", autouse=True)
def cluster(live: LiveServer) -> None:
    assert live.call("POST", "/api/v1/nodes", node(placed=assignments(hpc="!4-7"))).code == 201
    for place in ("bobs", "secret"):
        assert live.call("POST", "/api/v1/namespaces", {"metadata": {"name": place}}).code == 201
        raw = pod("web", namespace=place)
        assert live.call("POST", f"/api/v1/namespaces/{place}/pods", raw).code == 201
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/bobs/rolebindings"
    binding = {
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert live.call("POST", rbac, binding).code == 201


class Beside:
    """The program, and somebody who has logged in to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.link = process.stdout.readline().strip()
        self.address = urlsplit(self.link)
        self.cookie = ""
        code = self.address.fragment.rpartition("/")[2]
        answer = self.ask("POST", "login", {"code": code})
        assert answer.code == 204, answer.raw
        self.set_cookie = answer.headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        connection = http.client.HTTPConnection(self.address.hostname or "", self.address.port, timeout=60)
        headers = {"Cookie": self.cookie} if self.cookie else {}
        if body is not None:
            headers |= {"Content-Type": "application/json", "Origin": f"http://{self.address.netloc}"}
        connection.request(method, f"{API}/{path}", None if body is None else encode_json(body), headers)
        return Answer(connection.getresponse())


@contextmanager
def beside(kubeconfig: Path, *words: str) -> Iterator[Beside]:
    command = [sys.executable, "-m", "kubeqos.cli.main", "dashboard", "--port", "0", "--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        yield Beside(process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_user_of_the_kubeconfig_sees_what_it_may(live: LiveServer) -> None:
    with beside(live.kubeconfig) as found:
        told = found.ask("GET", "cluster").body
        assert told["nodes"]["n1"]["exclusive"] == 4
        assert found.ask("GET", "session").body["cluster"] == f"https://{live.host}:{live.port}"
        assert {"HttpOnly", "SameSite=Strict", "Path=/dashboard"} <= set(found.set_cookie.split("; "))
        assert found.ask("POST", "links", {}).code == 401  # only its own terminal gives links
        found.process.send_signal(signal.SIGHUP)
        assert found.process.stdout is not None
        again = found.process.stdout.readline().strip()
        assert again.partition("#")[0] == found.link.partition("#")[0]
        assert again != found.link


def test_a_user_of_one_namespace_sees_that_one(live: LiveServer, tmp_path: Path) -> None:
    config = yaml.safe_load(live.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "bob"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    with beside(kubeconfig, "-n", "bobs") as found:
        assert found.ask("GET", "pods").body["pods"].keys() == {"bobs/web"}
        assert found.ask("GET", "cluster").body["leftOut"] == ["nodes: this user may not list them"]
        assert found.ask("GET", "session").body["sees"]["pods"] == "bobs"
        assert found.ask("GET", "pods/secret/web").code == 404


def test_who_may_list_nothing_is_told_so(live: LiveServer, tmp_path: Path) -> None:
    config = yaml.safe_load(live.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "nobody"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    with beside(kubeconfig, "-n", "bobs") as found:
        assert found.ask("GET", "cluster").body["leftOut"] == ["nodes: this user may not list them"]
        assert found.ask("GET", "session").body["sees"]["pods"] == "none"


def until(found: Beside, path: str, true: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 60
    while not true(told := found.ask("GET", path).body):
        assert time.monotonic() < deadline, told
        time.sleep(0.1)
    return told


def test_a_role_that_names_single_objects_shows_these_alone_and_follows_them(live: LiveServer, tmp_path: Path) -> None:
    rbac, group = "/apis/rbac.authorization.k8s.io/v1/namespaces/bobs", "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["web", "later"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["resourcequotas"], "resourceNames": ["small"], "verbs": ["get"]},
    ]
    assert live.call("POST", f"{rbac}/roles", {"metadata": {"name": "two"}, "rules": rules}).code == 201
    binding = {
        "metadata": {"name": "uma"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "two"},
        "subjects": [{"kind": "User", "name": "uma", "apiGroup": group}],
    }
    assert live.call("POST", f"{rbac}/rolebindings", binding).code == 201
    for name in ("small", "other"):
        quota = {"metadata": {"name": name}, "spec": {"hard": {"pods": "9"}}}
        assert live.call("POST", "/api/v1/namespaces/bobs/resourcequotas", quota).code == 201
    config = yaml.safe_load(live.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "uma"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    with beside(kubeconfig, "-n", "bobs") as found:
        assert found.ask("GET", "pods").body["pods"].keys() == {"bobs/web"}
        assert found.ask("GET", "session").body["sees"]["pods"] == "bobs/later, bobs/web"
        assert found.ask("GET", "cluster").body["quotas"].keys() == {"bobs/small"}
        for path in ("pods/bobs/later", "pods/secret/web", "nodes/n1", "nodes/n1/defrag"):
            assert found.ask("GET", path).code == 404
        assert live.call("POST", "/api/v1/namespaces/bobs/pods", pod("later", namespace="bobs")).code == 201
        assert live.call("POST", "/api/v1/namespaces/bobs/pods", pod("unnamed", namespace="bobs")).code == 201
        until(found, "pods", lambda told: told["pods"].keys() == {"bobs/web", "bobs/later"})
        assert live.call("DELETE", "/api/v1/namespaces/bobs/pods/later").code == 200
        until(found, "pods", lambda told: told["pods"].keys() == {"bobs/web"})
        assert live.call("DELETE", f"{rbac}/rolebindings/uma").code == 200
        until(found, "pods", lambda told: told["pods"] == {})


def test_it_is_for_this_machine_only(live: LiveServer) -> None:
    command = [sys.executable, "-m", "kubeqos.cli.main", "dashboard", "--bind-address", "0.0.0.0"]
    done = subprocess.run([*command, "--kubeconfig", str(live.kubeconfig)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "without TLS the dashboard is for this machine only" in done.stderr


def test_a_server_without_a_dashboard_gives_no_link(live: LiveServer) -> None:
    command = [sys.executable, "-m", "kubeqos.cli.main", "dashboard", "--link", "--kubeconfig", str(live.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this API server serves no dashboard of its own" in done.stderr


def test_a_server_with_one_gives_a_link_to_the_user_of_the_kubeconfig(live: LiveServer, dashboard: Dashboard) -> None:
    command = [sys.executable, "-m", "kubeqos.cli.main", "dashboard", "--link", "--kubeconfig", str(live.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{dashboard.address}/dashboard/#/login/")
