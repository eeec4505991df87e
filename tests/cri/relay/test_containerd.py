"""The relay in front of a real containerd: classes seen in real cgroups, refusals that leave nothing, crashes."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from pathlib import Path

import grpc
import pytest

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.proto import cri_pb2 as cri
from tests.cri.relay.processes import CLASSES, Pod, RelayProcess, connect, shown
from tests.shared import cgroups

pytestmark = pytest.mark.containerd

DISK = Path("/dev/vda")


def disk_number() -> str:
    number = DISK.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


needs_disk = pytest.mark.skipif(
    not DISK.exists() or not stat.S_ISBLK(DISK.stat().st_mode), reason=f"{DISK} is not a block device here"
)


@pytest.fixture
def stub(shared_relay):
    with connect(shared_relay.socket) as stub:
        yield stub


@pytest.fixture
def own_pod(relay, containerd):
    """A pod behind a relay that the test may kill and reconfigure."""
    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        yield pod


@pytest.fixture
def pod(stub, containerd):
    with Pod(stub, containerd.cgroup_parent) as pod:
        yield pod


def refused(call, *arguments, **named) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **named)
    return caught.value


def test_runtime_status_advertises_every_class(stub):
    resources = stub.Status(cri.StatusRequest(), timeout=10).status.resources
    container = {info.name: info for info in resources.container_qos_resources}
    assert sorted(container) == ["blockio", "cpu-class", "ulimits"]
    assert {name: info.mutable for name, info in container.items()} == {
        "blockio": True,
        "cpu-class": True,
        "ulimits": False,
    }
    assert {c.name: c.capacity for c in container["cpu-class"].classes} == {"gold": 2, "normal": 0, "silver": 0}
    assert [info.name for info in resources.pod_qos_resources] == ["network"]


def test_the_kernel_shows_what_was_asked_for(pod, containerd):
    container = pod.start(pod.create(cpu_class="gold"))
    read = containerd.cgroup_value
    assert read("cpuset.cpus", container) == "0"
    assert read("memory.limit", container) == str(64 << 20)
    assert read("cpu.shares", container) == cgroups.scaled(512, 400)
    assert pod.container_status(container) == {"blockio": "", "cpu-class": "gold", "ulimits": ""}


def test_a_container_is_found_where_the_runtime_put_it(stub, containerd):
    """runc without systemd takes a `.slice` parent for a relative path: what was asked for is not where it runs."""
    with Pod(stub, "/pod_123.slice") as pod:
        container = pod.start(pod.create(cpu_class="gold"))
        status = stub.ContainerStatus(cri.ContainerStatusRequest(container_id=container, verbose=True))
        place = Host().located(json.loads(status.info["info"])["pid"])
        assert place.cgroup.endswith(f":cri-containerd:{container}")
        assert cgroups.value(place.cgroup, "cpu.shares") == cgroups.scaled(512, 400)


def test_an_implicit_default_is_enforced_and_reported(pod, containerd):
    container = pod.start(pod.create())
    assert containerd.cgroup_value("cpu.shares", container) == cgroups.scaled(512, 50)
    assert pod.container_status(container)["cpu-class"] == "normal"
    assert pod.status() == {"network": "slow"}


@needs_disk
@pytest.mark.proves("class-blockio")
def test_block_io_class_and_its_change_are_visible_in_the_cgroup(pod, containerd):
    container = pod.start(pod.create(blockio="slow"))
    read = containerd.cgroup_value
    disk = disk_number()
    assert read("io.read_bps", container) == f"{disk} {1 << 20}"
    assert read("io.write_iops", container) == f"{disk} 50"
    pod.update(container, blockio="slower")
    assert read("io.read_bps", container) == f"{disk} {512 << 10}"
    assert read("io.write_iops", container) == ""
    # What somebody else writes there is put right within a minute.
    none = f"{disk} 0" if cgroups.VERSION == 1 else f"{disk} rbps=max"
    cgroups.file(f"{containerd.cgroup_parent}/{container}", "io.read_bps").write_text(none)
    assert read("io.read_bps", container) == ""
    deadline = time.monotonic() + 60
    while not read("io.read_bps", container) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert read("io.read_bps", container) == f"{disk} {512 << 10}"


@pytest.mark.proves("class-cpu", "class-changes")
def test_a_class_change_of_a_running_container_is_visible(pod, containerd):
    container = pod.start(pod.create(cpu_class="gold"))
    pod.update(container, cpu_class="silver")
    assert containerd.cgroup_value("cpu.shares", container) == cgroups.scaled(512, 200)
    assert pod.container_status(container)["cpu-class"] == "silver"


@pytest.mark.proves("class-cpu")
def test_a_resize_does_not_take_the_class_away(pod, containerd):
    container = pod.start(pod.create(cpu_class="gold"))
    pod.update(container, cri.LinuxContainerResources(cpu_shares=100, memory_limit_in_bytes=96 << 20))
    assert containerd.cgroup_value("memory.limit", container) == str(96 << 20)
    assert containerd.cgroup_value("cpu.shares", container) == cgroups.scaled(100, 400)


@pytest.mark.proves("class-changes")
def test_an_immutable_resource_fails_the_whole_update(pod, containerd):
    container = pod.start(pod.create(cpu_class="gold", ulimits="few-files"))
    error = refused(
        pod.update,
        container,
        cri.LinuxContainerResources(memory_limit_in_bytes=96 << 20),
        cpu_class="silver",
        ulimits="some-files",
    )
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "'ulimits' is immutable" in error.details()
    assert containerd.cgroup_value("cpu.shares", container) == cgroups.scaled(512, 400)
    assert containerd.cgroup_value("memory.limit", container) == str(64 << 20)
    assert pod.container_status(container) == {"blockio": "", "cpu-class": "gold", "ulimits": "few-files"}


@pytest.mark.proves("class-changes")
def test_an_update_that_the_runtime_refuses_moves_the_class_back(pod, containerd):
    container = pod.start(pod.create(cpu_class="gold"))
    refused(pod.update, container, cri.LinuxContainerResources(cpuset_cpus="4000"), cpu_class="silver")
    assert containerd.cgroup_value("cpu.shares", container) == cgroups.scaled(512, 400)
    assert pod.container_status(container)["cpu-class"] == "gold"


@pytest.mark.proves("class-ulimits")
def test_ulimits_reach_the_process(pod):
    container = pod.start(pod.create(ulimits="few-files"))
    request = cri.ContainerStatusRequest(container_id=container, verbose=True)
    pid = json.loads(pod.stub.ContainerStatus(request, timeout=10).info["info"])["pid"]
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert next(line for line in limits.splitlines() if "open files" in line).split()[3:5] == ["64", "128"]


@pytest.mark.parametrize(
    ("classes", "code", "text"),
    [
        ({"cpu_class": "golden"}, "INVALID_ARGUMENT", "unavailable class 'golden' of QoS resource 'cpu-class'"),
        ({"cpu": "gold"}, "INVALID_ARGUMENT", "unavailable container QoS resource type 'cpu'"),
        ({"network": "fast"}, "INVALID_ARGUMENT", "'network' is a pod-level QoS resource"),
        ({"cpu_class": ""}, "INVALID_ARGUMENT", "unavailable class ''"),
    ],
)
def test_a_bad_class_fails_create_clearly_and_leaves_nothing(pod, containerd, classes, code, text):
    error = refused(pod.create, "main", **classes)
    assert error.code().name == code
    assert text in error.details()
    with connect(containerd.socket) as direct:
        listing = cri.ListContainersRequest(filter=cri.ContainerFilter(pod_sandbox_id=pod.id))
        assert not direct.ListContainers(listing, timeout=10).containers


def test_a_bad_pod_class_fails_the_sandbox_and_leaves_nothing(stub, containerd):
    pod = Pod(stub, containerd.cgroup_parent)
    assert "unavailable class 'warp'" in refused(pod.run, network="warp").details()
    with connect(containerd.socket) as direct:
        assert not direct.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=10).items


def test_the_pods_qos_class_is_informational(pod):
    entries = [cri.ContainerQOSResource(**{"name": "pod-qos", "class": "Burstable"})]
    assert "pod-qos" not in pod.container_status(pod.create_with("main", entries))


def test_a_pod_level_class_reaches_the_sandbox(stub, containerd):
    pod = Pod(stub, containerd.cgroup_parent)
    pod.run(network="fast")
    with contextlib.ExitStack() as stack:
        stack.push(pod.__exit__)
        direct = stack.enter_context(connect(containerd.socket))
        status = direct.PodSandboxStatus(cri.PodSandboxStatusRequest(pod_sandbox_id=pod.id), timeout=10).status
        assert status.annotations["network.kubeqos.io/priority"] == "9"
        assert status.annotations["kubernetes.io/ingress-bandwidth"] == "10M"
        assert pod.status() == {"network": "fast"}


def test_capacity_counts_live_containers(pod):
    first, second = pod.create("a", cpu_class="gold"), pod.create("b", cpu_class="gold")
    error = refused(pod.create, "c", cpu_class="gold")
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "insufficient class 'gold' of QoS resource 'cpu-class': capacity 2, in use 2" in error.details()
    third = pod.create("c", cpu_class="silver")
    assert refused(pod.update, third, cpu_class="gold").code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    pod.update(first, cpu_class="silver")
    pod.update(third, cpu_class="gold")
    pod.remove(second)
    pod.create("d", cpu_class="gold")


def test_a_container_that_ended_by_itself_makes_room(pod):
    for name in ("a", "b"):
        entries = [cri.ContainerQOSResource(**{"name": "cpu-class", "class": "gold"})]
        pod.start(pod.create_with(name, entries, command=("true",)))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        listing = cri.ListContainersRequest(filter=cri.ContainerFilter(pod_sandbox_id=pod.id))
        states = [c.state for c in pod.stub.ListContainers(listing, timeout=10).containers]
        if states == [cri.CONTAINER_EXITED] * 2:
            break
        time.sleep(0.05)
    assert pod.create("c", cpu_class="gold")  # no refusal: the two that ended no longer count


@pytest.mark.parametrize(
    ("pod_annotations", "annotations", "expected"),
    [
        ({"blockio.resources.beta.kubernetes.io/pod": "slow"}, {}, "slow"),
        ({"blockio.resources.beta.kubernetes.io/container.main": "slower",
          "blockio.resources.beta.kubernetes.io/pod": "slow"}, {}, "slower"),
        ({"blockio.resources.beta.kubernetes.io/pod": "slow"},
         {"io.kubernetes.cri.blockio-class": "slower"}, "slower"),
    ],
)  # fmt: skip
@needs_disk
def test_annotations_of_stock_kubelets(stub, containerd, pod_annotations, annotations, expected):
    with Pod(stub, containerd.cgroup_parent, pod_annotations) as pod:
        container = pod.start(pod.create_with("main", [], annotations))
        assert pod.container_status(container)["blockio"] == expected
        rate = {"slow": 1 << 20, "slower": 512 << 10}[expected]
        read = containerd.cgroup_value("io.read_bps", container)
        assert read == f"{disk_number()} {rate}"


def test_an_annotation_that_nobody_answers_is_told_once(relay, containerd):
    key = "cache.resources.beta.kubernetes.io/pod"
    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent, {key: "gold"}) as pod:
        pod.create("a")
        pod.create("b")
    lines = [line for line in relay.log.read_text().splitlines() if key in line]
    assert len(lines) == 1 and "no resource here is asked for with annotations of 'cache'" in lines[0]


def test_a_class_from_an_annotation_is_checked_too(stub, containerd):
    with Pod(stub, containerd.cgroup_parent, {"blockio.resources.beta.kubernetes.io/pod": "warp"}) as pod:
        error = refused(pod.create)
        assert "unavailable class 'warp'" in error.details()
        assert "annotation blockio.resources.beta.kubernetes.io/pod" in error.details()


def test_defaults_follow_the_configuration_at_run_time(relay, own_pod, containerd):
    implicit, explicit = own_pod.start(own_pod.create("a")), own_pod.start(own_pod.create("b", cpu_class="silver"))
    shares = lambda container: containerd.cgroup_value("cpu.shares", container)  # noqa: E731
    assert (shares(implicit), shares(explicit)) == (cgroups.scaled(512, 50), cgroups.scaled(512, 200))

    assert "taken on" in relay.configure(CLASSES.replace("default: normal", "default: gold"))
    assert (shares(implicit), shares(explicit)) == (cgroups.scaled(512, 400), cgroups.scaled(512, 200))
    assert own_pod.container_status(implicit)["cpu-class"] == "gold"

    more = CLASSES + "  extra:\n    provider: cpu\n    default: idle\n    classes: {idle: {burstMicroseconds: 0}}\n"
    assert "taken on" in relay.configure(more)
    assert own_pod.container_status(implicit) == {"blockio": "", "cpu-class": "normal", "extra": "idle", "ulimits": ""}
    assert shares(implicit) == cgroups.scaled(512, 50)

    without = CLASSES.replace("      silver: {weight: 200}\n", "")
    assert "taken on" in relay.configure(without)
    assert own_pod.container_status(explicit)["cpu-class"] == "silver"
    assert shares(explicit) == cgroups.scaled(512, 200)
    assert "is retired" in refused(own_pod.create, "c", cpu_class="silver").details()
    assert "extra" not in own_pod.container_status(implicit)

    own_pod.remove_now(explicit)
    assert "taken on" in relay.configure(without)
    error = refused(own_pod.create, "c", cpu_class="silver")
    assert "unavailable class 'silver'" in error.details()


def test_a_broken_configuration_changes_nothing(relay, own_pod):
    before = own_pod.stub.Status(cri.StatusRequest(), timeout=10).status.resources
    said = relay.configure(CLASSES.replace("weight: 400", "wieght: 400"))
    assert "unknown key" in said
    assert "did you mean 'weight'?" in said
    assert own_pod.stub.Status(cri.StatusRequest(), timeout=10).status.resources == before


def test_a_crash_under_load_loses_no_assignment(relay, containerd):
    """Containers are created from two threads while the relay is killed and started again, three times."""
    created: dict[str, str] = {}
    stop = threading.Event()
    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        workers = [threading.Thread(target=_create_until, args=(pod, n, created, stop)) for n in range(2)]
        for worker in workers:
            worker.start()
        for _ in range(3):
            time.sleep(1.0)
            relay.kill()
            relay.start()
        time.sleep(1.0)
        stop.set()
        for worker in workers:
            worker.join()
        assert len(created) > 6
        for container, class_name in created.items():
            assert pod.container_status(container)["cpu-class"] == class_name
        _check_marks(pod, containerd)


def _create_until(pod: Pod, worker: int, created: dict[str, str], stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        class_name = "silver" if number % 2 else "normal"
        try:
            container = pod.create(f"w{worker}-{number}", cpu_class=class_name)
        except grpc.RpcError as error:
            # The call was cut off by the crash; whether the container exists is for the runtime to say.
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL), error
            time.sleep(0.1)
            continue
        created[container] = class_name


def _check_marks(pod: Pod, containerd) -> None:
    """Also a container whose create was cut off has the class it was created with."""
    with connect(containerd.socket) as direct:
        listing = cri.ListContainersRequest(filter=cri.ContainerFilter(pod_sandbox_id=pod.id))
        items = direct.ListContainers(listing, timeout=10).containers
        marks = {item.id: json.loads(item.annotations["qos.kubeqos.io/assigned"])["classes"] for item in items}
    for container, classes in marks.items():
        assert pod.container_status(container)["cpu-class"] == classes["cpu-class"]


@pytest.mark.proves("class-changes")
def test_a_restart_enforces_again_what_was_promised(relay, own_pod, containerd):
    container = own_pod.start(own_pod.create(cpu_class="gold"))
    own_pod.update(container, cpu_class="silver")
    relay.kill()
    cgroups.file(f"{containerd.cgroup_parent}/{container}", "cpu.shares").write_text("2")
    drifted = containerd.cgroup_value("cpu.shares", container)
    relay.start()
    assert own_pod.container_status(container)["cpu-class"] == "silver"
    deadline = time.monotonic() + 60
    while containerd.cgroup_value("cpu.shares", container) == drifted and time.monotonic() < deadline:
        time.sleep(0.05)
    assert containerd.cgroup_value("cpu.shares", container) == cgroups.scaled(512, 200)


def test_events_and_statuses_of_a_pod_agree(pod):
    container = pod.start(pod.create(cpu_class="gold"))
    request = cri.PodSandboxStatusRequest(pod_sandbox_id=pod.id)
    response = pod.stub.PodSandboxStatus(request, timeout=10)
    for status in response.containers_statuses:
        assert shown(status.resources.qos_resources) == pod.container_status(container)
    assert shown(response.status.qos_resources) == {"network": "slow"}


def test_an_unknown_container_is_the_runtimes_to_refuse(pod):
    assert refused(pod.update, "nothing", cpu_class="gold").code() is grpc.StatusCode.NOT_FOUND


def test_a_relay_that_requires_the_hook_starts_nothing_without_it(containerd, folder):
    relay = RelayProcess(folder, containerd.socket)
    relay.arguments = ["--require-hook"]
    relay.start()
    try:
        with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
            container = pod.create("a", ulimits="few-files")
            error = refused(pod.start, container)
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "does not run the relay's hook; give it the hook that `kubeqos relay-hook` prints" in error.details()
            status = stub.ContainerStatus(cri.ContainerStatusRequest(container_id=container), timeout=10).status
            assert status.state == cri.CONTAINER_CREATED
            pod.remove(container)
            relay.configure("resources: {network: {provider: network, classes: {fast: {priority: 1}}}}\n")
            assert pod.start(pod.create("b"))  # nothing of it is enforced in place
    finally:
        relay.stop()


def test_two_relays_do_not_share_a_socket(relay, containerd, folder):
    second = RelayProcess(folder, containerd.socket)
    second.log = folder / "second.log"
    second.state = folder / "second.json"
    assert second.start_only().wait(60) == 1
    assert "another process listens on this socket" in second.log.read_text()
