"""Logs, exec and top with the real kubectl: through the API server to an agent in another place, over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS, resource_of
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.run import NodeServices, serve_node
from kubeqos.node.server import access
from kubeqos.web.authority import KeyPair
from kubeqos.web.pki import Pki
from tests.apiserver.live import LiveServer, live_server
from tests.node.pods import container, pod
from tests.node.server.test_services import unnamed
from tests.node.test_live import until

pytestmark = pytest.mark.kubectl
SAYS = ["sh", "-c", "echo one; echo two >&2; echo three; sleep 3600"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api") as live:
        yield live


@contextlib.asynccontextmanager
async def node(
    server: LiveServer, folder: Path, *, local: bool = False
) -> AsyncIterator[tuple[NodeAgent, NodeServices, HttpApi]]:
    """An agent with its endpoint; `local` puts it into the API server's process instead."""
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    runtime = SimulatedRuntime(laptop8())
    agent = NodeAgent(
        assemble(NodeSettings("n1", folder / "state", log_dir=folder / "logs"), runtime, laptop8(), Hosting(api))
    )
    authority = None if local else server.server.pki.ca_file
    settings = ServiceSettings(housekeeping_seconds=0.2, client_authority=authority)
    async with serve_node(agent, settings) as running:
        task = asyncio.create_task(agent.run())
        try:
            await asyncio.wait_for(agent.ready.wait(), 60)
            yield agent, running, api
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runtime.close()
            await api.close()


async def kubectl(server: LiveServer, *words: str, code: int = 0, stdin: str = "") -> str:
    """Run kubectl; what it wrote to both outputs."""

    def run() -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(server.kubeconfig), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, input=stdin)

    done = await asyncio.to_thread(run)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


async def started(api: HttpApi, *pods: dict[str, Any]) -> None:
    for one in pods:
        await api.create(PODS, unnamed(one))

    async def all_run() -> bool:
        found = [await api.get(PODS, one["metadata"]["name"], "default") for one in pods]
        return all((one.get("status") or {}).get("phase") == "Running" for one in found)

    await until("pods run", all_run)

    async def reachable() -> bool:
        status = (await api.get(NODES, "n1"))["status"]
        return bool(status.get("daemonEndpoints"))

    await until("the node says where it is", reachable)


async def test_kubectl_logs(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, _running, api):
        crashing = container("boom", command=["sh", "-c", "echo life; exit 3"])
        two = pod("two", container("a", command=["sh", "-c", "echo from a; sleep 3600"]), container("b"))
        await started(api, pod("web", container(command=SAYS)), two)
        assert await kubectl(server, "logs", "web") == "one\ntwo\nthree\n"
        assert await kubectl(server, "logs", "web", "--tail", "1") == "three\n"
        assert await kubectl(server, "logs", "web", "--tail=0") == ""
        assert await kubectl(server, "logs", "web", "--since", "1h") == "one\ntwo\nthree\n"
        stamped = (await kubectl(server, "logs", "web", "--timestamps", "--limit-bytes", "40")).split()
        assert stamped[1] == "one" and stamped[0].endswith("Z")
        assert "container name must be specified for pod two, choose one of: [a b]" in await kubectl(
            server, "get", "--raw", "/api/v1/namespaces/default/pods/two/log", code=1
        )
        assert await kubectl(server, "logs", "two", "-c", "a") == "from a\n"
        assert "container nope is not valid for pod two" in await kubectl(server, "logs", "two", "-c", "nope", code=1)
        told = await kubectl(server, "logs", "web", "--previous", code=1)
        assert 'previous terminated container "main" in pod "web" not found' in told

        await api.create(PODS, unnamed(pod("crash", crashing, restartPolicy="Always")))

        async def restarted() -> bool:
            status = (await api.get(PODS, "crash", "default")).get("status") or {}
            return any(one["restartCount"] >= 1 for one in status.get("containerStatuses") or ())

        await until("the container restarts", restarted)
        assert await kubectl(server, "logs", "crash", "--previous") == "life\n"


async def test_kubectl_logs_follow_until_the_container_ends(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, _running, api):
        talk = container(command=["sh", "-c", "echo first; sleep 1; echo second; sleep 1; echo last"])
        await started(api, pod("talk", talk, restartPolicy="Never"))
        assert await kubectl(server, "logs", "-f", "talk") == "first\nsecond\nlast\n"


async def test_kubectl_exec(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, _running, api):
        await started(api, pod("web", container(command=SAYS)))
        assert await kubectl(server, "exec", "web", "--", "echo", "hello", "there") == "hello there\n"
        told = await kubectl(server, "exec", "web", "--", "sh", "-c", "echo bad >&2; exit 7", code=7)
        assert told == "bad\ncommand terminated with exit code 7\n"
        told = await kubectl(server, "exec", "web", "--", "nginx", "-t", code=127)
        assert told == "sh: nginx: not found\ncommand terminated with exit code 127\n"
        assert await kubectl(server, "exec", "web", "--", "hostname") == "web\n"
        (tmp_path / "sent.txt").write_text("there and back")
        await kubectl(server, "cp", str(tmp_path / "sent.txt"), "web:/data/sent.txt")
        assert await kubectl(server, "exec", "web", "--", "cat", "/data/sent.txt") == "there and back"
        await kubectl(server, "cp", "web:/data/sent.txt", str(tmp_path / "back.txt"))
        assert (tmp_path / "back.txt").read_text() == "there and back"
        await kubectl(server, "delete", "pod", "web", "--wait=false")


async def test_kubectl_top(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, running, api):
        load = {"simulate.kubeqos.io/load": "cpu=250m memory=300Mi"}
        await started(api, pod("busy", annotations=load))

        async def measured() -> bool:
            last = running.housekeeper.last
            return last is not None and any(one.containers for one in last.pods.values())

        await until("usage is known", measured)
        lines = (await kubectl(server, "top", "pods", "--no-headers")).split()
        assert lines == ["busy", "250m", "300Mi"]
        lines = (await kubectl(server, "top", "pods", "--containers", "--no-headers")).split()
        assert lines == ["busy", "main", "250m", "300Mi"]
        lines = (await kubectl(server, "top", "nodes", "--no-headers")).split()
        assert lines == ["n1", "250m", "3%", "300Mi", "1%"]
        assert "NodeMetrics" in await kubectl(server, "api-resources", "--api-group", "metrics.k8s.io")
        assert "not found" in await kubectl(server, "top", "pod", "nobody", code=1)


async def test_an_agent_in_the_same_process_needs_no_port(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path, local=True) as (_agent, running, api):
        loop = asyncio.get_running_loop()
        server.server.nodes.local["n1"] = Elsewhere(running.server, loop)  # type: ignore[assignment]
        await api.create(PODS, unnamed(pod("web", container(command=SAYS))))

        async def runs() -> bool:
            return ((await api.get(PODS, "web", "default")).get("status") or {}).get("phase") == "Running"

        await until("pod runs", runs)
        lines = (await kubectl(server, "top", "nodes", "--no-headers")).split()
        assert lines[0] == "n1"


class Elsewhere:
    """The door, on the loop that it belongs to: in these tests the API server runs in a thread of its own."""

    def __init__(self, door: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._door, self._loop = door, loop

    async def summary(self) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._door.summary(), self._loop))


async def test_only_the_cluster_s_own_are_let_in(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (agent, _running, api):
        pki = server.server.pki
        open_tls = ssl.create_default_context()
        open_tls.check_hostname, open_tls.verify_mode = False, ssl.CERT_NONE
        base = f"https://127.0.0.1:{agent.parts.serving.port}"
        async with httpx2.AsyncClient(verify=open_tls, base_url=base) as anybody:
            assert (await anybody.get("/healthz")).text == "ok"
            assert (await anybody.get("/pods")).status_code == 401
        known = ssl.create_default_context()
        known.check_hostname, known.verify_mode = False, ssl.CERT_NONE
        known.load_cert_chain(*pki.node_client_files())
        async with httpx2.AsyncClient(verify=known, base_url=base) as apiserver:
            assert (await apiserver.get("/pods")).json()["kind"] == "PodList"
            assert "kubelet_running_pods" in (await apiserver.get("/metrics")).text
            assert "node_memory_working_set_bytes" in (await apiserver.get("/metrics/resource")).text
            assert (await apiserver.get("/stats/summary")).json()["node"]["nodeName"] == "n1"
            assert (await apiserver.get("/nothing")).status_code == 404
        stranger = bearing(pki.issue_client("jane", ["devs"]), tmp_path)
        async with httpx2.AsyncClient(verify=stranger, base_url=base) as jane:
            refused = await jane.get("/pods")
            told = "Forbidden (user=jane, verb=get, resource=nodes, subresource=pods)"
            assert (refused.status_code, refused.json()["message"]) == (403, told)
        await let(api, "devs", {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]})
        async with httpx2.AsyncClient(verify=stranger, base_url=base) as jane:
            assert (await jane.get("/metrics")).status_code == 200, "a role lets the group in, and nowhere else"
            assert (await jane.get("/stats/summary")).status_code == 403


async def test_an_api_server_s_certificate_without_an_organization_is_let_in_by_its_name(
    server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubeadm's may be: nothing but `kube-apiserver-kubelet-client`, and a role binding for that user."""
    monkeypatch.setattr(access, "DENIED_SECONDS", 0.0)
    async with node(server, tmp_path) as (agent, _running, api):
        client = bearing(server.server.pki.issue_client(KUBELET_CLIENT), tmp_path)
        base = f"https://127.0.0.1:{agent.parts.serving.port}"
        async with httpx2.AsyncClient(verify=client, base_url=base) as apiserver:
            refused = [await apiserver.get("/pods"), await apiserver.get("/exec/default/web/main?command=ls")]
            asked = ["verb=get, resource=nodes, subresource=pods", "verb=create, resource=nodes, subresource=proxy"]
            told = [(403, f"Forbidden (user={KUBELET_CLIENT}, {one})") for one in asked]
            assert [(one.status_code, one.json()["message"]) for one in refused] == told
        await bind(api, "system:kubelet-api-admin", {"kind": "User", "name": KUBELET_CLIENT})
        async with httpx2.AsyncClient(verify=client, base_url=base) as apiserver:
            assert (await apiserver.get("/pods")).json()["kind"] == "PodList"
            opened = await apiserver.get("/exec/default/web/main?command=ls")
            assert opened.status_code == 400 and "exec needs SPDY, or a WebSocket" in opened.json()["message"]


async def test_a_certificate_of_another_authority_opens_nothing(server: LiveServer, tmp_path: Path) -> None:
    """Whatever it says of itself: neither the name of the API server nor `system:masters` helps."""
    foreign = Pki(tmp_path / "foreign").issue_client(KUBELET_CLIENT, ["system:masters"])
    async with node(server, tmp_path) as (agent, _running, api):
        await bind(api, "system:kubelet-api-admin", {"kind": "User", "name": KUBELET_CLIENT})
        base = f"https://127.0.0.1:{agent.parts.serving.port}"
        async with httpx2.AsyncClient(verify=bearing(foreign, tmp_path), base_url=base) as stranger:
            for path in ("/pods", "/metrics", "/exec/default/web/main?command=ls"):
                with pytest.raises(httpx2.TransportError):  # in the handshake, before anything is asked
                    await stranger.get(path)
        own = server.server.pki.issue_client(KUBELET_CLIENT, ["system:masters"])
        async with httpx2.AsyncClient(verify=bearing(own, tmp_path), base_url=base) as apiserver:
            assert (await apiserver.get("/pods")).status_code == 200, "the same words, of our authority"


KUBELET_CLIENT = "kube-apiserver-kubelet-client"


def bearing(pair: KeyPair, folder: Path) -> ssl.SSLContext:
    """The TLS of a client that shows this certificate and takes every server's."""
    files = folder / "shown.crt", folder / "shown.key"
    for path, text in zip(files, (pair.certificate, pair.key), strict=True):
        path.write_bytes(text)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*files)
    return context


async def let(api: HttpApi, group: str, rule: Any) -> None:
    roles = resource_of(f"{RBAC}/v1", "ClusterRole")
    assert roles is not None
    await api.create(roles, {"metadata": {"name": group}, "rules": [rule]})
    await bind(api, group, {"kind": "Group", "name": group})


async def bind(api: HttpApi, role: str, subject: dict[str, str]) -> None:
    bindings = resource_of(f"{RBAC}/v1", "ClusterRoleBinding")
    assert bindings is not None
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": RBAC}
    body = {"metadata": {"name": "bound"}, "subjects": [{**subject, "apiGroup": RBAC}], "roleRef": reference}
    await api.create(bindings, body)


RBAC = "rbac.authorization.k8s.io"
