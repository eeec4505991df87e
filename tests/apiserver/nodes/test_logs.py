"""Logs travel from a node agent's HTTPS server through ours to the client."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubeqos.web.tls import server_context
from tests.apiserver.live import LiveServer

ROOM = "/api/v1/namespaces/default"


class Agent:
    """The part of a node agent that answers for logs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.peers: list[object] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.split()[1])
        subject = writer.get_extra_info("peercert").get("subject")
        self.peers.append(dict(pair for names in subject for pair in names)["commonName"])
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello\n\r\n6\r\nworld\n\r\n0\r\n\r\n")
        await writer.drain()
        writer.close()


def start(live: LiveServer, agent: Agent) -> int:
    pki = live.server.pki

    async def listen() -> int:
        certificate, key = pki.server_files(["127.0.0.1", "localhost"])
        context = server_context(Path(certificate), Path(key), pki.ca_file)
        server = await asyncio.start_server(agent.serve, "127.0.0.1", 0, ssl=context)
        return int(server.sockets[0].getsockname()[1])

    return int(live.run(listen()))


def test_logs_come_from_the_pods_node(live: LiveServer) -> None:
    agent = Agent()
    port = start(live, agent)
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    assert live.call("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "status": status}).code == 201
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]}
    assert live.call("POST", f"{ROOM}/pods", {"metadata": {"name": "p"}, "spec": spec}).code == 201
    answer = live.call("GET", f"{ROOM}/pods/p/log?container=d&tailLines=5")
    assert (answer.code, answer.raw) == (200, b"hello\nworld\n")
    assert agent.asked == ["/containerLogs/default/p/d?tailLines=5"]
    assert agent.peers == ["kube-apiserver-kubelet-client"]
    unclear = live.call("GET", f"{ROOM}/pods/p/log")
    assert unclear.body["message"] == "a container name must be specified for pod p, choose one of: [c d]"
    assert live.call("GET", f"{ROOM}/pods/p/log?container=x").body["message"] == "container x is not valid for pod p"
    assert live.call("GET", f"{ROOM}/pods/p/log?container=c&tailLines=-1").code == 422


def test_a_node_without_an_address(live: LiveServer) -> None:
    assert live.call("POST", "/api/v1/nodes", {"metadata": {"name": "mute"}}).code == 201
    spec = {"nodeName": "mute", "containers": [{"name": "c", "image": "x"}]}
    assert live.call("POST", f"{ROOM}/pods", {"metadata": {"name": "q"}, "spec": spec}).code == 201
    answer = live.call("GET", f"{ROOM}/pods/q/log")
    assert answer.code == 400
    assert answer.body["message"] == "no preferred addresses found; known addresses: []"
