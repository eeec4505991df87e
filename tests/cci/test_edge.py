"""Every field of every message that drivers send: refused, or a set of CPUs that the claim can have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.cci.answers import MOST_WORDS, Lie, refused, verified
from kubeqos.cci.builtin.hpc import Hpc
from kubeqos.cci.builtin.power import Power
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.drivers import PLUGIN_TYPE, VERSIONS, WAY_KEY
from kubeqos.cci.drivers import Driver as Registered
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.proto import ccistate_pb2 as state_pb
from kubeqos.cci.sdk import Servicer
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.plugins.proto import pluginregistration_pb2 as registration_pb
from kubeqos.plugins.registration import Plugin, info_wrong
from kubeqos.topology.claims.choosing import WAYS
from kubeqos.topology.claims.parameters import Parameters, parse_handle
from tests.cci.world import cores, cpus
from tests.shared.messages import filled

MACHINE = laptop8()
CLAIMS = [
    cores("2", cpu=[["EXCLUSIVE"]]),
    cores("1-3"),
    cores("2", "1", cpu=[["EXCLUSIVE", "CORE-SIBLING-REQUIRED"], ["SHARED"]]),
]
texts = st.one_of(
    st.sampled_from(["", "0", "0-1", "2-3", "0-2", "7", "8", "0-999999", "0,0", "-1", "1-0", "0-,x", " 0", "0\n", "x"]),
    st.text(max_size=20),
    st.integers(1, 9).map(lambda power: "0," * 4**power),
)


@st.composite
def sets(draw: st.DrawFn) -> pb.ResourceSet:
    return pb.ResourceSet(cpuset=draw(texts), exclusive=draw(st.booleans()))


@st.composite
def admissions(draw: st.DrawFn) -> pb.AdmitResponse:
    answer = pb.AdmitResponse(sets=draw(st.lists(sets(), max_size=3)), err=draw(texts | st.just("")))
    if draw(st.booleans()):
        answer.rSet.CopyFrom(draw(sets()))
    return answer


def parameters(claim: str) -> Parameters:
    found: Any = parse_handle(claim)
    assert isinstance(found, Parameters)
    return found


def believed(sent: pb.AdmitResponse, wanted: Parameters, available: CpuSet) -> bool:
    """Whether an answer is taken; then it is what was asked for."""
    found = verified(MACHINE, available, wanted, sent)
    if isinstance(found, Lie):
        assert len(str(found)) < 2000
        return False
    together = NO_CPUS
    for one in found:
        assert one.cpus and not one.cpus & together
        together |= one.cpus
    assert together <= available and wanted.least <= len(together) <= wanted.most
    return True


@given(filled(pb.AdmitResponse), st.sampled_from(CLAIMS), st.sampled_from(["0-7", "0-3", "1,4-6"]))
def test_whatever_is_in_any_field_of_an_admission(sent: pb.AdmitResponse, claim: str, free: str) -> None:
    believed(sent, parameters(claim), cpus(free))
    told = refused(sent)
    assert bool(told) == bool(sent.err) and told.isprintable() and len(told) <= MOST_WORDS + 1


@given(filled(registration_pb.PluginInfo))
def test_whatever_a_driver_says_of_itself(sent: Any) -> None:
    assert info_wrong(sent).isprintable(), "empty, or words for a log"


@given(st.dictionaries(st.text() | st.just(WAY_KEY), st.text() | st.binary() | st.sampled_from(WAYS)))
def test_whatever_a_driver_says_of_how_it_chooses(said: dict[str, Any]) -> None:
    """It is published for schedulers to decide by: one of the ways that they know, or nothing."""
    plugin = Plugin(PLUGIN_TYPE, "d.example.com", Path("/nowhere"), VERSIONS, Path("/nowhere"))
    driver = Registered(plugin, VERSIONS[0], None)  # type: ignore[arg-type]
    driver.hear(said)
    assert driver.way == (said[WAY_KEY] if said.get(WAY_KEY) in WAYS else "")


@given(admissions(), st.sampled_from(CLAIMS), st.sampled_from(["0-7", "0-3", "1,4-6"]))
def test_any_admission_is_refused_or_what_was_asked_for(sent: pb.AdmitResponse, claim: str, free: str) -> None:
    believed(sent, parameters(claim), cpus(free))


@given(st.text(max_size=50) | st.integers(0, 6).map(lambda power: "no\0\n" * 10**power))
def test_any_text_of_a_driver_is_one_line_of_bounded_length(err: str) -> None:
    for answer in (pb.AdmitResponse(err=err), pb.AddResourceResponse(err=err), pb.RemoveResourceResponse(err=err)):
        told = refused(answer)
        assert bool(told) == bool(err), "a refusal stays one, whatever its words"
        assert told.isprintable() and len(told) <= MOST_WORDS + 1


# ---- The other edge: what a driver on the SDK is sent


@given(filled(pb.AdmitRequest), st.sampled_from([*CLAIMS, None]), st.sampled_from(["0-7", "2,4-6", None]))
def test_any_request_is_refused_in_words_or_served(sent: pb.AdmitRequest, claim: str | None, free: str | None) -> None:
    """Whatever a manager sends: a driver answers, and what it answers would be believed."""
    if claim is not None:
        sent.resource_handle = claim
    if free is not None:
        sent.availableCpus = free
    answer = asyncio.run(Servicer(Reference(MACHINE), Path("/nowhere")).CCIAdmit(sent, None))
    if answer.err:
        assert answer.err.strip() and len(answer.err) <= MOST_WORDS + 1
    else:
        assert believed(answer, parameters(sent.resource_handle), cpus(sent.availableCpus) & MACHINE.online)


@given(filled(pb.AddResourceRequest), filled(pb.RemoveResourceRequest))
def test_any_start_and_end_is_heard(start: pb.AddResourceRequest, end: pb.RemoveResourceRequest) -> None:
    for driver in (Hpc(MACHINE), Power(MACHINE, sysfs=Path("/nowhere"))):
        servicer = Servicer(driver, Path("/nowhere"))
        assert not asyncio.run(servicer.CCIAddContainerResource(start, None)).err
        assert not asyncio.run(servicer.CCIRemoveContainerResource(end, None)).err


@given(filled(state_pb.HoldingsResponse))
def test_any_state_that_a_manager_gives_is_taken_or_left(sent: state_pb.HoldingsResponse) -> None:
    """A driver that comes back reads what its containers hold; nonsense there must not keep it from serving."""

    async def read(_path: Path, _driver: str) -> state_pb.HoldingsResponse:
        return sent

    async def restore() -> pb.AdmitResponse:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kubeqos.cci.sdk.read_state", read)
            servicer = Servicer(Power(MACHINE, sysfs=Path("/nowhere")), Path("/nowhere"))
            servicer.registered(True, "")
            assert servicer._task is not None
            await servicer._task
            return await servicer.CCIAdmit(pb.AdmitRequest(resource_handle=CLAIMS[0], availableCpus="0-7"), None)

    assert not asyncio.run(restore()).err
