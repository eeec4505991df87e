"""The API server's way to nodes: who may open streams, which container is meant, and what a missing agent means."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import websockets
from websockets.asyncio.client import connect

from kubeqos.apiserver.nodes.proxy import Address, address_of, container_of
from kubeqos.codec import decode_json
from kubeqos.model.annotations.wellknown import SERVING_CERTIFICATE_ANNOTATION
from kubeqos.web.messages import Response
from kubeqos.web.pki import Pki
from kubeqos.web.status import ApiError
from tests.apiserver.live import ADMIN_TOKEN, LiveServer, live_server

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        for name, node in (("bound", "n1"), ("lost", "nowhere"), ("waiting", "")):
            spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x"}]}
            if node:
                spec["nodeName"] = node
            live.call("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        live.server.nodes.local["n1"] = Door()
        rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}]
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        live.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": "peek"}, "rules": rules})
        subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "peek", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "peek"}, "subjects": [subject], "roleRef": role}
        live.call("POST", f"{rbac}/clusterrolebindings", body)
        yield live


class Door:
    """An agent that says what it was asked."""

    async def logs(self, namespace: str, pod: str, container: str, query: Any) -> Response:
        return Response(200, f"{namespace}/{pod}/{container} {query.get('tailLines')}".encode(), "text/plain")

    async def stream(self, path: str, query: Any, socket: Any) -> None:
        asked = " ".join([path, *(f"{name}={','.join(values)}" for name, values in sorted(query.items()))])
        await socket.send(b"\x01" + asked.encode())
        data = await socket.receive()
        await socket.send(b"\x01" + (data or b"")[1:].upper())

    async def get(self, path: str, query: Any) -> Response:
        return Response(200, f"{path} {dict(query)}".encode(), "text/plain")

    async def summary(self) -> Any:
        return {"node": {"nodeName": "n1"}, "pods": []}


async def say(
    server: LiveServer, path: str, *, protocols: tuple[str, ...] = ("v5.channel.k8s.io",), **more: str
) -> Any:
    headers = {
        "Authorization": f"Bearer {ADMIN_TOKEN}",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    names = [websockets.Subprotocol(name) for name in protocols]
    uri = f"wss://{server.host}:{server.port}{path}"
    async with connect(uri, ssl=server.tls, subprotocols=names, additional_headers=headers, proxy=None) as socket:
        first = await socket.recv()
        await socket.send(b"\x00loud")
        return socket.subprotocol, first, await socket.recv()


async def refused(server: LiveServer, path: str, **more: Any) -> tuple[int, str]:
    with pytest.raises(websockets.InvalidStatus) as caught:
        await say(server, path, **more)
    return caught.value.response.status_code, decode_json(caught.value.response.body or b"{}")["message"]


EXEC = f"{PODS}/bound/exec?command=echo&command=hi&stdin=true&stdout=true&stderr=false"


async def test_streams_go_both_ways(server: LiveServer) -> None:
    asked = b"\x01exec/default/bound/main command=echo,hi input=1 output=1"
    assert await say(server, EXEC) == ("v5.channel.k8s.io", asked, b"\x01LOUD")
    assert (await say(server, EXEC, protocols=("v4.channel.k8s.io",)))[0] == "v4.channel.k8s.io"


async def test_a_container_is_attached_to(server: LiveServer) -> None:
    asked = b"\x01attach/default/bound/main output=1 tty=1"
    assert (await say(server, f"{PODS}/bound/attach?stdout=true&tty=true"))[1] == asked


async def test_who_may_only_get_cannot_run_commands(server: LiveServer) -> None:
    code, message = await refused(server, EXEC, Impersonate_User="jane")
    assert code == 403 and 'cannot create resource "pods/exec"' in message
    code, _ = await refused(server, EXEC, Impersonate_User="john")
    assert code == 403


@pytest.mark.parametrize(
    ("path", "protocols", "code", "told"),
    [
        (EXEC, ("v9.channel.k8s.io",), 400, "exec needs a WebSocket that speaks v5.channel.k8s.io"),
        (f"{PODS}/nobody/exec?command=x", ("v5.channel.k8s.io",), 404, 'pods "nobody" not found'),
        (f"{PODS}/waiting/exec?command=x", ("v5.channel.k8s.io",), 400, "pod waiting does not have a host assigned"),
        (f"{PODS}/lost/exec?command=x", ("v5.channel.k8s.io",), 404, 'nodes "nowhere" not found'),
        (f"{PODS}/bound/attach", ("v9.channel.k8s.io",), 400, "attach needs a WebSocket that speaks v5.channel.k8s.io"),
        (f"{PODS}/bound/portforward", ("v5.channel.k8s.io",), 400, "speaks SPDY/3.1+portforward.k8s.io (kubectl 1.31"),
        (
            f"{PODS}/bound/exec?command=x&container=y",
            ("v5.channel.k8s.io",),
            400,
            "container y is not valid for pod bound",
        ),
    ],
)
async def test_a_refused_handshake_says_why(
    server: LiveServer, path: str, protocols: tuple[str, ...], code: int, told: str
) -> None:
    found, message = await refused(server, path, protocols=protocols)
    assert found == code and told in message


def test_an_old_client_without_websockets_is_told(server: LiveServer) -> None:
    answer = server.call("POST", EXEC)
    assert answer.code == 400 and "kubectl 1.31 or newer" in answer.body["message"]


def test_logs_of_pods_with_and_without_a_node(server: LiveServer) -> None:
    assert server.call("GET", f"{PODS}/bound/log?tailLines=3").body == "default/bound/main ['3']"
    assert server.call("GET", f"{PODS}/waiting/log").code == 204
    assert server.call("GET", f"{PODS}/lost/log").code == 404


def test_questions_to_a_node_go_through_its_proxy(server: LiveServer) -> None:
    node = "/api/v1/nodes/n1/proxy"
    assert server.call("GET", f"{node}/stats/summary?only=cpu").body == "stats/summary {'only': ['cpu']}"
    assert server.call("GET", f"{node}/stories/default/web").body == "stories/default/web {}"
    assert server.call("GET", "/api/v1/nodes/nowhere/proxy/pods").code == 404
    assert server.call("POST", f"{node}/pods", {}).code == 405
    assert server.call("GET", f"{PODS}/bound/proxy/x").code == 404
    resources = {one["name"]: one for one in server.call("GET", "/api/v1").body["resources"]}
    assert resources["nodes/proxy"]["kind"] == "NodeProxyOptions"


class Kubelet(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]]
    """How it was asked for streams."""

    def do_GET(self) -> None:
        upgrade = self.headers.get("Upgrade")
        if upgrade:
            self.asked.append(f"{self.command} {upgrade} {self.path.partition('?')[0]}")
        self.send_response(403 if upgrade else 200)
        self.end_headers()
        self.wfile.write(b"fine here")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def kubelet(signers: Pki) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """A kubelet: how it was asked for streams, and the status of its node."""
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Kubelet,), {"asked": asked}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signers.server_files(["127.0.0.1"]))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        port = {"kubeletEndpoint": {"Port": server.server_address[1]}}
        yield asked, {"addresses": addresses, "daemonEndpoints": port}
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.mark.parametrize("known", [True, False])
def test_kubelets_of_another_authority_are_believed_if_it_is_named(tmp_path: Path, known: bool) -> None:
    """`--kubelet-certificate-authority`: without it only the cluster's own authority is, and nobody else is asked."""
    signers = Pki(tmp_path / "others")
    authority = signers.ca_file if known else None
    with kubelet(signers) as (_, status), live_server(tmp_path / "api", kubelet_authority=authority) as live:
        node = {"metadata": {"name": "theirs"}, "status": status}
        assert live.call("POST", "/api/v1/nodes", node).code == 201
        answer = live.call("GET", "/api/v1/nodes/theirs/proxy/healthz")
        assert (answer.code == 200, "fine here" in answer.raw.decode()) == (known, known), answer.raw


async def test_a_node_is_asked_for_streams_by_websocket_if_it_says_so_and_else_by_spdy(tmp_path: Path) -> None:
    """Kubelets before 1.36 know no other way than SPDY, and refuse every other."""
    signers = Pki(tmp_path / "others")
    with kubelet(signers) as (asked, status), live_server(tmp_path / "api", kubelet_authority=signers.ca_file) as live:
        node = {"metadata": {"name": "n"}, "status": status}
        assert live.call("POST", "/api/v1/nodes", node).code == 201
        spec = {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]}
        assert live.call("POST", PODS, {"metadata": {"name": "bound"}, "spec": spec}).code == 201
        for features, by in ((None, "POST SPDY/3.1"), (["Other"], "POST SPDY/3.1"), ([FEATURE], "GET websocket")):
            declared = {"status": {"declaredFeatures": features}}
            assert live.call("PATCH", "/api/v1/nodes/n/status", declared, MERGE).code == 200
            for stream in ("exec", "attach"):
                asked.clear()
                first = await heard(live, f"{PODS}/bound/{stream}?command=x&stdout=true")
                assert asked == [f"{by} /{stream}/default/bound/main"]
                assert first.startswith(b"\x03") and b"error dialing the node agent at 127.0.0.1" in first


FEATURE = "ExtendWebSocketsToKubelet"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def heard(server: LiveServer, path: str) -> bytes:
    """The first that comes back."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    uri, names = f"wss://{server.host}:{server.port}{path}", [websockets.Subprotocol("v5.channel.k8s.io")]
    async with connect(uri, ssl=server.tls, subprotocols=names, additional_headers=headers, proxy=None) as socket:
        found = await socket.recv()
        assert isinstance(found, bytes)
        return found


def test_who_may_read_nodes_may_not_ask_them(server: LiveServer) -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    server.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": "nodes"}, "rules": rules})
    subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "nodes", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": "nodes"}, "subjects": [subject], "roleRef": role}
    server.call("POST", f"{rbac}/clusterrolebindings", body)
    answer = server.call("GET", "/api/v1/nodes/n1/proxy/pods", headers={"Impersonate-User": "joe"})
    assert answer.code == 403 and 'cannot get resource "nodes/proxy"' in answer.body["message"]


def test_metrics_of_nodes_that_do_not_answer_are_left_out(server: LiveServer) -> None:
    assert server.call("GET", "/apis/metrics.k8s.io/v1beta1/nodes").body["items"] == []
    answer = server.call("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/bound")
    assert answer.code == 404 and answer.body["message"] == 'pods.metrics.k8s.io "bound" not found'
    assert server.call("POST", "/apis/metrics.k8s.io/v1beta1/nodes", {}).code == 405
    assert server.call("GET", "/apis/metrics.k8s.io/v1beta1").body["resources"][0]["kind"] == "NodeMetrics"


def test_where_an_agent_listens() -> None:
    node: dict[str, Any] = {"metadata": {}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    with pytest.raises(ApiError) as caught:
        address_of(node)
    assert str(caught.value) == "no preferred addresses found; known addresses: [InternalIP:10.0.0.1]"
    node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10250}}
    assert address_of(node) == Address("10.0.0.1", 10250)
    node["metadata"]["annotations"] = {SERVING_CERTIFICATE_ANNOTATION: "PEM"}
    node["status"]["declaredFeatures"] = ["ExtendWebSocketsToKubelet"]
    assert address_of(node) == Address("10.0.0.1", 10250, "PEM", websockets=True)


def test_the_container_that_is_meant() -> None:
    two = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
    }
    assert container_of(two, "i") == "i"
    with pytest.raises(ApiError) as caught:
        container_of(two, None)
    assert str(caught.value).endswith("choose one of: [a b] or one of the init containers: [i]")
