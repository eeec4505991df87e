"""How a simulated pod behaves, written as annotations on the pod.

    simulate.kubeqos.io/load:         cpu=500m memory=64Mi growth=10Mi/s peak=2Gi read=5Mi/s write=1Mi/s
    simulate.kubeqos.io/exit.web:     after=5s code=1 times=2
    simulate.kubeqos.io/stop:         after=2s code=0            (or: ignore)
    simulate.kubeqos.io/fail.web:     StartContainer code=UNAVAILABLE message='disk on fire' times=1
    simulate.kubeqos.io/exec.web:     cat /tmp/healthy => 0 ok   (one command per line)

A key that ends with `.CONTAINER` is for that container, one without is for all containers of the pod. `times` limits a
behaviour to the first so many attempts. Every mistake is one `InputError`. Pure.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.cri.errors import Code, RuntimeRefused
from kubeqos.errors import InputError
from kubeqos.model.quantity import Quantity
from kubeqos.model.timestamps import parse_duration

PREFIX = "simulate.kubeqos.io/"
FAILABLE = frozenset(
    {
        "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer",
        "RemoveContainer", "UpdateContainerResources", "UpdatePodSandboxResources", "ExecSync", "PullImage",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """What a container uses while it runs. Memory starts at a size and may grow up to a peak."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    growth_per_second: int = 0
    peak_bytes: int | None = None
    read_per_second: int = 0
    write_per_second: int = 0


@dataclass(frozen=True, slots=True)
class Exit:
    """The container ends by itself."""

    after_ns: int
    code: int
    message: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """What the container does when it is asked to end; `after_ns` None: nothing."""

    after_ns: int | None
    code: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A call about this pod that fails."""

    method: str
    code: Code = Code.UNKNOWN
    message: str = "scripted failure"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """The answer to one command that is executed in the container."""

    words: tuple[str, ...]
    exit_code: int
    stdout: str


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that is scripted for one container, or with no container name for the sandbox."""

    load: Load | None = None
    exit: Exit | None = None
    stop: Stop | None = None
    fail: tuple[Failure, ...] = ()
    exec: tuple[Command, ...] = ()


NO_SCRIPT = Script()


def script_of(annotations: Mapping[str, str], container: str = "") -> Script:
    """The script of one container of a pod."""
    if not any(key.startswith(PREFIX) for key in annotations):
        return NO_SCRIPT
    found: dict[str, Any] = {}
    for kind in _READERS:
        for key in (f"{PREFIX}{kind}.{container}", f"{PREFIX}{kind}"):
            if key in annotations:
                found[kind] = _checked(kind, annotations[key], key)
                break
    return Script(**found)


def check_annotations(annotations: Mapping[str, str]) -> None:
    """Refuse misspelt kinds and unreadable values before a pod starts."""
    for key, value in annotations.items():
        if key.startswith(PREFIX):
            kind = key.removeprefix(PREFIX).partition(".")[0]
            if kind not in _READERS:
                known = ", ".join(sorted(_READERS))
                raise InputError(f"annotation {key}: there is no {kind!r}", remedy=f"use one of: {known}")
            _checked(kind, value, key)


@functools.lru_cache(maxsize=1024)
def _read(kind: str, value: str) -> Any:
    """Values are immutable, and a fleet's pods say the same thing a hundred thousand times."""
    return _READERS[kind](value)


def _checked(kind: str, value: str, key: str) -> Any:
    try:
        return _read(kind, value)
    except (InputError, ValueError) as error:
        raise InputError(f"annotation {key}: {error}", where=f"{key}: {value}") from error


def _words(text: str, allowed: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if name not in allowed or not equals:
            raise InputError(f"{word!r} is not understood", remedy=f"use {' '.join(f'{key}=…' for key in allowed)}")
        out[name] = allowed[name](value)
    return out


def _bytes(text: str) -> int:
    return Quantity.parse(text.removesuffix("/s")).value()


def _milli(text: str) -> int:
    return Quantity.parse(text).milli()


_LOAD: dict[str, tuple[str, Callable[[str], int]]] = {
    "cpu": ("cpu_milli", _milli),
    "memory": ("memory_bytes", _bytes),
    "growth": ("growth_per_second", _bytes),
    "peak": ("peak_bytes", _bytes),
    "read": ("read_per_second", _bytes),
    "write": ("write_per_second", _bytes),
}


def _read_load(text: str) -> Load:
    words = _words(text, {key: read for key, (_, read) in _LOAD.items()})
    return Load(**{_LOAD[key][0]: value for key, value in words.items()})


def _read_exit(text: str) -> Exit:
    words = _words(text, {"after": parse_duration, "code": int, "message": str, "times": int})
    return Exit(words.get("after", 0), words.get("code", 0), words.get("message", ""), words.get("times"))


def _read_stop(text: str) -> Stop:
    if text.strip() == "ignore":
        return Stop(None)
    words = _words(text, {"after": parse_duration, "code": int})
    return Stop(words.get("after", 0), words.get("code", 0))


def _read_failures(text: str) -> tuple[Failure, ...]:
    failures = []
    for line in text.strip().splitlines():
        method, _, rest = line.strip().partition(" ")
        if method not in FAILABLE:
            raise InputError(f"{method!r} cannot be made to fail", remedy=f"use one of: {', '.join(sorted(FAILABLE))}")
        words = _words(rest, {"code": read_code, "message": str, "times": int})
        failures.append(Failure(method, **words))
    return tuple(failures)


def read_code(text: str) -> Code:
    """A gRPC status code by name."""
    if text not in Code.__members__:
        raise InputError(f"{text!r} is not a status code", remedy=f"use one of: {', '.join(Code.__members__)}")
    return Code[text]


def _read_commands(text: str) -> tuple[Command, ...]:
    commands = []
    for line in text.strip().splitlines():
        command, arrow, answer = line.partition("=>")
        code, _, stdout = answer.strip().partition(" ")
        if not arrow or not code.lstrip("-").isdigit():
            raise InputError(f"{line.strip()!r} is not understood", remedy="write COMMAND => EXITCODE OUTPUT")
        commands.append(Command(tuple(shlex.split(command)), int(code), stdout))
    return tuple(commands)


_READERS: dict[str, Callable[[str], Any]] = {
    "load": _read_load,
    "exit": _read_exit,
    "stop": _read_stop,
    "fail": _read_failures,
    "exec": _read_commands,
}


def requested_script(annotations: Mapping[str, str], container: str = "") -> Script:
    """The script of a request's pod or container; one that cannot be read refuses the request."""
    try:
        if not container:
            check_annotations(annotations)
        return script_of(annotations, container)
    except InputError as error:
        raise RuntimeRefused(Code.INVALID_ARGUMENT, error.what) from error
