"""Commands that are executed in simulated containers: scripted answers, and a small shell for the rest. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.cri.errors import Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated.core import Core
from kubeqos.cri.simulated.process.shell import Shell
from kubeqos.cri.simulated.process.usage import NS
from kubeqos.cri.simulated.state import Container, State

CGROUP_ROOT = "/sys/fs/cgroup/"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Execution:
    """The answer to a command, and when it is ready; no answer: the command took too long and was ended then."""

    at_ns: int
    answer: cri.ExecSyncResponse | None


def execute(core: Core, request: cri.ExecSyncRequest, now_ns: int, stdin: bytes = b"") -> Execution:
    """Run a command in a running container; `stdin` is all of its input."""
    container = core.container(request.container_id)
    core.fail_if_scripted(container, "ExecSync")
    if container.state is not State.RUNNING:
        raise RuntimeRefused(Code.UNKNOWN, f"failed to exec in container: container is in {container.state_name} state")
    if not request.cmd:
        raise RuntimeRefused(Code.INVALID_ARGUMENT, "command to execute is empty")
    known = _scripted(container, request)
    if known is not None:
        return Execution(now_ns, known)
    found = shell_of(core, container, now_ns).run(request.cmd, stdin)
    limit_ns = request.timeout * NS if request.timeout > 0 else None
    ends = found.lasts_ns
    if limit_ns is not None and (ends is None or ends > limit_ns):
        return Execution(now_ns + limit_ns, None)
    if ends is None:
        raise RuntimeRefused(Code.DEADLINE_EXCEEDED, "the command never ends and has no timeout")
    answer = cri.ExecSyncResponse(stdout=found.stdout, stderr=found.stderr, exit_code=found.code)
    return Execution(now_ns + ends, answer)


def shell_of(core: Core, container: Container, now_ns: int) -> Shell:
    """The container from the inside."""
    config, sandbox = container.config, core.sandboxes[container.sandbox_id].config
    hostname = sandbox.hostname or sandbox.metadata.name
    env = environment(container, hostname)
    kernel = {CGROUP_ROOT + name: text for name, text in core.cgroup_files(container, now_ns).items()}
    kernel["/etc/hostname"] = hostname
    return Shell(container.files, env, hostname, kernel, config.working_dir or "/")


def environment(container: Container, hostname: str) -> dict[str, str]:
    """The variables of a container: what every container has, then its own, those of plugins and drivers included."""
    own = {each.key: each.value.decode(errors="replace") for each in container.config.envs}
    return {"PATH": PATH, "HOSTNAME": hostname, "HOME": "/root", **own}


def _scripted(container: Container, request: cri.ExecSyncRequest) -> cri.ExecSyncResponse | None:
    for command in container.script.exec:
        if command.words == tuple(request.cmd):
            stdout = f"{command.stdout}\n" if command.stdout else ""
            return cri.ExecSyncResponse(stdout=stdout.encode(), exit_code=command.exit_code)
    return None
