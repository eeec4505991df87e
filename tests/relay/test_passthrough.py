"""Every CRI call that is not about classes gives byte-identical answers with and without the relay."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import METHODS
from tests.cri.containerd import missing, running_containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.relay.processes import Pod, RelayProcess, connect

pytestmark = pytest.mark.containerd

RUNTIME, IMAGE = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"
# These change something or carry classes: they are the relay's own, and tested in test_containerd.
OURS = {
    *("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer"),
    *("RemoveContainer", "UpdateContainerResources", "Status", "ContainerStatus", "PodSandboxStatus"),
}


@pytest.fixture(scope="module")
def containerd():
    """A containerd with nothing in it but what these tests make: it lists several things in a random order."""
    reason = missing()
    if reason:
        pytest.skip(f"real containerd: {reason}")
    with running_containerd(Path(tempfile.mkdtemp(prefix="kubeqos-"))) as runtime:
        yield runtime


@pytest.fixture
def world(containerd, shared_relay):
    with connect(containerd.socket) as direct, Pod(direct, containerd.cgroup_parent) as pod:
        container = pod.start(pod.create())
        yield containerd, shared_relay, pod, container


def requests(pod: Pod, container: str) -> list[tuple[str, Message]]:
    image = cri.ImageSpec(image=BUSYBOX_IMAGE)
    absent = cri.ImageSpec(image="localhost/none:1")
    one = cri.ContainerFilter(id=container)
    return [
        (RUNTIME + "Version", cri.VersionRequest(version="v1")),
        (RUNTIME + "ListPodSandbox", cri.ListPodSandboxRequest()),
        (RUNTIME + "ListContainers", cri.ListContainersRequest(filter=one)),
        (RUNTIME + "ListContainers", cri.ListContainersRequest()),
        (RUNTIME + "ExecSync", cri.ExecSyncRequest(container_id=container, cmd=["echo", "hi"], timeout=10)),
        (RUNTIME + "ExecSync", cri.ExecSyncRequest(container_id=container, cmd=["sh", "-c", "exit 7"], timeout=10)),
        (RUNTIME + "ExecSync", cri.ExecSyncRequest(container_id="absent", cmd=["true"])),
        (RUNTIME + "Exec", cri.ExecRequest(container_id="absent", cmd=["true"], stdout=True)),
        (RUNTIME + "Attach", cri.AttachRequest(container_id="absent", stdout=True)),
        (RUNTIME + "PortForward", cri.PortForwardRequest(pod_sandbox_id="absent", port=[80])),
        (RUNTIME + "ReopenContainerLog", cri.ReopenContainerLogRequest(container_id=container)),
        (RUNTIME + "ReopenContainerLog", cri.ReopenContainerLogRequest(container_id="absent")),
        (RUNTIME + "ContainerStats", cri.ContainerStatsRequest(container_id=container)),
        (RUNTIME + "ContainerStats", cri.ContainerStatsRequest(container_id="absent")),
        (RUNTIME + "ListContainerStats", cri.ListContainerStatsRequest()),
        (RUNTIME + "PodSandboxStats", cri.PodSandboxStatsRequest(pod_sandbox_id=pod.id)),
        (RUNTIME + "ListPodSandboxStats", cri.ListPodSandboxStatsRequest()),
        (RUNTIME + "UpdateRuntimeConfig", cri.UpdateRuntimeConfigRequest()),
        (RUNTIME + "RuntimeConfig", cri.RuntimeConfigRequest()),
        (RUNTIME + "UpdatePodSandboxResources", cri.UpdatePodSandboxResourcesRequest(pod_sandbox_id=pod.id)),
        (RUNTIME + "CheckpointContainer", cri.VersionRequest()),
        (RUNTIME + "AMethodOfTheFuture", cri.VersionRequest(version="v1")),
        (IMAGE + "ListImages", cri.ListImagesRequest()),
        (IMAGE + "ImageStatus", cri.ImageStatusRequest(image=image, verbose=True)),
        (IMAGE + "ImageStatus", cri.ImageStatusRequest(image=absent)),
        (IMAGE + "PullImage", cri.PullImageRequest(image=cri.ImageSpec(image="localhost:1/none:1"))),
        (IMAGE + "RemoveImage", cri.RemoveImageRequest(image=absent)),
        (IMAGE + "ImageFsInfo", cri.ImageFsInfoRequest()),
        ("/runtime.v1alpha2.RuntimeService/Version", cri.VersionRequest()),
    ]


def ask(channel: grpc.Channel, method: str, request: Message) -> tuple[Any, ...]:
    call = channel.unary_unary(method)
    try:
        answer, done = call.with_call(request.SerializeToString(), timeout=30)
    except grpc.RpcError as error:
        return error.code(), error.details(), list(error.trailing_metadata())
    return answer, done.code(), list(done.initial_metadata()), list(done.trailing_metadata())


# Answers with a clock or a counter in them: compared after these have been put to zero.
MEASURED = {
    "ContainerStats": cri.ContainerStatsResponse,
    "ListContainerStats": cri.ListContainerStatsResponse,
    "PodSandboxStats": cri.PodSandboxStatsResponse,
    "ListPodSandboxStats": cri.ListPodSandboxStatsResponse,
    "ImageFsInfo": cri.ImageFsInfoResponse,
}


# containerd lists its images in the random order of a Go map: two direct answers differ as well. The bytes must be
# one of those that containerd itself gives.
UNORDERED = ("ListImages",)
TRIES = 40


def same(method: str, got: tuple[Any, ...], direct: grpc.Channel, request: Message) -> bool:
    tries = TRIES if method.endswith(UNORDERED) else 1
    return any(still(method, ask(direct, method, request)) == still(method, got) for _ in range(tries))


def still(method: str, outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = MEASURED.get(method.rsplit("/", 1)[-1])
    if kind is None or not isinstance(outcome[0], bytes):
        return outcome
    message = kind.FromString(outcome[0])
    assert message.SerializeToString()
    _stop(message)
    return (message.SerializeToString(deterministic=True), *outcome[1:])


def _stop(message: Message) -> None:
    for field, value in message.ListFields():
        if field.message_type is None:
            if field.name in ("timestamp", "value"):
                setattr(message, field.name, 0)
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        for item in value if isinstance(value, list) or hasattr(value, "append") else [value]:
            _stop(item)


def test_answers_are_byte_identical(world):
    containerd, relay, pod, container = world
    options = [("grpc.default_authority", "localhost")]
    checked = []
    with (
        grpc.insecure_channel(f"unix:{containerd.socket}", options=options) as direct,
        grpc.insecure_channel(f"unix:{relay.socket}", options=options) as relayed,
    ):
        for method, request in requests(pod, container):
            assert same(method, ask(relayed, method, request), direct, request), method
            checked.append(method.rsplit("/", 1)[-1])
    assert {method.name for method in METHODS} - OURS <= set(checked)


def test_a_stream_the_runtime_does_not_have_fails_alike(world):
    containerd, relay, _, _ = world
    outcomes = []
    for socket in (containerd.socket, relay.socket):
        with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")]) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.unary_stream(RUNTIME + "GetContainerEvents")(b"", timeout=10))
            outcomes.append((caught.value.code(), caught.value.details()))
    assert outcomes[0] == outcomes[1]


def test_without_classes_a_container_is_created_as_if_there_were_no_relay(containerd, folder):
    """An empty configuration: the relay changes not one byte of what the runtime is asked."""
    relay = RelayProcess(folder, containerd.socket, "resources: {}\n")
    relay.start()
    try:
        with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
            container = pod.start(pod.create())
            with connect(containerd.socket) as direct:
                request = cri.ContainerStatusRequest(container_id=container)
                status = direct.ContainerStatus(request, timeout=10).status
            assert dict(status.annotations) == {}
            assert containerd.cgroup_file("cpu", "cpu.shares", container) == "512"
            assert pod.container_status(container) == {}
    finally:
        relay.stop()
