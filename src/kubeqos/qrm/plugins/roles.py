"""What a role means to the CPU and memory plugins: which pool, or CPUs of its own, and how it is tied to NUMA nodes.

Roles are named in the plugins' configuration. A pod without a known role may say the same with Katalyst's annotations
(qos_level and the enhancements).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from kubeqos.document import Doc, parse_document
from kubeqos.model.annotations.podmarks import enhancement, is_on, marks
from kubeqos.topology.pools import SHARED

T = TypeVar("T")


class Numa(enum.StrEnum):
    """How a role is tied to NUMA nodes."""

    ANY = "any"
    BIND = "bind"
    """On as few nodes as hold it, which it shares with its own role only."""
    EXCLUSIVE = "exclusive"
    """Whole nodes, alone."""


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One role of the configuration."""

    pool: str = ""
    dedicated: bool = False
    numa: Numa = Numa.ANY
    full_cores: bool = False
    """Only whole cores: a request that leaves half a core is refused."""
    evenly: bool = False
    """An equal part of each NUMA node that it is bound to, or nothing."""
    beside: tuple[str, ...] = ()
    """Other roles that may bind to the same NUMA nodes."""
    knobs: dict[str, str | int] = {}
    """Properties and cgroup files that come with the role."""


class Asking(Protocol):
    """The part of a request that decides a role."""

    @property
    def role(self) -> str: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...


def role_for(request: Asking, roles: Mapping[str, Role], default: str = SHARED) -> tuple[str, Role]:
    """The name and the meaning of a pod's role."""
    if request.role in roles:
        return request.role, roles[request.role]
    marked = marks(request.role, request.annotations)
    pool = marked.pool_or(default)
    if pool is not None:
        return request.role or pool, Role(pool=pool)
    cpu = enhancement(request.annotations, "cpu")
    full, evenly = is_on(cpu, "full_pcpus_pairing"), is_on(cpu, "distribute_evenly_across_numa")
    return request.role or marked.level, Role(dedicated=True, numa=Numa(marked.numa), full_cores=full, evenly=evenly)


def read_config(text: str, kind: type[T], source: str) -> T:
    """A plugin's configuration from YAML; a mistake is one error that names the line and the field."""
    doc = parse_document(text, source)
    plain = doc.plain() or {}
    try:
        return msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        _find(doc, path.rstrip("`"), partial(_fails, kind, plain)).fail(what)


def _find(doc: Doc, path: str, fails: Callable[[tuple[str, ...]], bool]) -> Doc:
    """The part of a document that an error's path speaks of; `[...]` in it is some key, found by trying."""
    taken: tuple[str, ...] = ()
    for key in filter(None, path.replace("[...]", ".*").split(".")):
        children = doc.items() if doc.is_mapping else {}
        name = next((child for child in children if fails((*taken, child))), "") if key == "*" else key
        if name not in children:
            return doc
        doc, taken = children[name], (*taken, name)
    return doc


def _fails(kind: type[Any], plain: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a document with nothing but this part of it would be wrong, too."""
    part: Any = plain
    for key in path:
        part = part[key]
    for key in reversed(path):
        part = {key: part}
    try:
        msgspec.convert(part, kind, strict=False)
    except msgspec.ValidationError:
        return True
    return False
