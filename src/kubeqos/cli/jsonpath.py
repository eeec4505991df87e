"""kubectl's `-o jsonpath=…` and `-o custom-columns=…` on plain data. Called by `output`. Pure.

    {.items[*].metadata.name}                       fields, all elements
    {.items[0]['name']} {.items[-1:].name}          by number, by quoted name, a slice
    {..name}                                        at any depth
    {.items[?(@.phase=="Running")].name}            those for which it is so: == != < <= > >=, or that there is one
    {range .items[*]}{.name}{"\\t"}{.phase}{"\\n"}{end}

What is outside of braces is text. Several results are printed with a space between them. A path that leads nowhere is
empty, as kubectl's `--allow-missing-template-keys` has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kubeqos.codec import encode_json
from kubeqos.errors import InputError

Step = Callable[[Any], Iterator[Any]]
_BRACES = re.compile(r"\{((?:[^{}\"']|\"(?:\\.|[^\"\\])*\"|'[^']*')*)\}")
_TOKEN = re.compile(
    r"""\.\.(?P<deep>[\w/-]+) | \.(?P<field>(?:[^\s.\[\]{}\\*]|\\.)+) | \.(?P<star>\*)
      | \[(?P<all>\*)\] | \['(?P<quoted>[^']*)'\] | \["(?P<named>[^"]*)"\]
      | \[(?P<slice>-?\d*:-?\d*)\] | \[(?P<index>-?\d+)\] | \[\?\((?P<filter>.*?)\)\] | (?P<root>[$@]|\.$)""",
    re.VERBOSE,
)
_COMPARED = re.compile(r"^\s*@(?P<path>\S*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*$")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def filled(template: str, value: Any) -> str:
    """A template with what its paths find."""
    pieces = _pieces(template)
    text, rest = _filled(pieces, value, inside=False)
    assert not rest
    return text


def found(path: str, value: Any) -> list[Any]:
    """Everything that a path leads to."""
    values = [value]
    for step in _steps(path):
        values = [each for one in values for each in step(one)]
    return values


def columns_of(spec: str) -> list[tuple[str, str]]:
    """Headers and paths of `NAME:.metadata.name,NODE:.spec.nodeName`."""
    found = [part.partition(":") for part in re.split(r",(?=[^,:]+:)", spec)]
    if not spec or any(not header or not path for header, _, path in found):
        raise InputError(
            f"{spec!r} names no columns", where="-o custom-columns", remedy="write HEADER:.path,HEADER:.path"
        )
    return [(header, path.strip("{}")) for header, _, path in found]


def shown(value: Any) -> str:
    """A value as kubectl prints it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else encode_json(value).decode()


def _pieces(template: str) -> list[tuple[str, str]]:
    """Text and what stands in braces, in turn."""
    pieces, at = [], 0
    for match in _BRACES.finditer(template):
        pieces += [("text", template[at : match.start()]), ("braces", match[1].strip())]
        at = match.end()
    rest = template[at:]
    if "{" in rest or "}" in rest:
        raise _wrong(template, "a brace is not closed")
    return [*pieces, ("text", rest)]


def _filled(pieces: Sequence[tuple[str, str]], value: Any, *, inside: bool) -> tuple[str, Sequence[tuple[str, str]]]:
    """The text up to the `{end}` of this level, and what follows it."""
    text = ""
    while pieces:
        (kind, words), pieces = pieces[0], pieces[1:]
        if kind == "text":
            text += words
        elif words == "end":
            if not inside:
                raise _wrong("{end}", "nothing is to be ended here")
            return text, pieces
        elif words.startswith("range "):
            rest: Sequence[tuple[str, str]] = _after_end(pieces)
            for one in found(words.removeprefix("range ").strip(), value):
                text += _filled(pieces, one, inside=True)[0]
            pieces = rest
        elif words[:1] in ("'", '"'):
            text += words[1:-1].replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
        else:
            text += " ".join(map(shown, found(words, value)))
    if inside:
        raise _wrong("{range}", "its {end} is missing")
    return text, pieces


def _after_end(pieces: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    depth = 1
    for number, (kind, words) in enumerate(pieces):
        depth += (kind == "braces" and words.startswith("range ")) - (kind == "braces" and words == "end")
        if not depth:
            return pieces[number + 1 :]
    raise _wrong("{range}", "its {end} is missing")


def _steps(path: str) -> list[Step]:
    steps: list[Step] = []
    at = 0
    while at < len(path):
        match = _TOKEN.match(path, at)
        if match is None or match.end() == at:
            raise _wrong(path, f"nothing is known that begins with {path[at:]!r}")
        at = match.end()
        steps += _step(match)
    return steps


def _step(match: re.Match[str]) -> list[Step]:
    part = match.groupdict()
    if part["deep"] is not None:
        return [lambda value, name=part["deep"]: _deep(value, name)]  # type: ignore[misc]
    name = part["quoted"] if part["quoted"] is not None else part["named"]
    if part["field"] is not None:
        name = re.sub(r"\\(.)", r"\1", part["field"])
    if name is not None:
        return [lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])]
    if part["all"] or part["star"]:
        return [_every]
    if part["slice"] is not None:
        begin, end = (int(one) if one else None for one in part["slice"].split(":"))
        return [lambda value: iter(value[begin:end] if isinstance(value, list) else [])]
    if part["index"] is not None:
        number = int(part["index"])
        return [
            lambda value: iter(
                [value[number]] if isinstance(value, list) and -len(value) <= number < len(value) else []
            )
        ]
    if part["filter"] is not None:
        return [_filter(part["filter"])]
    return []  # the root, or the element itself


def _every(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()


def _deep(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict) and name in value:
        yield value[name]
    for one in _every(value):
        yield from _deep(one, name)


def _filter(words: str) -> Step:
    match = _COMPARED.match(words)
    if match is None:
        raise _wrong(f"[?({words})]", "only @.path, and @.path compared with a value, are known")
    path, sign = match["path"], match["sign"]
    wanted = _literal(match["value"]) if sign else None

    def holds(one: Any) -> bool:
        values = found(path, one)
        if not sign:
            return bool(values)
        try:
            return any(_SIGNS[sign](value, wanted) for value in values)
        except TypeError:  # a number is neither more nor less than a text
            return False

    return lambda value: (one for one in _every(value) if holds(one))


def _literal(text: str) -> Any:
    if text[:1] in ("'", '"'):
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _wrong(template: str, why: str) -> InputError:
    return InputError(f"{template!r} is no template: {why}", where="-o jsonpath", remedy="write it as for kubectl")
