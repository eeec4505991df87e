"""A small shell for commands that are executed in simulated containers. Pure: files are a mapping, time is counted.

It does not pretend: what it does not know exits with 127, as where a program is not installed. Files that commands or
`kubectl cp` write stay until the container ends. Called by `execution`.
"""

from __future__ import annotations

import io
import posixpath
import re
import shlex
import tarfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from kubeqos.cri.simulated.process.program import SHELLS, NotUnderstood, sleep_ns

NOT_FOUND, MISUSED = 127, 2
_OPERATORS = (";", "&&", "||")
_HIDDEN = "\0"
"""Stands for a dollar sign in single quotes, which is no variable."""
_QUOTED = re.compile(r"'[^']*'")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+|\?))")


@dataclass(slots=True)
class Result:
    """What a command did so far. `lasts_ns` is how long it took, None for ever."""

    stdout: bytes = b""
    stderr: bytes = b""
    code: int = 0
    lasts_ns: int | None = 0
    ended: bool = False


class _Failed(Exception):
    """One line for standard error and an exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Shell:
    """One container from the inside: its files, its environment, and what the kernel shows there."""

    files: MutableMapping[str, bytes]
    env: Mapping[str, str]
    hostname: str
    kernel: Mapping[str, str] = field(default_factory=dict)
    """Files that cannot be written: cgroups."""
    workdir: str = "/"

    def run(self, command: Sequence[str], stdin: bytes = b"") -> Result:
        """Run a command line: a program and its arguments, or a shell with `-c`, or a shell that reads its input."""
        result = Result()
        if command[0] not in SHELLS:
            self._program(list(command), stdin, result)
        elif len(command) >= 3 and command[1] == "-c":
            self._script(command[2], stdin, result)
        elif len(command) == 1:
            self._script(stdin.decode(errors="replace"), b"", result)
        else:
            self._fail(result, f"sh: can't open '{command[1]}': No such file or directory", NOT_FOUND)
        return result

    # ---- Statements

    def _script(self, text: str, stdin: bytes, result: Result) -> None:
        for line in text.splitlines():
            hidden = _QUOTED.sub(lambda found: found[0].replace("$", _HIDDEN), line)
            lexer = shlex.shlex(hidden, posix=True, punctuation_chars=True)
            lexer.whitespace_split, lexer.commenters = True, "#"
            try:
                tokens = list(lexer)
            except ValueError:
                self._fail(result, f"sh: syntax error: unterminated quoted string in {line!r}", MISUSED)
                return
            words, before = list[str](), ";"
            for token in [*tokens, ";"]:
                if token not in _OPERATORS:
                    words.append(token)
                    continue
                if words and (before == ";" or (before == "&&") == (result.code == 0)):
                    self._statement(words, stdin, result)
                if result.ended:
                    return
                words, before = [], token

    def _statement(self, words: list[str], stdin: bytes, result: Result) -> None:
        """Run one command with its redirections."""
        words = [self._expanded(word, result.code) for word in words]
        target, append = "", False
        if words[-2:] == [">&", "2"]:
            words, target = words[:-2], "/dev/stderr"
        elif len(words) > 2 and words[-2] in (">", ">>"):
            target, append, words = self._path(words[-1]), words[-2] == ">>", words[:-2]
        if any(word and set(word) <= set("|&<>()") for word in words):
            self._fail(result, "sh: pipes, background jobs and input from files are not simulated", MISUSED)
            return
        kept, result.stdout = result.stdout, b""
        self._program(words, stdin, result)
        written, result.stdout = result.stdout, kept
        if target == "/dev/stderr":
            result.stderr += written
        elif target == "":
            result.stdout += written
        elif target != "/dev/null":
            self.files[target] = (self.files.get(target, b"") if append else b"") + written

    def _expanded(self, word: str, code: int) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            return str(code) if name == "?" else self.env.get(name, "")

        return _VARIABLE.sub(value, word).replace(_HIDDEN, "$")

    def _program(self, words: list[str], stdin: bytes, result: Result) -> None:
        words = words[1:] if words[0] == "exec" and len(words) > 1 else words
        name = words[0].rpartition("/")[2]
        if name == "busybox" and len(words) > 1:
            words, name = words[1:], words[1]
        run = PROGRAMS.get(name)
        if run is None:
            self._fail(result, f"sh: {words[0]}: not found", NOT_FOUND)
            return
        result.code = 0
        try:
            run(self, words[1:], stdin, result)
        except _Failed as failed:
            self._fail(result, f"{name}: {failed}", failed.code)

    @staticmethod
    def _fail(result: Result, message: str, code: int) -> None:
        result.stderr += f"{message}\n".encode()
        result.code = code

    # ---- Files

    def _path(self, text: str) -> str:
        return posixpath.normpath(posixpath.join(self.workdir, text))

    def read(self, text: str) -> bytes:
        """A file's content."""
        path = self._path(text)
        if path in self.kernel:
            return f"{self.kernel[path]}\n".encode()
        if path in self.files and not path.endswith("/"):
            return self.files[path]
        if self.is_folder(path):
            raise _Failed("read error: Is a directory")
        raise _Failed(f"can't open '{text}': No such file or directory")

    def is_folder(self, path: str) -> bool:
        """Folders are what files lie in, and those that were made."""
        inside = path.rstrip("/") + "/"
        return path == "/" or any(one.startswith(inside) for one in (*self.files, *self.kernel))

    def names(self, path: str) -> list[str]:
        """What lies in a folder."""
        inside = path.rstrip("/") + "/"
        found = {one[len(inside) :].partition("/")[0] for one in (*self.files, *self.kernel) if one.startswith(inside)}
        return sorted(found - {""})


def _echo(_shell: Shell, arguments: list[str], _stdin: bytes, result: Result) -> None:
    ends = "" if arguments[:1] == ["-n"] else "\n"
    result.stdout += (" ".join(arguments[1:] if not ends else arguments) + ends).encode()


def _env(shell: Shell, _arguments: list[str], _stdin: bytes, result: Result) -> None:
    result.stdout += "".join(f"{name}={value}\n" for name, value in shell.env.items()).encode()


def _printenv(shell: Shell, arguments: list[str], stdin: bytes, result: Result) -> None:
    if not arguments:
        _env(shell, [], stdin, result)
    for name in arguments:
        if name in shell.env:
            result.stdout += f"{shell.env[name]}\n".encode()
        else:
            result.code = 1


def _cat(shell: Shell, arguments: list[str], stdin: bytes, result: Result) -> None:
    for name in arguments or ["-"]:
        result.stdout += stdin if name == "-" else shell.read(name)


def _ls(shell: Shell, arguments: list[str], _stdin: bytes, result: Result) -> None:
    for text in [each for each in arguments if not each.startswith("-")] or [shell.workdir]:
        path = shell._path(text)
        if shell.is_folder(path):
            result.stdout += "".join(f"{name}\n" for name in shell.names(path)).encode()
        elif path in shell.files or path in shell.kernel:
            result.stdout += f"{text}\n".encode()
        else:
            raise _Failed(f"{text}: No such file or directory")


def _hostname(shell: Shell, _arguments: list[str], _stdin: bytes, result: Result) -> None:
    result.stdout += f"{shell.hostname}\n".encode()


def _pwd(shell: Shell, _arguments: list[str], _stdin: bytes, result: Result) -> None:
    result.stdout += f"{shell.workdir}\n".encode()


def _sleep(_shell: Shell, arguments: list[str], _stdin: bytes, result: Result) -> None:
    if arguments[:1] in (["infinity"], ["inf"]):
        result.lasts_ns, result.ended = None, True
        return
    try:
        result.lasts_ns = (result.lasts_ns or 0) + sum(sleep_ns(text) for text in arguments)
    except NotUnderstood as error:
        raise _Failed(f"invalid number {' '.join(arguments)!r}") from error


def _exit(_shell: Shell, arguments: list[str], _stdin: bytes, result: Result) -> None:
    result.code = int(arguments[0]) % 256 if arguments and arguments[0].isdigit() else result.code
    result.ended = True


def _true(_shell: Shell, _arguments: list[str], _stdin: bytes, _result: Result) -> None:
    """It succeeds."""


def _false(_shell: Shell, _arguments: list[str], _stdin: bytes, result: Result) -> None:
    result.code = 1


def _test(shell: Shell, arguments: list[str], _stdin: bytes, result: Result) -> None:
    arguments = [each for each in arguments if each != "]"]
    match arguments:
        case ["-d", path]:
            found = shell.is_folder(shell._path(path))
        case ["-f", path]:
            found = shell._path(path) in {**shell.files, **shell.kernel}
        case ["-e", path]:
            found = shell.is_folder(shell._path(path)) or shell._path(path) in {**shell.files, **shell.kernel}
        case ["-n", text] | [text]:
            found = bool(text)
        case ["-z", text]:
            found = not text
        case [one, "=" | "==", other]:
            found = one == other
        case [one, "!=", other]:
            found = one != other
        case _:
            raise _Failed(f"{' '.join(arguments)}: not simulated", MISUSED)
    result.code = 0 if found else 1


def _mkdir(shell: Shell, arguments: list[str], _stdin: bytes, _result: Result) -> None:
    for text in arguments:
        if not text.startswith("-"):
            shell.files.setdefault(shell._path(text) + "/", b"")


def _touch(shell: Shell, arguments: list[str], _stdin: bytes, _result: Result) -> None:
    for text in arguments:
        shell.files.setdefault(shell._path(text), b"")


def _rm(shell: Shell, arguments: list[str], _stdin: bytes, _result: Result) -> None:
    forced = any(each.startswith("-") and "f" in each for each in arguments)
    for text in [each for each in arguments if not each.startswith("-")]:
        path = shell._path(text)
        gone = [each for each in shell.files if each == path or each.startswith(path + "/")]
        if not gone and not forced:
            raise _Failed(f"can't remove '{text}': No such file or directory")
        for each in gone:
            del shell.files[each]


def _tar(shell: Shell, arguments: list[str], stdin: bytes, result: Result) -> None:
    """What `kubectl cp` runs: `tar -xmf - -C FOLDER` and `tar cf - PATH`."""
    words = [each for each in arguments if each not in ("--no-same-permissions", "--no-same-owner", "-")]
    folder = shell.workdir
    if "-C" in words[:-1]:
        at = words.index("-C")
        folder, words = shell._path(words[at + 1]), words[:at] + words[at + 2 :]
    mode, paths = (words[0] if words else ""), words[1:]
    if "x" in mode:
        with _archive(io.BytesIO(stdin)) as archive:
            for member in archive:
                path = posixpath.normpath(posixpath.join(folder, member.name.lstrip("/")))
                if member.isdir():
                    shell.files.setdefault(path + "/", b"")
                elif (content := archive.extractfile(member)) is not None:
                    shell.files[path] = content.read()
    elif "c" in mode:
        result.stdout += _packed(shell, paths)
    else:
        raise _Failed(f"{' '.join(arguments)}: not simulated", MISUSED)


def _archive(source: io.BytesIO) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=source, mode="r|")
    except tarfile.TarError as error:
        raise _Failed(f"invalid tar header: {error}") from error


def _packed(shell: Shell, paths: list[str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for text in paths:
            path = shell._path(text)
            found = [each for each in shell.files if each == path or each.startswith(path.rstrip("/") + "/")]
            if not found:
                raise _Failed(f"{text}: No such file or directory")
            for each in sorted(found):
                member = tarfile.TarInfo(each.strip("/"))
                member.type = tarfile.DIRTYPE if each.endswith("/") else tarfile.REGTYPE
                member.mode = 0o755 if each.endswith("/") else 0o644
                member.size = len(shell.files[each])
                archive.addfile(member, io.BytesIO(shell.files[each]))
    return made.getvalue()


PROGRAMS: Mapping[str, Callable[[Shell, list[str], bytes, Result], None]] = {
    "[": _test,
    ":": _true,
    "CONNECT": _true,  # what the node agent asks in place of a TCP connection, and below of an HTTP request
    "GET": _true,
    "cat": _cat,
    "echo": _echo,
    "env": _env,
    "exit": _exit,
    "false": _false,
    "hostname": _hostname,
    "ls": _ls,
    "mkdir": _mkdir,
    "printenv": _printenv,
    "pwd": _pwd,
    "rm": _rm,
    "sleep": _sleep,
    "tar": _tar,
    "test": _test,
    "touch": _touch,
    "true": _true,
}
