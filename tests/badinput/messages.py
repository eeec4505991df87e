"""Messages of runtimes, plugins and drivers, written by a coverage-guided fuzzer (atheris):

    python -m tests.badinput.messages [qrm cci cri nri registration] [--runs 100000 | --seconds 60]

Each goes where our code reads it first. Bytes that are no such message are the decoder's affair; what can be decoded is
believed or refused in the words of that edge, and nothing else may come of it. The fuzzer begins with messages that
were recorded from the real programs (`tests/conformance/data/*_wire`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["kubeqos"]):
    from kubeqos.cci.answers import refused, verified
    from kubeqos.cci.proto import cci_pb2 as cci
    from kubeqos.cri.proto import cri_pb2 as cri
    from kubeqos.cri.relay import messages as relay
    from kubeqos.cri.relay.hpack import Decoder
    from kubeqos.node.cri.observer import seen_container, seen_sandbox
    from kubeqos.nri.events import METHODS
    from kubeqos.nri.framing import Frames, Messages
    from kubeqos.nri.proto import nri_pb2 as nri
    from kubeqos.plugins.proto import pluginregistration_pb2 as registration
    from kubeqos.plugins.registration import info_wrong
    from kubeqos.qrm.asking import Question
    from kubeqos.qrm.edge import messages as qrm
    from kubeqos.qrm.proto import resourceplugin_pb2 as plugin
    from kubeqos.stock.agent import adjusting

from google.protobuf.message import DecodeError
from tools.reliability import record

from kubeqos.cri.providers.protocol import Level, Subject
from kubeqos.errors import KubeqosError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.topology.claims.parameters import Parameters, parse_handle
from tests.cci.world import cores
from tests.conformance.recorded import cases

MACHINE = laptop8()
QUESTION = Question("cpu", "cpu", "cpu", 2.0)
ASKED = plugin.ResourceRequest(pod_uid="u", pod_namespace="default", pod_name="p", container_name="c")
CLAIMS = [cores("2", cpu=[["EXCLUSIVE"]]), cores("1-3")]
WANTED = [found for found in map(parse_handle, CLAIMS) if isinstance(found, Parameters)]
SUBJECT = Subject(Level.CONTAINER)

Reader = tuple[type[Any] | None, Callable[[Any], object]]
"""The message that bytes are decoded as (None: they are read as they are), and what our code does with it."""


def admitted(answer: cci.AdmitResponse) -> None:
    refused(answer)
    for wanted in WANTED:
        verified(MACHINE, CpuSet.parse("0-7"), wanted, answer)


def created(request: cri.CreateContainerRequest) -> None:
    relay.knows_classes(request)
    relay.wishes_of(request.config.qos_resources)
    relay.holder_from_mark(request.config.annotations, relay.container_subject(request, request.pod_sandbox_id))


def status_of(response: cri.ContainerStatusResponse) -> None:
    seen_container(response.status)
    relay.place_of(response.info)
    relay.holder_from_mark(response.status.annotations, SUBJECT)
    relay.patch_container_status(response.SerializeToString(), {}, lambda _: None)


def sandbox_of(response: cri.PodSandboxStatusResponse) -> None:
    seen_sandbox(response.status)
    relay.place_of(response.info)
    relay.patch_sandbox_status(response.SerializeToString(), {}, lambda _: None)


def nri_bytes(data: bytes) -> None:
    frames, messages = Frames(), Messages()
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        for _, payload in frames.feed(half):
            for message in messages.feed(payload):
                message.encode()


def nri_request(request: Any) -> None:
    pods = [request.pod] if hasattr(request, "pod") else list(request.pods)
    containers = [request.container] if hasattr(request, "container") else list(getattr(request, "containers", ()))
    for pod in pods:
        adjusting.found_pod(pod)
        adjusting.pod_place(pod)
        for container in containers:
            adjusting.found_container(pod, container)
            adjusting.place_of(container)


EDGES: dict[str, list[Reader]] = {
    "registration": [(registration.PluginInfo, info_wrong)],
    "qrm": [
        (plugin.RegisterRequest, qrm.read_registration),
        (plugin.ResourcePluginOptions, qrm.read_options),
        (plugin.ResourceHintsResponse, lambda sent: qrm.read_hints(ASKED, QUESTION, sent, MACHINE)),
        (plugin.PodResourceHintsResponse, lambda sent: qrm.read_hints(ASKED, QUESTION, sent, MACHINE)),
        (
            plugin.ResourceAllocationResponse,
            lambda sent: qrm.read_allocation(ASKED, QUESTION, sent, plugin.MAIN, MACHINE),
        ),
        (plugin.GetTopologyAwareAllocatableResourcesResponse, lambda sent: qrm.read_capacity(sent, MACHINE)),
        (
            plugin.GetTopologyAwareResourcesResponse,
            lambda sent: qrm.read_container_resources(sent, "u", "c", MACHINE),
        ),
        (None, qrm.read_report),
    ],
    "cci": [(cci.AdmitResponse, admitted)],
    "cri": [
        (cri.ContainerStatusResponse, status_of),
        (cri.PodSandboxStatusResponse, sandbox_of),
        (cri.CreateContainerRequest, created),
        (None, lambda data: relay.patch_status(data, {}, {"p": "away"})),
        (None, lambda data: relay.patch_event(data, {}, lambda _: None)),
        (None, lambda data: Decoder().decode(data)),
    ],
    "nri": [
        (None, nri_bytes),
        (nri.SynchronizeRequest, nri_request),
        *((method.request, nri_request) for method in METHODS.values() if "container" in method.handler),
    ],
}
WIRES = ("cri_wire", "nri_wire", "qrm_wire", "registration_podresources_wire")


def feed(edge: str, data: bytes) -> None:
    """One message to one edge. The first byte says which, and whether the rest is it or what it is made from."""
    if not data:
        return
    message, read = EDGES[edge][data[0] % BUILT % len(EDGES[edge])]
    with suppress(DecodeError, KubeqosError):  # refused, in words
        if message is None:
            read(data[1:])
        elif data[0] < BUILT:
            read(message.FromString(data[1:]))
        else:
            built, drawn = message(), atheris.FuzzedDataProvider(data[1:])
            fill(built, drawn)
            read(built)


BUILT = 128
TEXTS = (
    "",
    "0",
    "0-3",
    "7-",
    "-1",
    "cpu",
    "memory",
    "x.io/a",
    "u",
    "c",
    '{"pid": "x"}',
    "9" * 5000,
    "info",
    "a b",
    "[]",
)


def fill(message: Any, drawn: Any, depth: int = 4) -> None:
    """Every field of a message, or not: as many items as are drawn, enumerations with values that nobody knows."""
    for field in message.DESCRIPTOR.fields:
        if not drawn.remaining_bytes() or not drawn.ConsumeBool():
            continue
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if entry and field.message_type.fields_by_name["value"].message_type is None:
            kinds = [field.message_type.fields_by_name[name] for name in ("key", "value")]
            key, value = (scalar(kind, drawn) for kind in kinds)
            getattr(message, field.name)[key] = value
        elif entry and depth:
            key = scalar(field.message_type.fields_by_name["key"], drawn)
            fill(getattr(message, field.name)[key], drawn, depth - 1)
        elif field.message_type is not None and not entry and depth:
            repeated = field.is_repeated
            inner = getattr(message, field.name)
            fill(inner.add() if repeated else inner, drawn, depth - 1)
            if not repeated:
                inner.SetInParent()
        elif field.message_type is None and field.is_repeated:
            getattr(message, field.name).extend(scalar(field, drawn) for _ in range(drawn.ConsumeIntInRange(0, 4)))
        elif field.message_type is None:
            setattr(message, field.name, scalar(field, drawn))


def scalar(field: Any, drawn: Any) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING and field.type == field.TYPE_BYTES:
        return drawn.ConsumeBytes(drawn.ConsumeIntInRange(0, 40))
    if kind == field.CPPTYPE_STRING:
        chosen = drawn.ConsumeIntInRange(0, 2 * len(TEXTS))
        return TEXTS[chosen] if chosen < len(TEXTS) else drawn.ConsumeUnicodeNoSurrogates(40)
    if kind == field.CPPTYPE_BOOL:
        return drawn.ConsumeBool()
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return drawn.ConsumeFloat()
    unsigned, wide = (
        kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64),
        kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64),
    )
    bits = 64 if wide else 32
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    small = drawn.ConsumeBool()
    return drawn.ConsumeIntInRange(0 if unsigned else -2, 9) if small else drawn.ConsumeIntInRange(least, most)


def seeds(edge: str) -> Iterable[bytes]:
    """Recorded messages of the kinds that this edge reads."""
    names = {message.DESCRIPTOR.full_name: at for at, (message, _) in enumerate(EDGES[edge]) if message is not None}
    for wire in WIRES:
        for case in cases(wire):
            if case.get("message") in names:
                yield bytes([names[case["message"]]]) + bytes.fromhex(case["hex"])
    for at in range(len(EDGES[edge])):
        yield from (bytes([at]), bytes([BUILT + at]), bytes([BUILT + at]) + bytes(range(1, 256, 2)) * 2)


def fuzz(edge: str, limits: list[str], folder: Path, count: Any) -> None:
    """Run the fuzzer until its limits are reached; it ends the process."""
    corpus = folder / edge
    corpus.mkdir()
    for number, seed in enumerate(seeds(edge)):
        (corpus / str(number)).write_bytes(seed)
    with (folder / f"{edge}.log").open("wb") as log:  # a page of statistics, which nobody wants to read
        os.dup2(log.fileno(), 2)

    def one(data: bytes) -> None:
        count.value += 1
        feed(edge, data)

    words = [sys.argv[0], str(corpus), "-verbosity=0", "-timeout=60", "-rss_limit_mb=2048"]
    atheris.Setup([*words, f"-artifact_prefix={folder}/{edge}-", *limits], one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.badinput.messages", description=__doc__)
    parser.add_argument("edges", nargs="*", help=", ".join(EDGES))
    parser.add_argument("--runs", type=int, default=50_000, help="messages for each edge")
    parser.add_argument("--seconds", type=int, default=0, help="for each edge, instead")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
    given = parser.parse_args()
    limits = [f"-max_total_time={given.seconds}"] if given.seconds else [f"-runs={given.runs}"]
    failed, figures = 0, {}
    with tempfile.TemporaryDirectory() as made:
        for edge in given.edges or EDGES:
            failed += not fuzzed(edge, limits, Path(made), figures)
    if given.record:
        record("fuzzed messages", {"messages": sum(figures.values()), **figures}, failed)
    return 1 if failed else 0


def fuzzed(edge: str, limits: list[str], folder: Path, figures: dict[str, int]) -> bool:
    """Whether nothing was found at an edge."""
    context = multiprocessing.get_context("fork")
    count = context.Value("Q", 0, lock=False)
    process = context.Process(target=fuzz, args=(edge, limits, folder, count))
    process.start()
    process.join()
    figures[f"of {edge}"] = count.value
    print(f"{edge}: {count.value:,} messages, {'nothing found' if process.exitcode == 0 else 'failed'}", flush=True)
    if process.exitcode:
        print((folder / f"{edge}.log").read_text(errors="replace")[-4000:])
    for crash in folder.glob(f"{edge}-*"):
        print(f"    {crash.read_bytes()!r}")
    return process.exitcode == 0


if __name__ == "__main__":
    sys.exit(main())
