"""The gate: where the OCI hook (`hook`) asks whether a container may begin to run.

Between the moment an OCI runtime has made a container's cgroup and first process, and the moment it runs the first
instruction of the container, only a hook can act; CRI has no call there. With the hook in place a container never runs
outside its class, whatever the class is made of. `base_spec` and `hook_file` put it in place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from kubeqos.codec import JsonError, JsonObject, decode_json
from kubeqos.cri.relay import hook as hook_program
from kubeqos.errors import InputError, KubeqosError
from kubeqos.logs import logger

Admit = Callable[[str, int], Awaitable[None]]
"""Enforces the classes of (container id, its first process), or raises why it must not run."""
READ_SECONDS = 5.0
log = logger("kubeqos.relay")


def gate_path(listen: Path) -> Path:
    return listen.with_name(listen.name + hook_program.GATE_SUFFIX)


class Gate:
    """Serves hooks on a socket."""

    def __init__(self, admit: Admit) -> None:
        self.admit = admit

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One hook: its state in, `pass` or the reason out."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                state = await reader.read(-1)
            writer.write(await self._answer(state))
            await writer.drain()
        except (TimeoutError, ConnectionError) as error:
            log.warning("a hook went away", error=repr(error))
        finally:
            writer.close()

    async def _answer(self, state: bytes) -> bytes:
        try:
            await self.admit(*container_of(state))
        except KubeqosError as error:
            return " ".join(line.strip() for line in error.lines()).encode()
        return hook_program.PASS


def container_of(state: bytes) -> tuple[str, int]:
    """Id and first process from the state that OCI runtimes give their hooks (OCI runtime specification, State)."""
    try:
        data: Any = decode_json(state)
        return str(data["id"]), int(data["pid"])
    except (JsonError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the hook was not given the state of a container: {error!r}") from error


def base_spec(spec: bytes, listen: Path, source: str) -> JsonObject:
    """An OCI spec with our hook, for containerd's `base_runtime_spec`.

    containerd's CRI clears the default process limits of a container only in its own base spec, so they are
    cleared here: runc would set them after the hook and undo a class of ulimits.
    """
    try:
        data: Any = decode_json(spec)
        process, hooks = data["process"], data.setdefault("hooks", {})
        stages = hooks.setdefault("createRuntime", [])
    except (JsonError, KeyError, TypeError, AttributeError) as error:
        raise InputError("this is not an OCI spec", where=source, remedy="give the output of `ctr oci spec`") from error
    process.pop("rlimits", None)
    stages.append(hook_command(listen))
    found: JsonObject = data
    return found


def has_hook(info: Mapping[str, str]) -> bool:
    """Whether a container will be held back by our hook, from the verbose part of its status."""
    try:
        spec: Any = decode_json(info.get("info", "{}").encode()).get("runtimeSpec") or {}
        hooks = (spec.get("hooks") or {}).get("createRuntime") or ()
        return any(str(hook["args"][-1]).endswith(hook_program.GATE_SUFFIX) for hook in hooks)
    except (JsonError, AttributeError, KeyError, IndexError, TypeError):
        return False


def hook_file(listen: Path) -> JsonObject:
    """A file for CRI-O's `hooks_dir` (podman's hook format, version 1.0.0)."""
    return {
        "version": "1.0.0",
        "hook": hook_command(listen),
        "when": {"always": True},
        "stages": ["createRuntime"],
    }


def hook_command(listen: Path) -> JsonObject:
    """This Python runs the hook, isolated from user settings and without site packages: it starts in milliseconds."""
    arguments = [sys.executable, "-I", "-S", hook_program.__file__, str(gate_path(listen))]
    return {"path": sys.executable, "args": arguments, "timeout": hook_program.HOOK_SECONDS}
