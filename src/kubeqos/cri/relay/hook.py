"""The OCI hook: holds a new container back until the relay has enforced its classes.

An OCI runtime (runc, crun) runs this as a `createRuntime` hook, when the container's cgroup and first process exist and
nothing of the container has run yet. It tells the relay which container that is and waits for the answer; a refusal
fails the create. Runs as a program of its own for every container, so it imports nothing but the standard library:

    python3 -I -S hook.py /run/kubeqos/cri.sock.gate < state.json
"""

import socket
import sys

GATE_SUFFIX = ".gate"
"""The relay's gate listens beside its CRI socket."""
HOOK_SECONDS = 60
"""More than the relay takes to give up on a provider: the reason should come from there."""
PASS = b"pass"


def main() -> int:
    """0 when the container may go on."""
    gate = sys.argv[1]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HOOK_SECONDS)
        try:
            connection.connect(gate)
            connection.sendall(sys.stdin.buffer.read())
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError as error:
            print(f"kubeqos relay does not answer at {gate}: {error}", file=sys.stderr)
            return 1
    if answer == PASS:
        return 0
    print(answer.decode() or f"kubeqos relay at {gate} went away", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
