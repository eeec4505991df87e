"""Outlines: a new pod taken apart into what decides its fate and what is only carried along.

Names, labels, images, command lines, plain variables and the usual amounts of resources differ from pod to pod. Once
each of them is valid by itself they change nothing about the rest of the object: not what is defaulted, not what is
refused, not who owns which field. `cut` takes these parts out of a body, judges them with the rules' own functions and
prints them in canonical form; what remains is the outline, by which `stencils` finds what surrounds the parts.

Pure. Whatever is in any way unusual stays in the outline, or gives none: then the long way decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kubeqos.codec import JsonObject, encode_json, integral_json
from kubeqos.errors import InputError
from kubeqos.model.names import dns_label, label_value, qualified_name
from kubeqos.model.objects import Resources
from kubeqos.model.quantity import Quantity
from kubeqos.rules.classes import is_class_annotation
from kubeqos.rules.defaults import pull_policy
from kubeqos.rules.limits import Defaulted

MARK = "stencil-hole-"
"""Begins every text that stands for a part while an outline is completed; a pod that contains it has no outline."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LARGEST_BODY = 16 << 10
_DEEPEST = 200
_COMPUTE = frozenset(("cpu", "memory", "ephemeral-storage"))
_STRINGS = frozenset((str,))
_CUT = 0
_is_plain_variable = re.compile("[-._a-zA-Z0-9]+").fullmatch


Kind = tuple[Callable[[str], Any], Callable[[str], tuple[bytes, ...]]]
"""What may stand in for a part, and how that looks in the stored text: in the object, and where it is owned."""
Part = tuple[Any, Any, Kind]
"""What was cut out: the dict or list that held it, its key or index there, and its kind."""


@dataclass(slots=True)
class Outline:
    """A pod without its parts."""

    pod: JsonObject
    name: str
    code: list[str] = field(default_factory=list)
    """Which parts were cut, so that a pod that contains what stands in their place has another outline."""
    parts: list[Part] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    """The canonical text of each part, and for some of them the text of their ownership."""
    keys: int = 0
    """How many keys of JSON objects the parts have."""
    containers: list[tuple[str, Resources | None]] = field(default_factory=list)
    """The name of each container, init containers last, and its resources where they were cut."""

    @property
    def key(self) -> tuple[bytes, str]:
        return encode_json(self.pod), " ".join(self.code)

    @property
    def has_amounts(self) -> bool:
        """Whether resources are among the parts, so that class and charge are the pod's own."""
        return any(amounts is not None for _, amounts in self.containers)

    def cut(self, holder: Any, key: Any, code: str, kind: Kind, *texts: bytes) -> None:
        holder[key] = _CUT
        self.code.append(code)
        self.parts.append((holder, key, kind))
        self.texts += texts


def _quoted(mark: str) -> tuple[bytes, ...]:
    return (b'"%b"' % mark.encode(),)


def _resources_stand_in(mark: str) -> JsonObject:
    amounts = {f"{mark}.example/x": "1"}
    return {"limits": amounts, "requests": amounts}


def _sides(resources: JsonObject) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((side, tuple(amounts)) for side, amounts in resources.items())


@lru_cache(maxsize=1024)
def resource_owners(sides: tuple[tuple[str, tuple[str, ...]], ...]) -> bytes:
    """Requests and limits as FieldsV1 has them."""
    owned: JsonObject = {f"f:{side}": {".": {}} | {f"f:{name}": {} for name in names} for side, names in sides}
    return encode_json({".": {}} | owned)


_TEXT: Kind = (lambda mark: mark, _quoted)
_BARE: Kind = (lambda mark: mark, lambda mark: (mark.encode(),))
_TAGGED: Kind = (lambda mark: f"{mark}:1", lambda mark: _quoted(f"{mark}:1"))
_TEXTS: Kind = (lambda mark: [mark], lambda mark: (encode_json([mark]),))
_LABELS: Kind = (lambda mark: {mark: "x"}, lambda mark: (encode_json({mark: "x"}), label_owners({mark: "x"}).encode()))
_VARIABLES: Kind = (
    lambda mark: {"name": mark, "value": "x"},
    lambda mark: (encode_json({"name": mark, "value": "x"}), variable_owners([mark]).encode()),
)
_RESOURCES: Kind = (
    _resources_stand_in,
    lambda mark: (encode_json(_resources_stand_in(mark)), resource_owners(_sides(_resources_stand_in(mark)))),
)


def outline(
    body: bytes, new_name: Callable[[str], str], floor: Defaulted | None, *, checked: bool = False
) -> Outline | None:
    """Cut a body. `new_name` completes a generateName.

    `floor` names the amounts that a namespace fills in where they are missing: with fewer than these, or where it is
    None, resources are not cut. `checked`: further rooms have a say about pods with claims and annotations.
    """
    if len(body) > _LARGEST_BODY or body.count(b"{") + body.count(b"[") >= _DEEPEST or MARK.encode() in body:
        return None
    pod = integral_json(body)
    if type(pod) is not dict:
        return None
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if type(metadata) is not dict or type(spec) is not dict:
        return None
    name = metadata.get("name")
    if name is None and "name" not in metadata and type(prefix := metadata.get("generateName")) is str:
        name = new_name(prefix)
    if type(name) is not str or dns_label(name):  # refused, or accepted with a warning: the long way says which
        return None
    out = Outline(pod, name)
    metadata["name"] = _CUT
    if not _cut_metadata(out, metadata, checked) or (checked and spec.get("resourceClaims")):
        return None
    containers, init = spec.get("containers"), spec.get("initContainers") or ()
    if type(containers) is not list or not (type(init) is list or init == ()):
        return None
    everyone = [*containers, *init]
    amounts = _amounts_of(everyone, floor) if spec.get("resources") is None else None
    for index, container in enumerate(everyone):
        if not _cut_container(out, container, None if amounts is None else amounts[index]):
            return None
    names = [one for one, _ in out.containers]
    return out if len(set(names)) == len(names) else None


def _cut_metadata(out: Outline, metadata: JsonObject, checked: bool) -> bool:
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if labels and type(labels) is dict and _are_labels(labels):
        out.keys += len(labels)
        out.cut(metadata, "labels", "L", _LABELS, encode_json(labels), label_owners(labels).encode())
    if annotations and type(annotations) is dict:
        if any(map(is_class_annotation, annotations)) or (checked and set(annotations) != {LAST_APPLIED}):
            return False  # these may speak of containers by name
        if type(applied := annotations.get(LAST_APPLIED)) is str:
            out.cut(annotations, LAST_APPLIED, "A", _TEXT, encode_json(applied))
    return True


def _are_labels(labels: JsonObject) -> bool:
    for key, value in labels.items():
        if type(value) is not str or qualified_name(key) or label_value(value):
            return False
    return True


def label_owners(labels: JsonObject) -> str:
    """Members of a map as FieldsV1 has them; a valid key needs no escape."""
    return '"f:' + '":{},"f:'.join(labels) + '":{}'


# -- containers ------------------------------------------------------------------------------------------------


def _cut_container(out: Outline, container: Any, amounts: Amounts | None) -> bool:
    """Cut one container; False where it cannot be part of an outline."""
    if type(container) is not dict:
        return False
    name, image = container.get("name"), container.get("image")
    if type(name) is not str or dns_label(name) or type(image) is not str or not image or image != image.strip():
        return False
    policy = "" if container.get("imagePullPolicy") else pull_policy(image)
    container["name"] = container["image"] = _CUT
    out.code.append(f"c{policy}")
    out.parts += ((container, "name", _BARE), (container, "image", _TEXT if policy == "Always" else _TAGGED))
    out.texts += (name.encode(), encode_json(image))
    for key in ("command", "args"):
        words = container.get(key)
        if words and type(words) is list and _STRINGS.issuperset(map(type, words)):
            out.cut(container, key, key, _TEXTS, encode_json(words))
    env = container.get("env")
    if env and type(env) is list:
        _cut_env(out, container, env)
    if amounts is not None:
        out.keys += amounts.keys
        out.cut(container, "resources", "r", _RESOURCES, amounts.text, amounts.owners)
    out.containers.append((name, None if amounts is None else amounts.view))
    return True


def _cut_env(out: Outline, container: JsonObject, env: list[Any]) -> None:
    """Every run of variables with a plain value is one part, however many they are."""
    names: list[Any] = [variable.get("name") if type(variable) is dict else None for variable in env]
    if not _STRINGS.issuperset(map(type, names)) or len(set(names)) != len(names):
        return
    rest: list[Any] = []
    start = 0
    for index, variable in enumerate(env):
        if not _is_plain(variable):
            _cut_run(out, rest, env[start:index], names[start:index])
            rest.append(variable)
            start = index + 1
    _cut_run(out, rest, env[start:], names[start:])
    container["env"] = rest


def _cut_run(out: Outline, rest: list[Any], run: list[JsonObject], names: list[str]) -> None:
    if run:
        out.keys += 2 * len(run)
        rest.append(_CUT)
        place = len(rest) - 1
        out.cut(rest, place, f"e{place}", _VARIABLES, encode_json(run)[1:-1], variable_owners(names).encode())


def _is_plain(variable: JsonObject) -> bool:
    """Name and value, in this order; an empty value would not be stored."""
    return (
        len(variable) == 2
        and type(value := variable.get("value")) is str
        and value != ""
        and next(iter(variable)) == "name"
        and _is_plain_variable(variable["name"]) is not None
    )


def variable_owners(names: list[str]) -> str:
    """Variables as FieldsV1 has them; their names need no escape."""
    return ",".join([f'"k:{{\\"name\\":\\"{name}\\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}' for name in names])


# -- resources -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Amounts:
    """Valid requests and limits of a container, completed as the API completes them."""

    text: bytes
    owners: bytes
    view: Resources
    keys: int


def _amounts_of(containers: list[Any], floor: Defaulted | None) -> list[Amounts | None] | None:
    """The amounts of every container that has any; None where a namespace would add to some of them."""
    if floor is None:
        return None
    found: list[Amounts | None] = []
    for container in containers:
        raw = container.get("resources") if type(container) is dict else None
        amounts = _amounts(raw) if raw and type(raw) is dict else None
        if floor and (amounts is None or not floor.is_met(amounts.view)):
            return None
        found.append(amounts)
    return found


def _amounts(raw: JsonObject) -> Amounts | None:
    """None for whatever the long way should look at: odd resources, fractions of bytes, requests above limits."""
    sides: dict[str, dict[str, Amount]] = {}
    keys = len(raw)
    for side, given in raw.items():
        if side not in ("requests", "limits") or not given or type(given) is not dict:
            return None
        keys += len(given)
        read = sides[side] = {}
        for name, text in given.items():
            if name not in _COMPUTE or type(text) is not str or (amount := _amount(name, text)) is None:
                return None
            read[name] = amount
    limits = sides.get("limits") or {}
    requests = sides.setdefault("requests", {})
    for name, limit in limits.items():
        if limit[1] < requests.setdefault(name, limit)[1]:
            return None
    text = ",".join([f'"{side}":{{{",".join([one[0] for one in read.values()])}}}' for side, read in sides.items()])
    view = Resources(
        requests={name: one[1] for name, one in requests.items()}, limits={name: one[1] for name, one in limits.items()}
    )
    return Amounts(f"{{{text}}}".encode(), resource_owners(_sides(sides)), view, keys)


Amount = tuple[str, Quantity]
"""How an amount is stored, with its name, and its value."""


@lru_cache(maxsize=16384)
def _amount(name: str, text: str) -> Amount | None:
    """One amount; None for one that is refused, or that the client is warned about."""
    try:
        amount = Quantity.parse(text).round_up_milli()
    except InputError:
        return None
    if amount.nanos < 0 or not (name == "cpu" or amount.is_integer):
        return None
    stored = str(amount)
    return f'"{name}":"{stored}"', amount if stored == text else Quantity.parse(stored)


def complete(outline: Outline) -> tuple[JsonObject, dict[bytes, int]]:
    """The outline with something else in place of its parts, and which texts then stand for which of them."""
    holes: dict[bytes, int] = {}
    for number, (holder, key, (stand_in, seen_as)) in enumerate(outline.parts):
        mark = f"{MARK}{number:04}"
        holder[key] = stand_in(mark)
        for text in seen_as(mark):
            holes[text] = len(holes)
    return outline.pod, holes
