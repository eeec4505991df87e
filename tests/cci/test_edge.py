"""Every field of every message that drivers send: refused, or a set of CPUs that the claim can have."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.cci.answers import MOST_WORDS, Lie, refused, verified
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.model.cpuset import NO_CPUS
from kubeqos.model.hardware.named import laptop8
from kubeqos.topology.claims.parameters import Parameters, parse_handle
from tests.cci.world import cores, cpus

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


@given(admissions(), st.sampled_from(CLAIMS), st.sampled_from(["0-7", "0-3", "1,4-6"]))
def test_any_admission_is_refused_or_what_was_asked_for(sent: pb.AdmitResponse, claim: str, free: str) -> None:
    wanted, available = parameters(claim), cpus(free)
    found = verified(MACHINE, available, wanted, sent)
    if isinstance(found, Lie):
        assert len(str(found)) < 2000
        return
    together = NO_CPUS
    for one in found:
        assert one.cpus and not one.cpus & together
        together |= one.cpus
    assert together <= available and wanted.least <= len(together) <= wanted.most


@given(st.text(max_size=50) | st.integers(0, 6).map(lambda power: "no\0\n" * 10**power))
def test_any_text_of_a_driver_is_one_line_of_bounded_length(err: str) -> None:
    for answer in (pb.AdmitResponse(err=err), pb.AddResourceResponse(err=err), pb.RemoveResourceResponse(err=err)):
        told = refused(answer)
        assert bool(told) == bool(err), "a refusal stays one, whatever its words"
        assert told.isprintable() and len(told) <= MOST_WORDS + 1
