"""A relay as a process, and pods made through any CRI socket."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import grpc

from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.proto.cri_pb2_grpc import RuntimeServiceStub
from tests.cri.images import BUSYBOX_IMAGE

START_SECONDS = 20.0

CLASSES = """
resources:
  cpu-class:
    provider: cpu
    default: normal
    capacity: {gold: 2}
    classes:
      gold: {weight: 400}
      normal: {weight: 50}
      silver: {weight: 200}
  blockio:
    provider: blockio
    annotations: [slow, slower]
    config:
      Classes:
        slow: [{Devices: [/dev/vda], ThrottleReadBps: 1Mi, ThrottleWriteIOPS: 50}]
        slower: [{Devices: [/dev/vda], ThrottleReadBps: 512Ki}]
  ulimits:
    provider: ulimits
    classes:
      few-files: {nofile: "64:128"}
      some-files: {nofile: "256:512"}
  network:
    provider: network
    default: slow
    classes:
      slow: {priority: 1}
      fast: {priority: 9, ingressBandwidth: 10M}
"""


class RelayProcess:
    """`kubeqos relay` with its own socket, state and configuration."""

    def __init__(self, folder: Path, runtime: Path, classes: str = CLASSES) -> None:
        self.folder = folder
        self.runtime = runtime
        self.socket = folder / "cri.sock"
        self.config = folder / "classes.yaml"
        self.state = folder / "relay.json"
        self.log = folder / "relay.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.arguments: list[str] = []
        self.environment: dict[str, str] = {}
        self.config.write_text(classes)

    def start(self) -> None:
        process = self.start_only()
        deadline = time.monotonic() + START_SECONDS
        with connect(self.socket) as stub:
            while time.monotonic() < deadline and process.poll() is None:
                try:
                    stub.Version(cri.VersionRequest(), timeout=1)
                    return
                except grpc.RpcError:
                    time.sleep(0.05)
        raise RuntimeError(f"the relay did not start:\n{self.log.read_text()}")

    def start_only(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        command = [
            *(sys.executable, "-m", "kubeqos.cli.main", "relay"),
            *("--listen", f"unix://{self.socket}", "--runtime", f"unix://{self.runtime}"),
            *("--config", str(self.config), "--state", str(self.state), *self.arguments),
        ]
        with self.log.open("ab") as log:
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self.process

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def configure(self, classes: str) -> str:
        """Write a new configuration and wait until the relay has said what it did with it."""
        before = self.log.read_text()
        temporary = self.config.with_suffix(".new")
        temporary.write_text(classes)
        temporary.rename(self.config)
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            said = self.log.read_text()[len(before) :]
            if "configuration taken on" in said or "configuration unchanged" in said:
                return said
            time.sleep(0.02)
        raise RuntimeError(f"the relay did not read its configuration:\n{self.log.read_text()}")


@contextlib.contextmanager
def connect(socket: Path) -> Iterator[RuntimeServiceStub]:
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        yield RuntimeServiceStub(channel)


def container_classes(**classes: str) -> list[cri.ContainerQOSResource]:
    return [
        cri.ContainerQOSResource(**{"name": name.replace("_", "-"), "class": value}) for name, value in classes.items()
    ]


def pod_classes(**classes: str) -> list[cri.PodQOSResource]:
    return [cri.PodQOSResource(**{"name": name, "class": value}) for name, value in classes.items()]


def shown(entries: Any) -> dict[str, str]:
    """qos_resources of a status as a plain mapping."""
    return {entry.name: getattr(entry, "class") for entry in entries}


class Pod:
    """One pod made through a CRI stub. Everything it made is removed at the end of its block."""

    def __init__(self, stub: RuntimeServiceStub, cgroup_parent: str, annotations: dict[str, str] | None = None) -> None:
        self.stub = stub
        self.config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name="web", namespace="default", uid=uuid.uuid4().hex),
            annotations=annotations or {},
            linux=cri.LinuxPodSandboxConfig(cgroup_parent=cgroup_parent),
        )
        options = self.config.linux.security_context.namespace_options
        options.network = cri.NODE
        self.id = ""

    def __enter__(self) -> Pod:
        self.run()
        return self

    def __exit__(self, *_: object) -> None:
        self.stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=self.id), timeout=60)
        self.stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=self.id), timeout=60)

    def run(self, **classes: str) -> None:
        self.config.qos_resources.extend(pod_classes(**classes))
        self.id = self.stub.RunPodSandbox(cri.RunPodSandboxRequest(config=self.config), timeout=60).pod_sandbox_id

    def through(self, stub: RuntimeServiceStub) -> Pod:
        """The same pod by another way."""
        other = Pod(stub, "")
        other.id, other.config = self.id, self.config
        return other

    def create(self, name: str = "main", **classes: str) -> str:
        return self.create_with(name, container_classes(**classes))

    def create_with(
        self,
        name: str,
        classes: list[cri.ContainerQOSResource],
        annotations: dict[str, str] | None = None,
        command: tuple[str, ...] = ("sleep", "1000"),
        log_path: str = "",
    ) -> str:
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name),
            image=cri.ImageSpec(image=BUSYBOX_IMAGE),
            command=command,
            log_path=log_path,
            annotations=annotations or {},
            linux=cri.LinuxContainerConfig(
                resources=cri.LinuxContainerResources(cpu_shares=512, cpuset_cpus="0", memory_limit_in_bytes=64 << 20)
            ),
            qos_resources=classes,
        )
        request = cri.CreateContainerRequest(pod_sandbox_id=self.id, config=config, sandbox_config=self.config)
        return self.stub.CreateContainer(request, timeout=60).container_id

    def start(self, container_id: str) -> str:
        self.stub.StartContainer(cri.StartContainerRequest(container_id=container_id), timeout=60)
        return container_id

    def stop(self, container_id: str) -> None:
        self.stub.StopContainer(cri.StopContainerRequest(container_id=container_id, timeout=0), timeout=60)

    def remove(self, container_id: str) -> None:
        self.stub.RemoveContainer(cri.RemoveContainerRequest(container_id=container_id), timeout=60)

    def remove_now(self, container_id: str) -> None:
        self.stop(container_id)
        self.remove(container_id)

    def update(self, container_id: str, linux: cri.LinuxContainerResources | None = None, **classes: str) -> None:
        request = cri.UpdateContainerResourcesRequest(
            container_id=container_id, linux=linux, qos_resources=container_classes(**classes)
        )
        self.stub.UpdateContainerResources(request, timeout=60)

    def status(self) -> dict[str, str]:
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=self.id)
        return shown(self.stub.PodSandboxStatus(request, timeout=10).status.qos_resources)

    def container_status(self, container_id: str) -> dict[str, str]:
        request = cri.ContainerStatusRequest(container_id=container_id)
        # A client whose relay was away for a moment waits for it, as kubelets do.
        answer = self.stub.ContainerStatus(request, timeout=60, wait_for_ready=True)
        return shown(answer.status.resources.qos_resources)


async def refused(call: Awaitable[Any]) -> CallError:
    """The error, without the frames it passed: they hold the connection for which a relay waits that stops."""
    try:
        await call
    except CallError as error:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    raise AssertionError("the call was answered")
