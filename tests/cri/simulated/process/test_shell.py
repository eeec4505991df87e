"""The small shell of simulated containers: what it knows, and that it does not pretend to know more."""

from __future__ import annotations

import io
import tarfile

import pytest

from kubeqos.cri.simulated.process.shell import Shell


def shell(**files: str) -> Shell:
    made = {f"/{name}": text.encode() for name, text in files.items()}
    return Shell(made, {"A": "1", "NAME": "world"}, "web", {"/sys/fs/cgroup/memory.max": "max"})


@pytest.mark.parametrize(
    ("script", "stdout", "code"),
    [
        ("echo hello", "hello\n", 0),
        ("echo -n a b", "a b", 0),
        ("env", "A=1\nNAME=world\n", 0),
        ("printenv NAME", "world\n", 0),
        ("printenv NOBODY", "", 1),
        ("echo $NAME '$NAME' \"${NAME}s\"", "world $NAME worlds\n", 0),
        ("hostname", "web\n", 0),
        ("cat /sys/fs/cgroup/memory.max", "max\n", 0),
        ("cat /nothing", "", 1),
        ("true && echo yes || echo no", "yes\n", 0),
        ("false && echo yes || echo no", "no\n", 0),
        ("false; echo $?", "1\n", 0),
        ("exit 7; echo never", "", 7),
        ("echo one > /tmp/x; echo two >> /tmp/x; cat /tmp/x; ls /tmp", "one\ntwo\nx\n", 0),
        ("mkdir -p /data/deep; ls /data; test -d /data/deep && echo there", "deep\nthere\n", 0),
        ("touch /a; rm /a; ls /a", "", 1),
        ("[ -f /etc/none ] || echo none", "none\n", 0),
        ("echo quiet > /dev/null", "", 0),
        ("nginx -t", "", 127),
        ("nginx; echo $?", "127\n", 0),
        ("cat /x | wc -l", "", 2),
    ],
)
def test_what_commands_print_and_how_they_end(script: str, stdout: str, code: int) -> None:
    found = shell().run(["sh", "-c", script])
    assert (found.stdout.decode(), found.code) == (stdout, code)


def test_an_unknown_program_says_that_it_is_not_there() -> None:
    found = shell().run(["pg_isready"])
    assert (found.stdout, found.stderr, found.code) == (b"", b"sh: pg_isready: not found\n", 127)


def test_errors_go_to_their_own_stream() -> None:
    found = shell().run(["sh", "-c", "echo fine; echo bad >&2; cat /gone"])
    assert found.stdout == b"fine\n"
    assert found.stderr == b"bad\ncat: can't open '/gone': No such file or directory\n"


def test_a_shell_reads_its_input() -> None:
    assert shell().run(["sh"], b"echo a\necho b\n").stdout == b"a\nb\n"
    assert shell().run(["cat"], b"as it is").stdout == b"as it is"


def test_sleep_takes_its_time() -> None:
    assert shell().run(["sleep", "1.5"]).lasts_ns == 1_500_000_000
    assert shell().run(["sh", "-c", "sleep 1; sleep 2m"]).lasts_ns == 121_000_000_000
    assert shell().run(["sleep", "infinity"]).lasts_ns is None
    assert shell().run(["sleep", "soon"]).code == 1


def test_kubectl_cp_in_both_directions() -> None:
    """`tar -xmf - -C /data` and `tar cf - /data/dir`, as kubectl runs them."""
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as archive:
        member = tarfile.TarInfo("dir/notes.txt")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"hello"))
    inside = shell()
    assert inside.run(["tar", "-xmf", "-", "-C", "/data"], sent.getvalue()).code == 0
    assert inside.run(["cat", "/data/dir/notes.txt"]).stdout == b"hello"
    with tarfile.open(fileobj=io.BytesIO(inside.run(["tar", "cf", "-", "/data/dir"]).stdout)) as back:
        assert back.getnames() == ["data/dir/notes.txt"]
    assert inside.run(["tar", "cf", "-", "/gone"]).code == 1
    assert inside.run(["tar", "-xmf", "-", "-C", "/"], b"no archive").code == 1
