"""Outlines: a new pod taken apart into what decides its fate and what is only carried along.

Names, labels, images, command lines, plain variables and the usual amounts of resources differ from pod to pod. Once
each of them is valid by itself they change nothing about the rest of the object: not what is defaulted, not what is
refused, not who owns which field. `cut` takes these parts out of a body, judges them with the rules' own functions and
prints them in canonical form; what remains is the outline, by which `stencils` finds what surrounds the parts.

Pure. Whatever is in any way unusual stays in the outline, or gives none: then the ordinary way decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct

from kubeqos.codec import JsonError, JsonObject, encode_json, typed_decoder
from kubeqos.errors import InputError
from kubeqos.model import schema
from kubeqos.model.names import dns_label, is_label_value, qualified_name
from kubeqos.model.objects import Resources
from kubeqos.model.quantity import Quantity, parse_uncached
from kubeqos.rules.defaulting.defaults import pull_policy
from kubeqos.rules.limits import Defaulted
from kubeqos.rules.qos.classes import is_class_annotation

MARK = "stencil-hole-"
"""Begins every text that stands for a part while an outline is completed; a pod that contains it has no outline."""
_MARK = MARK.encode()
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LARGEST_BODY = 16 << 10
_COMPUTE = frozenset(("cpu", "memory", "ephemeral-storage"))
_CUT = 0
_NO_TEXT = (b'""', b"null")


Kind = tuple[Callable[[str], Any], Callable[[str], tuple[bytes, ...]]]
"""What may stand in for a part, and how that looks in the stored text: in the object, and where it is owned."""
Part = tuple[Any, Any, Kind]
"""What was cut out: the object, dict or list that held it, its name or place there, and its kind."""


@dataclass(slots=True)
class Outline:
    """A pod without its parts."""

    pod: Any
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

    def cut(self, holder: Any, key: str, code: str, kind: Kind, *texts: bytes) -> None:
        setattr(holder, key, UNSET)
        self.code.append(code)
        self.keys += 1
        self.parts.append((holder, key, kind))
        self.texts += texts


def _quoted(mark: str) -> tuple[bytes, ...]:
    return (b'"%b"' % mark.encode(),)


def _resources_stand_in(mark: str) -> JsonObject:
    amounts = {f"{mark}.example/x": "1"}
    return {"limits": amounts, "requests": amounts}


@lru_cache(maxsize=1024)
def resource_owners(limits: tuple[str, ...], requests: tuple[str, ...]) -> bytes:
    """Limits and requests as FieldsV1 has them."""
    sides = {"f:limits": limits, "f:requests": requests}
    owned: JsonObject = {
        side: {".": {}} | {f"f:{name}": {} for name in names} for side, names in sides.items() if names
    }
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
    lambda mark: (
        encode_json(_resources_stand_in(mark)),
        resource_owners((f"{mark}.example/x",), (f"{mark}.example/x",)),
    ),
)


def outline(
    body: bytes, new_name: Callable[[str], str], floor: Defaulted | None, *, checked: bool = False
) -> Outline | None:
    """Cut a body. `new_name` completes a generateName.

    `floor` names the amounts that a namespace fills in where they are missing: with fewer than these, or where it is
    None, resources are not cut. `checked`: further rooms have a say about pods with claims and annotations.
    """
    if len(body) > _LARGEST_BODY or _MARK in body:
        return None
    try:
        pod = _decoder()(body)
    except (JsonError, UnicodeDecodeError, RecursionError):
        return None
    metadata, spec = pod.metadata, pod.spec
    name, prefix = metadata.name, metadata.generateName
    if name is UNSET and prefix is UNSET:
        return None
    out = Outline(pod, new_name(prefix) if name is UNSET else name, keys=name is not UNSET)
    containers = spec.containers + spec.initContainers if spec.initContainers else spec.containers
    if dns_label(out.name) or (len(containers) > 1 and len({one.name for one in containers}) != len(containers)):
        return None  # refused, or accepted with a warning: the ordinary way says which
    metadata.name = UNSET
    if not _cut_metadata(out, metadata, checked) or (checked and spec.resourceClaims is not UNSET):
        return None
    amounts = _amounts_of(containers, floor) if spec.resources is UNSET else None
    for index, container in enumerate(containers):
        _cut_container(out, container, None if amounts is None else amounts[index])
    return out


def _cut_metadata(out: Outline, metadata: Any, checked: bool) -> bool:
    labels, annotations = metadata.labels, metadata.annotations
    if labels:
        for key, value in labels.items():
            if qualified_name(key) or not is_label_value(value):
                return False
        out.keys += len(labels)
        out.cut(metadata, "labels", "L", _LABELS, encode_json(labels), label_owners(labels).encode())
    if annotations:
        if any(map(is_class_annotation, annotations)) or (checked and set(annotations) != {LAST_APPLIED}):
            return False  # these may speak of containers by name
        if (applied := annotations.get(LAST_APPLIED)) is not None:
            del annotations[LAST_APPLIED]
            out.parts.append((annotations, LAST_APPLIED, _TEXT))
            out.code.append("A")
            out.texts.append(encode_json(applied))
            out.keys += 1
    return True


def label_owners(labels: JsonObject) -> str:
    """Members of a map as FieldsV1 has them; a valid key needs no escape."""
    return '"f:' + '":{},"f:'.join(labels) + '":{}'


# -- containers ------------------------------------------------------------------------------------------------


def _cut_container(out: Outline, container: Any, amounts: Amounts | None) -> None:
    name, image = container.name, container.image
    given = container.imagePullPolicy
    policy = pull_policy(image) if given is UNSET or bytes(given) in _NO_TEXT else ""
    container.name = container.image = UNSET
    out.code.append(f"c{policy}")
    out.parts += ((container, "name", _BARE), (container, "image", _TEXT if policy == "Always" else _TAGGED))
    out.texts += (name.encode(), encode_json(image))
    out.keys += 2
    if words := container.command:
        out.cut(container, "command", "command", _TEXTS, encode_json(words))
    if words := container.args:
        out.cut(container, "args", "args", _TEXTS, encode_json(words))
    if container.env:
        _cut_env(out, container, container.env)
    if amounts is not None:
        out.keys += amounts.keys
        out.cut(container, "resources", "r", _RESOURCES, amounts.text, amounts.owners)
    out.containers.append((name, None if amounts is None else amounts.view))


def _cut_env(out: Outline, container: Any, env: list[Any]) -> None:
    """Every run of variables with a plain value is one part, however many they are."""
    names = [variable.name for variable in env]
    if len(set(names)) != len(names):
        return
    rest: list[Any] = []
    start = 0
    for index, variable in enumerate(env):
        if variable.valueFrom is not UNSET or not variable.value:  # an empty value would not be stored
            _cut_run(out, rest, env[start:index], names[start:index])
            rest.append(variable)
            start = index + 1
    _cut_run(out, rest, env[start:], names[start:])
    container.env = rest


def _cut_run(out: Outline, rest: list[Any], run: list[Any], names: list[str]) -> None:
    if run:
        rest.append(_CUT)
        place = len(rest) - 1
        out.keys += 2 * len(run)
        out.code.append(f"e{place}")
        out.parts.append((rest, place, _VARIABLES))
        out.texts += (encode_json(run)[1:-1], variable_owners(names).encode())


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
    found = [_amounts(one.resources) if one.resources else None for one in containers]
    if floor and not all(one is not None and floor.is_met(one.view) for one in found):
        return None
    return found


def _amounts(raw: Any) -> Amounts | None:
    """None for whatever the ordinary way should look at: odd resources, fractions of bytes, requests above limits."""
    if raw.claims is not UNSET or raw.qosResources is not UNSET:
        return None
    given_limits, given_requests = raw.limits or {}, raw.requests or {}
    limits: dict[str, Amount] = {}
    requests: dict[str, Amount] = {}
    for read, given in ((limits, given_limits), (requests, given_requests)):
        for name, text in given.items():
            if name not in _COMPUTE or (amount := _amount(name, text)) is None:
                return None
            read[name] = amount
    for name, limit in limits.items():
        if limit[1] < requests.setdefault(name, limit)[1]:
            return None
    if not requests:
        return None
    keys = len(given_limits) + len(given_requests) + (raw.limits is not UNSET) + (raw.requests is not UNSET)
    text = f'"requests":{{{",".join([one[0] for one in requests.values()])}}}'
    if limits:
        text = f'"limits":{{{",".join([one[0] for one in limits.values()])}}},{text}'
    view = Resources(
        requests={name: one[1] for name, one in requests.items()}, limits={name: one[1] for name, one in limits.items()}
    )
    return Amounts(f"{{{text}}}".encode(), resource_owners((*limits,), (*requests,)), view, keys)


Amount = tuple[str, Quantity]
"""How an amount is stored, with its name, and its value."""


@lru_cache(maxsize=16384)
def _amount(name: str, text: str) -> Amount | None:
    """One amount; None for one that is refused, or that the client is warned about."""
    try:
        amount = parse_uncached(text).round_up_milli()
    except InputError:
        return None
    if amount.nanos < 0 or not (name == "cpu" or amount.is_integer):
        return None
    stored = str(amount)
    return f'"{name}":"{stored}"', amount if stored == text else parse_uncached(stored)


def complete(outline: Outline, name: str) -> tuple[bytes, dict[bytes, int]]:
    """The outline with a name, and with something else in place of its parts; and which texts then stand for these."""
    holes: dict[bytes, int] = {}
    outline.pod.metadata.name = name
    for number, (holder, key, (stand_in, seen_as)) in enumerate(outline.parts):
        mark = f"{MARK}{number:04}"
        if isinstance(holder, Struct):
            setattr(holder, key, stand_in(mark))
        else:
            holder[key] = stand_in(mark)
        for text in seen_as(mark):
            holes[text] = len(holes)
    return encode_json(outline.pod), holes


# -- how a pod is read ---------------------------------------------------------------------------------------------


def prepare() -> None:
    """Build the reader of pods when a server starts: it takes milliseconds that the first pod should not wait for."""
    _decoder()


@cache
def _decoder() -> Callable[[bytes], Any]:
    """Reads a pod as far as it is cut: all other fields stay text, and one that nobody knows is an error.

    Some valid pods are errors too, with variables of odd names for example: these go the ordinary way.
    """
    label = dict[str, str] | None | UnsetType
    words = list[str] | None | UnsetType
    variable_name = Annotated[str, Meta(pattern=r"^[-._a-zA-Z0-9]+\Z")]
    variable = _type("core/v1.EnvVar", name=(variable_name,), value=(str | UnsetType, UNSET))
    amounts = dict[str, str] | None | UnsetType
    resources = _type("core/v1.ResourceRequirements", limits=(amounts, UNSET), requests=(amounts, UNSET))
    container = _type(
        "core/v1.Container",
        name=(Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z", max_length=63)],),
        image=(Annotated[str, Meta(pattern=r"^\S([\s\S]*\S)?\Z")],),
        env=(list[variable] | None | UnsetType, UNSET),  # type: ignore[valid-type]
        resources=(resources | None | UnsetType, UNSET),
        command=(words, UNSET),
        args=(words, UNSET),
    )
    metadata = _type(
        "meta/v1.ObjectMeta",
        name=(str | UnsetType, UNSET),
        generateName=(str | UnsetType, UNSET),
        labels=(label, UNSET),
        annotations=(label, UNSET),
    )
    spec = _type(
        "core/v1.PodSpec",
        containers=(list[container],),  # type: ignore[valid-type]
        initContainers=(list[container] | None | UnsetType, UNSET),  # type: ignore[valid-type]
    )
    return typed_decoder(_type("core/v1.Pod", metadata=(metadata,), spec=(spec,)))


def _type(key: str, **read: tuple[Any, ...]) -> Any:
    """A type of the API of which these fields are read, and the others kept as text."""
    kept: dict[str, tuple[Any, ...]] = dict.fromkeys(schema.type_named(key).fields, (Raw | UnsetType, UNSET))
    fields = [(name, *how) for name, how in (kept | read).items()]
    return defstruct(key.rpartition(".")[2], fields, kw_only=True, forbid_unknown_fields=True)
