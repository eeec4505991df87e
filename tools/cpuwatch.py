"""Watches who may run where, from outside: does anybody ever run on a CPU that was promised to somebody else?

A program of its own on the standard library alone, which knows CRI and cgroups and nothing else (run it with `python -I
-S`, and it cannot know more). It asks container runtimes who runs, as often as it is told to, and reads every cpuset:
from the runtime's answer, or from the cgroup files where a root is given. What was promised stands on the pods
themselves, as their owners wrote it: a label `cpuwatch/owns.CONTAINER: "4"` says that four CPUs are this container's
alone, `"4.full"` that the other threads of their cores are nobody else's either. On a violation both sets are read
again, the owner's before and after the other's, so that only what was true at one instant is told.

    python -I -S tools/cpuwatch.py --node n1=/run/containerd/containerd.sock,/sys/fs/cgroup --seconds 60

Ends after that time or at SIGTERM or SIGINT, prints its report, and exits with 1 if there was a violation. Used by
`make exclusive` and by tests; a machine in which kubeqos is not installed needs only this file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

LABEL = "cpuwatch/owns."
RUNNING = 1
SERVICE = "/runtime.v1.RuntimeService/"
MOST_AT_ONCE = 64
WINDOW = (1 << 31) - 1
Fields = dict[int, list[int | bytes]]


# ---- Protocol buffers and gRPC over a Unix socket, as far as three calls need them


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def text_field(tag: int, value: str) -> bytes:
    raw = value.encode()
    return varint(tag << 3 | 2) + varint(len(raw)) + raw


def fields(message: bytes) -> Fields:
    """A message's values by tag, those inside it still as bytes."""
    found: Fields = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        value: int | bytes
        match key & 7:
            case 0:
                value = number()
            case 2:
                size = number()
                value, at = message[at : at + size], at + size
            case 1:
                value, at = message[at : at + 8], at + 8
            case 5:
                value, at = message[at : at + 4], at + 4
            case other:
                raise ValueError(f"wire type {other}")
        found.setdefault(key >> 3, []).append(value)
    return found


def inner(found: Fields, tag: int) -> Iterator[Fields]:
    return (fields(one) for one in found.get(tag, ()) if isinstance(one, bytes))


def text(found: Fields, tag: int) -> str:
    value = found.get(tag, [b""])[-1]
    return value.decode() if isinstance(value, bytes) else ""


def table(found: Fields, tag: int) -> dict[str, str]:
    return {text(entry, 1): text(entry, 2) for entry in inner(found, tag)}


class Grpc:
    """One connection to a runtime's socket; calls of one kind travel together."""

    DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
    END_STREAM, ACK, END_HEADERS = 1, 1, 4

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(10)
        self._socket.connect(path)
        self._next = 1
        self._unread = b""
        settings = struct.pack(">HI", 4, WINDOW)  # SETTINGS_INITIAL_WINDOW_SIZE: answers need not wait for us
        self._socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + self._frame(self.SETTINGS, 0, 0, settings)
            + self._frame(self.WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW - 65535))
        )

    def close(self) -> None:
        self._socket.close()

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    @staticmethod
    def _head(path: str) -> bytes:
        head = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        # Literal header fields, not indexed: what every decoder has to know, and no table to keep.
        return b"".join(b"\0" + b"".join(bytes([len(one)]) + one.encode() for one in pair) for pair in head.items())

    def call(self, method: str, *requests: bytes) -> list[bytes | None]:
        """The answers to these requests, None for those that were refused."""
        answers: list[bytes | None] = []
        for start in range(0, len(requests), MOST_AT_ONCE):
            answers += self._together(method, requests[start : start + MOST_AT_ONCE])
        return answers

    def _together(self, method: str, requests: Iterable[bytes]) -> list[bytes | None]:
        bodies: dict[int, bytes] = {}
        out = b""
        for request in requests:
            stream, self._next = self._next, self._next + 2
            bodies[stream] = b""
            message = struct.pack(">BI", 0, len(request)) + request
            out += self._frame(self.HEADERS, self.END_HEADERS, stream, self._head(SERVICE + method))
            out += self._frame(self.DATA, self.END_STREAM, stream, message)
        self._socket.sendall(out)
        left = set(bodies)
        while left:
            kind, flags, stream, payload = self._read_frame()
            if kind == self.DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
                if payload:
                    self._socket.sendall(self._frame(self.WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            elif kind == self.SETTINGS and not flags & self.ACK:
                self._socket.sendall(self._frame(self.SETTINGS, self.ACK, 0, b""))
            elif kind == self.PING and not flags & self.ACK:
                self._socket.sendall(self._frame(self.PING, self.ACK, 0, payload))
            elif kind == self.GOAWAY:
                raise ConnectionError("the runtime says goodbye")
            if kind == self.RST or (kind in (self.DATA, self.HEADERS) and flags & self.END_STREAM):
                left.discard(stream)
        return [body[5:] if len(body) >= 5 else None for body in bodies.values()]

    def _read_frame(self) -> tuple[int, int, int, bytes]:
        head = self._read(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:9], "big") & WINDOW, self._read(size)

    def _read(self, size: int) -> bytes:
        while len(self._unread) < size:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the runtime has closed the connection")
            self._unread += more
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken


# ---- Sets of CPUs, as bit masks


def parse_cpus(said: str) -> int:
    mask = 0
    for part in filter(None, said.strip().split(",")):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask


def write_cpus(mask: int) -> str:
    runs: list[list[int]] = []
    for cpu in (bit for bit in range(mask.bit_length()) if mask >> bit & 1):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# ---- What is seen, and what is wrong with it


@dataclass(frozen=True)
class Container:
    """A running container: where it may run (0: anywhere), and how many CPUs it was promised."""

    id: str
    pod: str
    name: str
    cpus: int
    owns: int = 0
    full: bool = False

    def __str__(self) -> str:
        return f"{self.pod}/{self.name}"


@dataclass(frozen=True)
class Violation:
    """A promise that does not hold at the moment of looking."""

    kind: str
    owner: Container
    others: tuple[Container, ...] = ()

    def key(self) -> tuple[str, ...]:
        return (self.kind, self.owner.id, *(other.id for other in self.others))

    def __str__(self) -> str:
        if self.kind == "unpinned":
            return f"{self.owner} was promised {self.owner.owns} CPUs and may run anywhere"
        beside = ", ".join(f"{other} {_where(other.cpus)}" for other in self.others)
        what = f"{self.owner} was promised {self.owner.owns} of {write_cpus(self.owner.cpus)}"
        return f"{what}, but beside it run{'s' if len(self.others) == 1 else ''} {beside}"


def _where(cpus: int) -> str:
    return f"on {write_cpus(cpus)}" if cpus else "anywhere"


def touched(mask: int, cores: Iterable[int]) -> int:
    """All threads of the cores that a set touches."""
    return mask | sum(core for core in cores if core & mask)


def judge(running: Iterable[Container], cores: Iterable[int] = ()) -> list[Violation]:
    """Every promise that does not hold: each owner must have so many CPUs that nobody else may run on."""
    seen, cores, wrong = list(running), list(cores), []
    for owner in seen:
        if not owner.owns:
            continue
        if not owner.cpus:
            wrong.append(Violation("unpinned", owner))
            continue
        mine = touched(owner.cpus, cores) if owner.full else owner.cpus
        beside = tuple(other for other in seen if other.id != owner.id and (not other.cpus or other.cpus & mine))
        taken = 0
        for other in beside:
            taken |= other.cpus or -1
        if (owner.full and beside) or (owner.cpus & ~taken).bit_count() < owner.owns:
            wrong.append(Violation("shared", owner, beside))
    return wrong


@dataclass
class Report:
    """What one node looked like over time."""

    samples: int = 0
    seconds: float = 0.0
    longest_gap: float = 0.0
    unreachable: int = 0
    containers: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    most_at_once: int = 0
    changes: int = 0
    violations: dict[tuple[str, ...], str] = field(default_factory=dict)
    held: dict[tuple[str, ...], int] = field(default_factory=dict)
    """In how many samples each violation was seen."""

    def as_json(self) -> dict[str, object]:
        return {
            "samples": self.samples,
            "perSecond": round(self.samples / self.seconds, 1) if self.seconds else 0.0,
            "longestGapSeconds": round(self.longest_gap, 2),
            "runtimeUnreachable": self.unreachable,
            "containers": len(self.containers),
            "owners": len(self.owners),
            "mostAtOnce": self.most_at_once,
            "cpusetChanges": self.changes,
            "violations": [f"{what} ({self.held[key]} samples)" for key, what in self.violations.items()],
        }


class Node:
    """One runtime, looked at again and again."""

    def __init__(self, name: str, path: str, cgroups: str = "", cores: Iterable[int] = ()) -> None:
        self.name, self.path, self.cgroups, self.cores = name, path, cgroups, list(cores)
        self.report = Report()
        self._grpc: Grpc | None = None
        self._labels: dict[str, tuple[str, dict[str, str]]] = {}
        self._files: dict[str, str] = {}
        self._had: dict[str, int] = {}

    def watch(self, ended: threading.Event, period: float) -> None:
        """Look until told to stop; a runtime that is away is asked again."""
        began = last = time.monotonic()
        while not ended.is_set():
            try:
                self.look()
            except (OSError, ValueError, IndexError):
                self.report.unreachable += 1
                self._grpc = None
            now = time.monotonic()
            self.report.longest_gap = max(self.report.longest_gap, now - last)
            self.report.seconds, last = now - began, now
            ended.wait(max(0.0, began + period * (self.report.samples + self.report.unreachable) - now))

    def look(self) -> None:
        """One sample."""
        running = self.running()
        report = self.report
        report.samples += 1
        report.most_at_once = max(report.most_at_once, len(running))
        for one in running:
            report.containers.add(one.id)
            if one.owns:
                report.owners.add(one.id)
            report.changes += self._had.get(one.id, one.cpus) != one.cpus
        self._had = {one.id: one.cpus for one in running}
        for suspected in judge(running, self.cores):
            if (found := self.confirmed(suspected)) is not None:
                if found.key() not in report.violations:
                    print(f"{time.strftime('%H:%M:%S')} {self.name}: {found}", file=sys.stderr, flush=True)
                report.violations.setdefault(found.key(), str(found))
                report.held[found.key()] = report.held.get(found.key(), 0) + 1

    def confirmed(self, suspected: Violation) -> Violation | None:
        """The same violation as it was at one instant; a sample is read piece by piece, and sets move meanwhile."""
        before = self.again(suspected.owner)
        if before is None:
            return None
        others = tuple(other for one in suspected.others if (other := self.again(one)) is not None)
        if self.again(suspected.owner) != before:
            return None
        return next((one for one in judge((before, *others), self.cores) if one.owner == before), None)

    def again(self, one: Container) -> Container | None:
        """A container as it is now, unless it runs no more."""
        return next(iter(self._with_sets([(one.id, one.pod, one.name, one.owns, one.full)])), None)

    def running(self) -> list[Container]:
        """Everybody who runs, with its set and its promise."""
        [answer] = self._runtime().call("ListContainers", b"")
        listed = [one for one in inner(fields(answer or b""), 1) if one.get(6, [0])[-1] == RUNNING]
        if any(text(one, 2) not in self._labels for one in listed):
            [answer] = self._runtime().call("ListPodSandbox", b"")
            self._labels = {
                text(pod, 1): (text(next(inner(pod, 2), {}), 1), table(pod, 5))
                for pod in inner(fields(answer or b""), 1)
            }
        asked = []
        for one in listed:
            name = text(next(inner(one, 3), {}), 1)
            pod, labels = self._labels.get(text(one, 2), ("", {}))
            owns, _, how = labels.get(LABEL + name, "0").partition(".")
            asked.append((text(one, 1), pod, name, int(owns), how == "full"))
        return self._with_sets(asked)

    def _with_sets(self, asked: list[tuple[str, str, str, int, bool]]) -> list[Container]:
        answers = self._runtime().call("ContainerStatus", *(text_field(1, one[0]) for one in asked))
        found = []
        for (id_, pod, name, owns, full), answer in zip(asked, answers, strict=True):
            status = next(inner(fields(answer or b""), 1), {})
            if status.get(3, [0])[-1] != RUNNING:
                continue
            said = text(next(inner(next(inner(status, 16), {}), 1), {}), 6)
            kernel = self._from_kernel(id_) if self.cgroups else said
            if kernel is not None:
                found.append(Container(id_, pod, name, parse_cpus(kernel), owns, full))
        return found

    def _from_kernel(self, id_: str) -> str | None:
        """The cpuset in force by the container's cgroup, version 2 or 1; None when the group is gone."""
        if id_ not in self._files:
            for folder, _, files in os.walk(self.cgroups):
                if id_ in os.path.basename(folder):
                    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
                        if name in files:
                            self._files[id_] = os.path.join(folder, name)
                            break
                if id_ in self._files:
                    break
        try:
            with open(self._files[id_]) as file:
                return file.read()
        except (KeyError, OSError):
            return None

    def _runtime(self) -> Grpc:
        if self._grpc is None:
            self._grpc = Grpc(self.path)
        return self._grpc


def siblings_here() -> list[int]:
    """The cores of this machine, as the kernel tells them."""
    found = set()
    root = "/sys/devices/system/cpu"
    for entry in os.listdir(root):
        try:
            with open(f"{root}/{entry}/topology/thread_siblings_list") as file:
                found.add(parse_cpus(file.read()))
        except OSError:
            continue
    return sorted(found)


def cores_of(said: str) -> list[int]:
    """Cores by their threads: `0,40;1,41`, or `this` for the machine that this runs on."""
    return siblings_here() if said == "this" else [parse_cpus(core) for core in said.split(";") if core]


def node_of(said: str, cores: list[int]) -> Node:
    name, _, where = said.partition("=")
    path, _, cgroups = where.partition(",")
    return Node(name, path.removeprefix("unix://"), cgroups, cores)


def main(arguments: list[str], ended: threading.Event | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="cpuwatch", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--node", action="append", required=True, metavar="NAME=SOCKET[,CGROUPS]")
    parser.add_argument("--cores", action="append", default=[], metavar="NAME=CORES", help="0,40;1,41 or this")
    parser.add_argument("--per-second", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args(arguments)
    cores = {name: cores_of(said) for name, _, said in (one.partition("=") for one in options.cores)}
    nodes = [node_of(said, cores.get(said.partition("=")[0], [])) for said in options.node]
    done = ended or threading.Event()
    stop: Callable[..., None] = lambda *_: done.set()  # noqa: E731
    if ended is None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
    threads = [threading.Thread(target=node.watch, args=(done, 1 / options.per_second)) for node in nodes]
    for thread in threads:
        thread.start()
    done.wait(None if options.seconds == float("inf") else options.seconds)
    done.set()
    for thread in threads:
        thread.join()
    print(json.dumps({node.name: node.report.as_json() for node in nodes}, indent=2))
    return int(any(node.report.violations for node in nodes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
