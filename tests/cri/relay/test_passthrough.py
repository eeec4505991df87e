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
from tests.cri.relay.processes import Pod, RelayProcess, connect

pytestmark = pytest.mark.containerd

RUNTIME, IMAGE = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"
# Every call of CRI v1 as Kubernetes has it today, also those that our own messages leave out.
STREAMS = {
    *("StreamPodSandboxes", "StreamContainers", "StreamContainerStats", "StreamPodSandboxStats"),
    *("StreamPodSandboxMetrics", "StreamImages", "GetContainerEvents"),
}
CRI = {
    *("Version", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "ListPodSandbox"),
    *("CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "ListContainers", "ContainerStatus"),
    *("UpdateContainerResources", "ReopenContainerLog", "ExecSync", "Exec", "Attach", "PortForward"),
    *("ContainerStats", "ListContainerStats", "PodSandboxStats", "ListPodSandboxStats", "UpdateRuntimeConfig"),
    *("Status", "CheckpointContainer", "CheckpointPod", "RestorePod", "ListMetricDescriptors"),
    *("ListPodSandboxMetrics", "RuntimeConfig", "UpdatePodSandboxResources"),
    *("ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"),
    *STREAMS,
}
# What the relay adds to these is tested in test_containerd; without classes it adds nothing, see below.
CLASSES_ADDED = {"Status", "ContainerStatus", "PodSandboxStatus"}


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


@pytest.fixture(scope="module")
def plain_relay(containerd):
    """A relay without classes."""
    with tempfile.TemporaryDirectory(prefix="kq-") as path:
        relay = RelayProcess(Path(path), containerd.socket, "resources: {}\n")
        relay.start()
        yield relay
        relay.stop()


OUR_MESSAGES = {method.name for method in METHODS}


def statuses(pod: Pod, container: str) -> list[tuple[str, Message]]:
    """The calls whose answers carry classes."""
    return [
        (RUNTIME + "Status", cri.StatusRequest()),
        (RUNTIME + "PodSandboxStatus", cri.PodSandboxStatusRequest(pod_sandbox_id=pod.id)),
        (RUNTIME + "PodSandboxStatus", cri.PodSandboxStatusRequest(pod_sandbox_id=pod.id, verbose=True)),
        (RUNTIME + "ContainerStatus", cri.ContainerStatusRequest(container_id=container)),
        (RUNTIME + "ContainerStatus", cri.ContainerStatusRequest(container_id=container, verbose=True)),
    ]


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
        (RUNTIME + "Exec", cri.ExecRequest(container_id=container, cmd=["true"], stdout=True)),
        (RUNTIME + "Exec", cri.ExecRequest(container_id="absent", cmd=["true"], stdout=True)),
        (RUNTIME + "Attach", cri.AttachRequest(container_id=container, stdout=True)),
        (RUNTIME + "PortForward", cri.PortForwardRequest(pod_sandbox_id=pod.id, port=[80])),
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
        *((RUNTIME + name, cri.VersionRequest()) for name in sorted(CRI - STREAMS) if name not in OUR_MESSAGES),
        # Calls that change something, on what is not there; where it is there: test_a_pods_life.
        (RUNTIME + "StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="absent")),
        (RUNTIME + "RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="absent")),
        (RUNTIME + "StartContainer", cri.StartContainerRequest(container_id="absent")),
        (RUNTIME + "StartContainer", cri.StartContainerRequest(container_id=container)),
        (RUNTIME + "StopContainer", cri.StopContainerRequest(container_id="absent")),
        (RUNTIME + "RemoveContainer", cri.RemoveContainerRequest(container_id="absent")),
        (RUNTIME + "UpdateContainerResources", cri.UpdateContainerResourcesRequest(container_id="absent")),
        (RUNTIME + "CreateContainer", cri.CreateContainerRequest(pod_sandbox_id="absent")),
        (RUNTIME + "RunPodSandbox", cri.RunPodSandboxRequest()),
        (RUNTIME + "PodSandboxStatus", cri.PodSandboxStatusRequest(pod_sandbox_id="absent")),
        (RUNTIME + "ContainerStatus", cri.ContainerStatusRequest(container_id="absent")),
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
# A stream's address ends in a token for one use.
TOKENS = {"Exec": cri.ExecResponse, "Attach": cri.AttachResponse, "PortForward": cri.PortForwardResponse}


def same(method: str, got: tuple[Any, ...], direct: grpc.Channel, request: Message) -> bool:
    tries = TRIES if method.endswith(UNORDERED) else 1
    return any(still(method, ask(direct, method, request)) == still(method, got) for _ in range(tries))


def still(method: str, outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    name = method.rsplit("/", 1)[-1]
    kind = MEASURED.get(name)
    if name in TOKENS and isinstance(outcome[0], bytes):
        return (TOKENS[name].FromString(outcome[0]).url.rpartition("/")[0], *outcome[1:])
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


def differing(containerd, relay: RelayProcess, asked: list[tuple[str, Message]]) -> list[str]:
    """Methods whose answer through the relay is none that the runtime itself gives."""
    options = [("grpc.default_authority", "localhost")]
    with (
        grpc.insecure_channel(f"unix:{containerd.socket}", options=options) as direct,
        grpc.insecure_channel(f"unix:{relay.socket}", options=options) as relayed,
    ):
        return [m for m, request in asked if not same(m, ask(relayed, m, request), direct, request)]


def test_answers_are_byte_identical(world):
    """Every call of CRI: answers, errors (Unimplemented among them), metadata."""
    containerd, relay, pod, container = world
    asked = requests(pod, container)
    assert {method.rsplit("/", 1)[-1] for method, _ in asked} >= CRI - STREAMS - CLASSES_ADDED
    assert differing(containerd, relay, asked) == []


def test_without_classes_every_answer_is_byte_identical(world, plain_relay):
    containerd, _, pod, container = world
    assert differing(containerd, plain_relay, requests(pod, container) + statuses(pod, container)) == []


def test_statuses_are_the_runtimes_own_but_for_the_classes(world):
    """The relay adds its fields and changes no other."""
    containerd, relay, pod, container = world
    kinds = {
        "Status": cri.StatusResponse,
        "PodSandboxStatus": cri.PodSandboxStatusResponse,
        "ContainerStatus": cri.ContainerStatusResponse,
    }
    options = [("grpc.default_authority", "localhost")]
    with (
        grpc.insecure_channel(f"unix:{containerd.socket}", options=options) as direct,
        grpc.insecure_channel(f"unix:{relay.socket}", options=options) as relayed,
    ):
        for method, request in statuses(pod, container):
            kind = kinds[method.rsplit("/", 1)[-1]]
            answers = [ask(channel, method, request) for channel in (relayed, direct)]
            got, own = (kind.FromString(answer[0]) for answer in answers)
            assert got != own, f"{method} shows no classes"
            _without_classes(got)
            assert got.SerializeToString(deterministic=True) == own.SerializeToString(deterministic=True)
            assert answers[0][1:] == answers[1][1:]


def _without_classes(response: Any) -> None:
    if isinstance(response, cri.StatusResponse):
        response.status.ClearField("resources")
    elif isinstance(response, cri.PodSandboxStatusResponse):
        response.status.ClearField("qos_resources")
    else:
        response.status.resources.ClearField("qos_resources")


@pytest.mark.parametrize("method", sorted(STREAMS))
def test_a_stream_the_runtime_does_not_have_fails_alike(world, method):
    """containerd 1.6 has no streams. That they pass, on servers that have them: tests/cri/relay/test_proxy.py, and for
    GetContainerEvents test_simulated.py::test_events_carry_assignments and test_events_are_passed_on_unchanged.
    """
    containerd, relay, _, _ = world
    outcomes = []
    service = IMAGE if method == "StreamImages" else RUNTIME
    for socket in (containerd.socket, relay.socket):
        with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")]) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.unary_stream(service + method)(b"", timeout=10))
            outcomes.append((caught.value.code(), caught.value.details(), list(caught.value.trailing_metadata())))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] is grpc.StatusCode.UNIMPLEMENTED


def life(socket: Path, cgroup_parent: str) -> list[tuple[Any, ...]]:
    """What a client sees of a pod's whole life, ids left out."""
    seen: list[tuple[Any, ...]] = []
    ids: list[str] = []
    options = [("grpc.default_authority", "localhost")]
    with connect(socket) as stub, grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        draft = Pod(stub, cgroup_parent)

        def step(method: str, request: Message) -> bytes:
            answer, *rest = ask(channel, RUNTIME + method, request)
            assert isinstance(answer, bytes), (method, answer, rest)
            masked = answer
            for number, identity in enumerate(ids):
                masked = masked.replace(identity.encode(), b"id%d" % number)
            seen.append((method, masked, *rest))
            return answer

        made = cri.RunPodSandboxResponse.FromString(
            step("RunPodSandbox", cri.RunPodSandboxRequest(config=draft.config))
        )
        sandbox = made.pod_sandbox_id
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"),
            image=cri.ImageSpec(image=BUSYBOX_IMAGE),
            command=["sleep", "99"],
        )
        create = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=draft.config)
        container = cri.CreateContainerResponse.FromString(step("CreateContainer", create)).container_id
        ids += [sandbox, container]
        seen = [(m, a.replace(sandbox.encode(), b"id0").replace(container.encode(), b"id1"), *r) for m, a, *r in seen]
        linux = cri.LinuxContainerResources(memory_limit_in_bytes=64 << 20)
        step("StartContainer", cri.StartContainerRequest(container_id=container))
        step("UpdateContainerResources", cri.UpdateContainerResourcesRequest(container_id=container, linux=linux))
        step("StopContainer", cri.StopContainerRequest(container_id=container))
        step("RemoveContainer", cri.RemoveContainerRequest(container_id=container))
        step("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        step("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
    return seen


def test_a_pods_life_looks_the_same(containerd, shared_relay, plain_relay):
    direct = life(containerd.socket, containerd.cgroup_parent)
    assert life(shared_relay.socket, containerd.cgroup_parent) == direct
    assert life(plain_relay.socket, containerd.cgroup_parent) == direct


def test_without_classes_a_container_is_created_as_if_there_were_no_relay(containerd, plain_relay):
    """An empty configuration: the relay changes not one byte of what the runtime is asked."""
    with connect(plain_relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        container = pod.start(pod.create())
        with connect(containerd.socket) as direct:
            request = cri.ContainerStatusRequest(container_id=container)
            status = direct.ContainerStatus(request, timeout=10).status
        assert dict(status.annotations) == {}
        assert containerd.cgroup_value("cpu.shares", container) == "512"
        assert pod.container_status(container) == {}
