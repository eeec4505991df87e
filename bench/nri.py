"""What an NRI plugin adds to each CreateContainer of a real containerd 2: our agent, and a Go plugin that does nothing.

Run with `python -m bench.nri`; needs root, Linux and what `make stock` builds, and Go for the plugin that does nothing.
Every plugin gets a containerd of its own and is connected through a tap, which passes bytes on and notes when
containerd's question comes by and when the answer does: runtimes ask plugins under a lock, so that is how long
everybody waits. Others are measured with `python -m bench.nri NAME='PROGRAM --its-flags {socket}'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import grpc
from tests.cri.relay.processes import Pod, connect
from tests.stock.containerd2 import PROGRAMS, Containerd2, running_containerd2
from tools.stock import find

from bench.apiserver import Server, server
from bench.machine import describe
from bench.stock import part
from bench.webhook import install
from kubeqos.codec import decode_json
from kubeqos.nri.framing import PLUGIN_STREAM, Frames, Message, Messages, MessageType
from kubeqos.nri.proto import ttrpc_pb2 as ttrpc
from tools import golang

SOURCE = Path(__file__).parent / "nothing"
PODS, READY_SECONDS = 5, 120.0
TARGET = "target of ours: 99 of 100 in 5 ms or less"
CLASSES = """
resources:
  blockio: {provider: blockio, config: {Classes: {fast: [{Weight: 800}]}}}
  cpu-class: {provider: cpu, default: normal, classes: {high: {weight: 400}, normal: {weight: 100}}}
  ulimits: {provider: ulimits, classes: {few-files: {nofile: "64:128"}}}
"""
CORES = """
apiVersion: kubeqos.io/v1alpha1
kind: NodeConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
stateDir: {folder}/cores
"""
ASKED = {"qos.kubeqos.io/container.main": "cpu-class=high,ulimits=few-files"}


class Tap:
    """Between a plugin and the runtime: where plugins connect, and how long each CreateContainer took."""

    def __init__(self, runtime: Path, listen: Path) -> None:
        self._runtime, self.listen = runtime, listen
        self.milliseconds: list[float] = []
        self.answered = asyncio.Event()
        """The plugin was told what runs, and has said what it makes of that."""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        connections: list[asyncio.Task[None]] = []

        def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(asyncio.create_task(self._attend(reader, writer)))

        async with await asyncio.start_unix_server(attend, str(self.listen)):
            yield
            await asyncio.gather(*connections)  # they end when the plugin has ended

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asking, to_runtime = await asyncio.open_unix_connection(str(self._runtime))
        calls: dict[int, tuple[str, float]] = {}

        def asked(message: Message, now: float) -> None:
            if message.type == MessageType.REQUEST:
                calls[message.stream] = ttrpc.Request.FromString(message.data).method, now

        def answered(message: Message, now: float) -> None:
            method, then = calls.pop(message.stream, ("", now))
            if method == "CreateContainer":
                self.milliseconds.append((now - then) * 1000)
            elif method == "Synchronize":
                self.answered.set()

        await asyncio.gather(_pass_on(asking, writer, asked), _pass_on(reader, to_runtime, answered))


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[Message, float], None]
) -> None:
    """Bytes as they come; of what the runtime asks and is answered, each message is noted."""
    frames, messages = Frames(), Messages()
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            now = time.perf_counter()
            writer.write(data)
            for stream, payload in frames.feed(data):
                for message in messages.feed(payload) if stream == PLUGIN_STREAM else ():
                    note(message, now)
    writer.close()


def nothing() -> Path | None:
    """The Go plugin, built where that can be done."""
    version = golang.required(SOURCE, "github.com/containerd/nri")
    program = golang.cache() / "stock" / f"nri-{version}" / "nothing"
    if not program.exists():
        if problem := golang.unsuitable(shutil.which("go"), SOURCE):
            print(f"  no Go plugin: {problem}")
            return None
        try:
            golang.compile_to(program, SOURCE, ["go", "build"], ".", {})
        except subprocess.CalledProcessError as error:
            print(f"  no Go plugin: {error}")
            return None
    return program


def agent(live: Server, folder: Path, *, cores: bool) -> str:
    """Our agent's command line."""
    (folder / "classes.yaml").write_text(CLASSES)
    (folder / "node.yaml").write_text(CORES.format(folder=folder))
    words = [sys.executable, "-m", "kubeqos.cli.main", "agent", "--kubeconfig", live.directory / "data/kubeconfig"]
    words += ["--node-name", "n1", "--config", folder / "classes.yaml", "--port", "0", "--kubelet-dir", folder]
    words += ["--node-config", folder / "node.yaml"] if cores else []
    return shlex.join([*map(str, words), "--nri-socket", "{socket}"])


@contextlib.contextmanager
def bound_pods(live: Server) -> Iterator[dict[str, str]]:
    """Names and uids of pods that the API server has bound to the node, gone afterwards."""
    uids = {}
    containers = [{"name": "main", "image": "a", "resources": {"requests": {"cpu": "10m"}}}]
    for number in range(PODS):
        metadata = {"name": f"p{number}", "annotations": ASKED}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        body = {**raw, "spec": {"nodeName": "n1", "containers": containers}}
        code, answer = live.call("POST", "/api/v1/namespaces/default/pods", body)
        if code != 201:
            sys.exit(f"a pod was refused: {answer.decode()}")
        uids[f"p{number}"] = decode_json(answer)["metadata"]["uid"]
    yield uids
    for name in uids:
        live.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})


def create(runtime: Containerd2, uids: dict[str, str], times: int) -> None:
    """Containers that are made and removed again, in each pod in turn."""
    with connect(runtime.socket) as stub:
        for name, uid in uids.items():
            pod = Pod(stub, runtime.cgroup_parent, ASKED)
            pod.config.metadata.name, pod.config.metadata.uid = name, uid
            with pod:
                for _ in range(times // len(uids)):
                    pod.remove(_created(pod))


def _created(pod: Pod) -> str:
    """As a kubelet does: a plugin that does not know the pod yet is asked again."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            return pod.create("main")
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


async def measure(name: str, command: str, runtime: Containerd2, uids: dict[str, str], times: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kq-") as folder:
        tap, log = Tap(runtime.nri, Path(folder) / "nri.sock"), Path(folder) / "log"
        words = [word.format(socket=tap.listen) for word in shlex.split(command)]
        async with tap.open():
            with part(words, log):
                try:
                    async with asyncio.timeout(READY_SECONDS):
                        await tap.answered.wait()
                except TimeoutError:
                    sys.exit(f"{name} did not register:\n{log.read_text(errors='replace')[-2000:]}")
                await asyncio.to_thread(create, runtime, uids, PODS * 4)  # what is new to everybody is not counted
                tap.milliseconds.clear()
                await asyncio.to_thread(create, runtime, uids, times)
    took = sorted(tap.milliseconds)
    middle, most = took[len(took) // 2], took[len(took) * 99 // 100]
    print(f"  {name:42} {len(took):5}   half in {middle:6.2f} ms   99 of 100 in {most:6.2f} ms", flush=True)


def main(others: Sequence[str] = ()) -> None:
    """Print a line for each plugin."""
    if find(*PROGRAMS) is None or os.geteuid() != 0:
        print("needs root, and containerd 2: `make stock` builds it where Go is")
        return
    times = int(os.environ.get("BENCH_CREATES", "500"))
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(server())
        install(live)
        live.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kq-")))
        commands = dict(other.split("=", 1) for other in others)
        program = nothing()
        commands |= {"a Go plugin that does nothing": f"{program} {{socket}}"} if program else {}
        commands["our agent, classes"] = agent(live, folder, cores=False)
        commands["our agent, classes and cores"] = agent(live, folder, cores=True)
        print(f"CreateContainer on containerd 2, load {os.getloadavg()[0]:.1f}; {TARGET}")
        for name, command in commands.items():
            with running_containerd2(Path(tempfile.mkdtemp(prefix="kq-"))) as runtime, bound_pods(live) as uids:
                asyncio.run(measure(name, command, runtime, uids, times))


if __name__ == "__main__":
    print(describe())
    main(sys.argv[1:])
