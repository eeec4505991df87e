"""In-place resize: reserved first, told then; what a refusal means, and what the status says meanwhile."""

from __future__ import annotations

from typing import Any

from kubeqos.node.pod.resize import resources_changed, resources_of, to_be_told, with_resources
from tests.node.pod.playbook import (
    Allocation,
    Look,
    Playbook,
    PodSet,
    Refusal,
    Resize,
    UpdateResources,
    UpdateSandbox,
    after,
    done,
    event,
    failed,
    look,
    pod,
    running,
    status,
    wakes,
)
from tests.node.pods import container, resources


def sized(cpu: str, generation: int = 1) -> dict[str, Any]:
    raw = pod("web", container(resources=resources(cpu=cpu, memory="1Gi")), container("other"))
    raw["metadata"]["generation"] = generation
    return raw


def networked(cls: str, generation: int = 1) -> dict[str, Any]:
    raw = sized("1", generation)
    raw["spec"]["qosResources"] = [{"name": "network", "class": cls}]
    return raw


UPDATE = UpdateResources("web", "main", "main-0")
SANDBOX = UpdateSandbox("web", "sandbox-0")


def test_a_resize_is_reserved_and_then_told_to_who_is_concerned() -> None:
    book = running(sized("1"))
    allocation = Allocation(sized("2", 2), frozenset({"main"}))
    assert (
        book
        >> PodSet(sized("2", 2))
        << Resize("web", 2)
        >> done(Resize("web", 2), allocation)
        << [UPDATE, status(conditions=[{"type": "PodResizeInProgress", "status": "True"}])]
        >> done(UPDATE)
        << Look("web")
        >> look("web")
        << []
    )
    assert book.container("web")["allocatedResources"]["cpu"] == "2"
    assert not book.condition("web", "PodResizeInProgress")


def test_until_it_is_granted_the_status_shows_what_the_pod_has() -> None:
    book = running(sized("1")) >> PodSet(sized("2", 2)) << Resize("web", 2)
    assert book.container("web")["resources"]["requests"]["cpu"] == "1"
    assert book.core.pods["web"].admitted.raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


def test_an_infeasible_resize_is_told_once_and_not_tried_again() -> None:
    book = running(sized("1"))
    never = Refusal("Infeasible", "Node didn't have enough capacity: cpu")
    book >> PodSet(sized("900", 2)) << Resize("web", 2)
    book >> done(Resize("web", 2), never) << [event("ResizeInfeasible", "capacity"), wakes(None)]
    pending = book.condition("web", "PodResizePending")
    assert (pending["reason"], pending["message"]) == ("Infeasible", "Node didn't have enough capacity: cpu")
    assert book >> look("web") << []
    assert book >> PodSet(sized("2", 3)) << Resize("web", 3)  # another wish is another question


def test_a_deferred_resize_is_tried_again() -> None:
    book = running(sized("1")) >> PodSet(sized("4", 2)) << Resize("web", 2)
    later = Refusal("Deferred", "used by others", retry=True)
    book >> done(Resize("web", 2), later) << [status(conditions=[{"type": "PodResizePending", "reason": "Deferred"}])]
    assert book.core.due == book.now + 1
    assert book >> after(1) << Resize("web", 2) >> done(Resize("web", 2), later) << wakes(1)


def test_a_wish_that_is_taken_back_leaves_no_condition() -> None:
    book = running(sized("1")) >> PodSet(sized("900", 2)) << Resize("web", 2)
    book >> done(Resize("web", 2), Refusal("Infeasible", "never")) << event("ResizeInfeasible")
    assert book >> PodSet(sized("1", 3)) << [status()]
    assert not book.condition("web", "PodResizePending")


def test_an_update_that_fails_is_told_and_tried_again() -> None:
    book = running(sized("1")) >> PodSet(sized("2", 2)) << Resize("web", 2)
    book >> done(Resize("web", 2), Allocation(sized("2", 2), frozenset({"main"}))) << UPDATE
    book >> failed(UPDATE, "cgroup is busy") << [event("ResizeError", "cgroup is busy"), wakes(1)]
    assert book >> after(1) << UPDATE


def test_classes_of_a_whole_pod_are_told_to_its_sandbox() -> None:
    book = running(networked("slow"))
    assert (
        book
        >> PodSet(networked("fast", 2))
        << Resize("web", 2)
        >> done(Resize("web", 2), Allocation(networked("fast", 2), frozenset({""})))
        << [SANDBOX, status(conditions=[{"type": "PodResizeInProgress", "status": "True"}])]
        >> failed(SANDBOX, "the switch is busy")
        << [event("ResizeError", "the switch is busy"), wakes(1)]
        >> after(1)
        << SANDBOX
        >> done(SANDBOX)
        << Look("web")
    )
    assert not book.core.pods["web"].updates


def test_a_sandbox_that_is_not_there_is_made_with_what_its_pod_has() -> None:
    book = Playbook(running(networked("slow")).core)
    record = book.core.pods["web"]
    book >> PodSet(networked("fast", 2)) << Resize("web", 2)
    record.sandbox = None
    assert not record.has_now("") and record.has_now("main") and not record.has_now("nobody")


def test_who_does_not_run_need_not_be_told() -> None:
    raw = sized("1")
    book = Playbook(running(raw).core)
    book.core.pods["web"].containers["main"].live = False
    book >> PodSet(sized("2", 2)) << Resize("web", 2)
    book.core.pods["web"].containers["main"].live = False
    book >> done(Resize("web", 2), Allocation(sized("2", 2), frozenset({"main"})))
    assert not book.core.pods["web"].updates


def test_a_change_of_anything_else_is_no_resize() -> None:
    raw = sized("1")
    changed = {**raw, "metadata": {**raw["metadata"], "labels": {"a": "b"}}}
    book = running(raw) >> PodSet(changed) << []
    assert book.core.pods["web"].admitted is book.core.pods["web"].asked


def test_what_of_a_pod_can_be_resized() -> None:
    raw = sized("1")
    assert set(resources_of(raw)) == {"", "main", "other"}
    assert not resources_changed(raw, raw) and not resources_changed(raw, sized("1", 7))
    assert resources_changed(raw, sized("2")) and to_be_told(raw, sized("2")) == {"main"}
    of_pod = {**raw, "spec": {**raw["spec"], "resources": {"requests": {"cpu": "3"}}}}
    assert to_be_told(raw, of_pod) == {"main", "other"}
    assert to_be_told(raw, networked("fast")) == {"", "main", "other"}
    assert to_be_told(networked("fast"), networked("fast", 2)) == set()


def test_a_pod_as_if_it_asked_for_what_an_older_ledger_says() -> None:
    raw, old = sized("2"), resources_of(sized("1"))
    assert with_resources(raw, resources_of(raw)) is raw
    assert resources_of(with_resources(raw, old)) == old
    assert raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
