"""CRI messages are patched, never rebuilt: what this version does not know travels on."""

from __future__ import annotations

import dataclasses

import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.holders import Assignment, Holder
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Edit, Level, Place, Subject
from kubeqos.cri.relay import messages
from tests.cri.relay.processes import container_classes, pod_classes, shown

OFFER = Advertisement("rdt", Level.CONTAINER, True, (ClassInfo("gold", 2),), "", "rdt")
NET = Advertisement("net", Level.POD, False, (ClassInfo("fast"),), "")
OFFERS = {"rdt": OFFER, "net": NET}
HOLDER = Holder(
    Subject(Level.CONTAINER, "c1", cpu_shares=512, memory_limit_bytes=1024), {"rdt": Assignment("gold", explicit=True)}
)
# Field 4001, a text: something of a CRI that does not exist yet.
FUTURE = bytes([0x8A, 0xFA, 0x01, 6]) + b"future"


def create_request() -> cri.CreateContainerRequest:
    request = cri.CreateContainerRequest(pod_sandbox_id="p")
    request.config.metadata.name = "main"
    request.config.qos_resources.extend(container_classes(rdt="gold"))
    request.config.CDI_devices.add(name="vendor.com/gpu=0")
    request.config.linux.resources.cpu_shares = 512
    request.config.linux.resources.MergeFromString(FUTURE)
    request.config.MergeFromString(FUTURE)
    request.MergeFromString(FUTURE)
    return request


def test_edits_keep_unknown_fields_at_every_depth():
    request = cri.CreateContainerRequest.FromString(create_request().SerializeToString())
    messages.edit_container(request, Edit({"a": "b"}, {"cpu_shares": 99}, {"memory.min": "1"}), HOLDER, OFFERS)
    wire = request.SerializeToString()
    assert wire.count(FUTURE) == 3
    seen = cri.CreateContainerRequest.FromString(wire)
    assert not seen.config.qos_resources
    assert [device.name for device in seen.config.CDI_devices] == ["vendor.com/gpu=0"]
    assert seen.config.linux.resources.cpu_shares == 99
    assert dict(seen.config.linux.resources.unified) == {"memory.min": "1"}
    assert seen.config.annotations["a"] == "b"


def test_tags_17_and_18_are_never_written():
    """Ruling 6: they are CDI_devices and stop_signal in the CRI of today."""
    config = cri.ContainerConfig(qos_resources=container_classes(rdt="gold"))
    wire = config.SerializeToString()
    assert not wire.startswith((bytes([0x8A, 0x01]), bytes([0x92, 0x01])))
    assert cri.ContainerConfig.FromString(wire).CDI_devices == []


def test_the_mark_is_ours_alone():
    request = create_request()
    request.config.annotations[messages.ASSIGNED] = '{"classes": {"rdt": "forged"}}'
    messages.edit_container(request, Edit(), HOLDER, OFFERS)
    found = messages.holder_from_mark(request.config.annotations, Subject(Level.CONTAINER, "c1"))
    assert found == HOLDER
    messages.edit_container(request, Edit(), Holder(Subject(Level.CONTAINER)), OFFERS)
    assert messages.ASSIGNED not in request.config.annotations


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"classes": 3}', '{"classes": {}, "cpuShares": "x"}'])
def test_a_mark_that_cannot_be_read_is_no_mark(text):
    assert messages.holder_from_mark({messages.ASSIGNED: text}, Subject(Level.CONTAINER)) is None


def test_annotations_that_were_answered_are_taken_from_the_runtime():
    request = create_request()
    request.config.annotations["io.kubernetes.cri.rdt-class"] = "gold"
    request.sandbox_config.annotations["rdt.resources.beta.kubernetes.io/pod"] = "gold"
    request.sandbox_config.annotations["blockio.resources.beta.kubernetes.io/pod"] = "not ours here"
    messages.edit_container(request, Edit(), HOLDER, OFFERS)
    assert request.config.annotations["io.kubernetes.cri.rdt-class"] == ""
    assert dict(request.sandbox_config.annotations) == {"blockio.resources.beta.kubernetes.io/pod": "not ours here"}


def test_statuses_are_filled_and_keep_what_they_had():
    response = cri.ContainerStatusResponse()
    response.status.id = "c1"
    response.status.resources.linux.cpu_shares = 7
    response.status.MergeFromString(FUTURE)
    wire = messages.patch_container_status(response.SerializeToString(), OFFERS, {"c1": HOLDER}.get)
    assert FUTURE in wire
    seen = cri.ContainerStatusResponse.FromString(wire)
    assert shown(seen.status.resources.qos_resources) == {"rdt": "gold"}
    assert seen.status.resources.linux.cpu_shares == 7


def test_a_status_shows_the_shares_that_were_asked_for():
    """A kubelet takes them for the container's request: a pod of 200m would show 1.6 CPUs."""
    scaling = {"cpu-class": dataclasses.replace(OFFERS["rdt"], name="cpu-class", scales_shares=True)}
    holder = dataclasses.replace(HOLDER, classes={"cpu-class": Assignment("gold", explicit=True)})
    response = cri.ContainerStatusResponse(status=cri.ContainerStatus(id="c1"))
    response.status.resources.linux.cpu_shares = 4096
    wire = messages.patch_container_status(response.SerializeToString(), scaling, {"c1": holder}.get)
    assert cri.ContainerStatusResponse.FromString(wire).status.resources.linux.cpu_shares == 512


def test_what_was_asked_for_is_noted_for_an_implicit_class_too():
    request = create_request()
    implicit = dataclasses.replace(HOLDER, classes={"rdt": Assignment("silver")})
    messages.edit_container(request, Edit(), implicit, OFFERS)
    found = messages.holder_from_mark(request.config.annotations, Subject(Level.CONTAINER, "c1"))
    assert found is not None and found.subject.cpu_shares == 512 and not found.classes


def test_a_pods_status_and_its_events_carry_both_levels():
    sandbox = Holder(Subject(Level.POD, "p"), {"net": Assignment("fast", explicit=True)})
    find = {"c1": HOLDER, "p": sandbox}.get
    response = cri.PodSandboxStatusResponse(status=cri.PodSandboxStatus(id="p"))
    response.containers_statuses.add(id="c1")
    seen = cri.PodSandboxStatusResponse.FromString(
        messages.patch_sandbox_status(response.SerializeToString(), OFFERS, find)
    )
    assert shown(seen.status.qos_resources) == {"net": "fast"}
    assert shown(seen.containers_statuses[0].resources.qos_resources) == {"rdt": "gold"}
    event = cri.ContainerEventResponse(container_id="c1", pod_sandbox_status=response.status)
    event.containers_statuses.add(id="c1")
    found = cri.ContainerEventResponse.FromString(messages.patch_event(event.SerializeToString(), OFFERS, find))
    assert shown(found.pod_sandbox_status.qos_resources) == {"net": "fast"}
    assert shown(found.containers_statuses[0].resources.qos_resources) == {"rdt": "gold"}


def test_runtime_status_lists_both_levels_and_keeps_conditions():
    response = cri.StatusResponse()
    response.status.conditions.add(type="RuntimeReady", status=True)
    seen = cri.StatusResponse.FromString(messages.patch_status(response.SerializeToString(), OFFERS, {}))
    assert seen.status.conditions[0].type == "RuntimeReady"
    assert [(i.name, i.mutable) for i in seen.status.resources.container_qos_resources] == [("rdt", True)]
    assert seen.status.resources.container_qos_resources[0].classes[0].capacity == 2
    assert [i.name for i in seen.status.resources.pod_qos_resources] == ["net"]


def test_a_sandbox_is_edited_in_the_same_way():
    request = cri.RunPodSandboxRequest()
    request.config.qos_resources.extend(pod_classes(net="fast"))
    request.config.MergeFromString(FUTURE)
    holder = Holder(Subject(Level.POD), {"net": Assignment("fast", explicit=True)})
    messages.edit_sandbox(request, Edit({"x": "y"}), holder)
    assert FUTURE in request.SerializeToString()
    assert not request.config.qos_resources
    assert request.config.annotations["x"] == "y"


@pytest.mark.parametrize(
    ("info", "place"),
    [
        ({"info": '{"pid": 7, "runtimeSpec": {"linux": {"cgroupsPath": "/k/c"}}}'}, Place(7)),  # asked for, not had
        ({"info": '{"pid": 7, "cgroupsPath": "/k/c"}'}, Place(7, "/k/c")),
        ({"info": '{"runtimeSpec": null}'}, Place()),
        ({"info": "not json"}, Place()),
        ({"info": "[]"}, Place()),
        ({"info": '{"pid": "seven", "cgroupsPath": 5}'}, Place()),
        ({"info": '{"pid": -1}'}, Place()),
        ({"info": '{"pid": {}}'}, Place()),
        ({"info": '{"pid": 1e30, "cgroupsPath": null}'}, Place()),
        ({}, Place()),
    ],
)
def test_where_a_container_runs(info, place):
    assert messages.place_of(info) == place


@pytest.mark.parametrize(
    ("message", "field", "tag"),
    [
        # KEP-3008, CRI API. 17 and 18 of `ContainerConfig` mean something else today; Beta's message has no tag there.
        ("ContainerConfig", "qos_resources", 3008),
        ("UpdateContainerResourcesRequest", "qos_resources", 5),
        ("PodSandboxConfig", "qos_resources", 10),
        ("PodSandboxStatus", "qos_resources", 10),
        ("ContainerResources", "qos_resources", 3),
        ("RuntimeStatus", "resources", 2),
        ("UpdatePodSandboxResourcesRequest", "qos_resources", 3008),
        ("ResourcesInfo", "pod_qos_resources", 1),
        ("ResourcesInfo", "container_qos_resources", 2),
        ("QOSResourceInfo", "name", 1),
        ("QOSResourceInfo", "mutable", 2),
        ("QOSResourceInfo", "classes", 3),
        ("QOSResourceClassInfo", "name", 1),
        ("QOSResourceClassInfo", "capacity", 2),
        ("ContainerQOSResource", "name", 1),
        ("ContainerQOSResource", "class", 2),
        ("PodQOSResource", "name", 1),
        ("PodQOSResource", "class", 2),
    ],
)
def test_fields_and_tags_are_those_of_the_proposal(message: str, field: str, tag: int) -> None:
    fields = cri.StatusResponse.DESCRIPTOR.fields_by_name["status"].message_type.file.pool
    described = fields.FindMessageTypeByName(f"runtime.v1.{message}")
    assert described.fields_by_name[field].number == tag
