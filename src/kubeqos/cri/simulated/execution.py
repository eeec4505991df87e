"""Commands that are executed in simulated containers: scripted answers, cgroup files, and a few programs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.cri.errors import Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated.core import Core
from kubeqos.cri.simulated.program import Program, program_of
from kubeqos.cri.simulated.state import Container, State
from kubeqos.cri.simulated.usage import NS

CGROUP_ROOT = "/sys/fs/cgroup/"


@dataclass(frozen=True, slots=True)
class Execution:
    """The answer to a command, and when it is ready; no answer: the command took too long and was ended then."""

    at_ns: int
    answer: cri.ExecSyncResponse | None


def execute(core: Core, request: cri.ExecSyncRequest, now_ns: int) -> Execution:
    """Run a command in a running container."""
    container = core.container(request.container_id)
    core.fail_if_scripted(container, "ExecSync")
    if container.state is not State.RUNNING:
        raise RuntimeRefused(Code.UNKNOWN, f"failed to exec in container: container is in {container.state_name} state")
    if not request.cmd:
        raise RuntimeRefused(Code.INVALID_ARGUMENT, "command to execute is empty")
    known = _scripted(container, request) or _cgroup_file(core, container, request, now_ns)
    if known is not None:
        return Execution(now_ns, known)
    program = program_of(request.cmd)
    if program.heeds_term:
        # A program that nobody simulates: it does its work and says nothing, so that probes succeed.
        return Execution(now_ns, cri.ExecSyncResponse())
    limit_ns = request.timeout * NS if request.timeout > 0 else None
    ends = program.ends_after_ns
    if limit_ns is not None and (ends is None or ends > limit_ns):
        return Execution(now_ns + limit_ns, None)
    if ends is None:
        raise RuntimeRefused(Code.DEADLINE_EXCEEDED, "the command never ends and has no timeout")
    return Execution(now_ns + ends, _answer(program))


def _answer(program: Program) -> cri.ExecSyncResponse:
    text = {"stdout": "", "stderr": ""}
    for output in program.outputs:
        text[output.stream] += output.text
    return cri.ExecSyncResponse(
        stdout=text["stdout"].encode(), stderr=text["stderr"].encode(), exit_code=program.exit_code
    )


def _scripted(container: Container, request: cri.ExecSyncRequest) -> cri.ExecSyncResponse | None:
    for command in container.script.exec:
        if command.words == tuple(request.cmd):
            stdout = f"{command.stdout}\n" if command.stdout else ""
            return cri.ExecSyncResponse(stdout=stdout.encode(), exit_code=command.exit_code)
    return None


def _cgroup_file(
    core: Core, container: Container, request: cri.ExecSyncRequest, now_ns: int
) -> cri.ExecSyncResponse | None:
    """`cat /sys/fs/cgroup/FILE` shows the container its own limits and usage."""
    if len(request.cmd) != 2 or request.cmd[0] != "cat" or not request.cmd[1].startswith(CGROUP_ROOT):
        return None
    content = core.cgroup_files(container, now_ns).get(request.cmd[1].removeprefix(CGROUP_ROOT))
    if content is None:
        missing = f"cat: can't open '{request.cmd[1]}': No such file or directory\n"
        return cri.ExecSyncResponse(stderr=missing.encode(), exit_code=1)
    return cri.ExecSyncResponse(stdout=f"{content}\n".encode())
