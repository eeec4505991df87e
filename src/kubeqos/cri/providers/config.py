"""`classes.yaml`: which QoS-class resources a node offers; one form for the relay, simulated machines and clusters.

    resources:
      rdt:                              # the name pods ask for; yours to choose (DESIGN ruling 5)
        provider: rdt
        default: silver                 # class of containers that ask for none; leave out for none
        capacity: {gold: 2}             # how many containers at once; leave out for unlimited
        handlers: {kata: [silver]}      # pods of this runtime handler get these classes only; others get all
        annotations: [silver]           # classes that a stock kubelet's pods may ask for by annotation; else none
        config: {partitions: {…}}       # goresctrl's form
      blockio:
        provider: blockio
        config: {Classes: {…}}
      ulimits:
        provider: ulimits               # or memory, cpu, network
        classes:
          many-files: {nofile: "65536:1048576"}
        retired: [few-files]            # nobody new gets it, who has it keeps it; not the default
      vendor.example/shelf:
        provider: named                 # classes that are only names: advertised, counted, reported
        level: pod                      # or container, the default
        mutable: true                   # whether a running one may move; false if left out
        classes: [upper, lower]
      vendor.example/turbo:
        provider: turbo                 # an entry point, or
        endpoint: unix:///run/turbo.sock    # a process of its own
        config: {anything: the vendor reads}

Parsed strictly into values; nothing is touched until all of it is valid.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.cri.providers import blockio, presets
from kubeqos.cri.providers.protocol import SYSTEM_DEFAULT, Advertisement, ClassInfo, Level
from kubeqos.cri.providers.rdt.config import RdtConfig, parse_rdt
from kubeqos.document import Doc, parse_document, suggest
from kubeqos.rules.qos.classes import POD_QOS

MAX_CAPACITY = 2**64 - 1
_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
DEFAULT_PREFIX = "kubeqos."
"""Keeps our resctrl groups apart from everybody else's."""
_RDT_KEYS = ("monitoring", "prefix")
NAMED = "named"
_NAMED_KEYS = ("level", "mutable")
ANNOTATIONS, RETIRED, HANDLERS = "annotations", "retired", "handlers"
BUILT_IN = ("rdt", "blockio", *presets.KINDS, NAMED)


@dataclass(frozen=True, slots=True)
class RdtSpec:
    config: RdtConfig
    prefix: str = DEFAULT_PREFIX
    monitoring: bool = True


@dataclass(frozen=True, slots=True)
class BlockIoSpec:
    classes: Mapping[str, tuple[blockio.DeviceRule, ...]]


@dataclass(frozen=True, slots=True)
class PresetSpec:
    kind: presets.ClassFamily
    classes: Mapping[str, presets.Preset]


@dataclass(frozen=True, slots=True)
class NamedSpec:
    """Nothing is enforced here: whoever reads an assignment does the rest."""


@dataclass(frozen=True, slots=True)
class VendorSpec:
    """A provider that is not ours; its classes come from its own `advertise`."""

    entry_point: str = ""
    endpoint: str = ""
    config: Any = None


Spec = RdtSpec | BlockIoSpec | PresetSpec | NamedSpec | VendorSpec


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """One entry of `resources`: what to offer, and how it is enforced."""

    offer: Advertisement
    spec: Spec
    where: str
    capacity: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeClasses:
    """A whole valid configuration."""

    resources: Mapping[str, ResourceSpec] = field(default_factory=dict)


def parse_classes(text: str, source: str, cgroup_version: int) -> NodeClasses:
    """The configuration of one node. Raises ConfigurationError with the line for anything that is not right."""
    fields = parse_document(text, source).fields(("resources",))
    return read_resources(fields["resources"], cgroup_version) if "resources" in fields else NodeClasses()


def read_resources(resources: Doc, cgroup_version: int) -> NodeClasses:
    """The resources of a node, wherever a file has them."""
    if resources.is_list:
        resources.fail("expected a mapping", "write each resource as `NAME: {provider: …}`")
    entries = resources.items()
    return NodeClasses({name: _parse_resource(name, doc, cgroup_version) for name, doc in entries.items()})


def _parse_resource(name: str, doc: Doc, cgroup_version: int) -> ResourceSpec:
    if name == POD_QOS:
        doc.fail("this name belongs to Kubernetes", "choose another name")
    if not _NAME.fullmatch(name):
        doc.fail(f"{name!r} is not a resource name", "use letters, digits, '-', '_', '.', and one '/' after a domain")
    common: tuple[str, ...] = ("provider", "default", "capacity", HANDLERS)
    every = (*common, "endpoint", "config", "classes", ANNOTATIONS, RETIRED, *_RDT_KEYS, *_NAMED_KEYS)
    fields = doc.fields(every)
    provider = fields["provider"].text() if "provider" in fields else ""
    if not provider and "endpoint" not in fields:
        doc.fail("no provider", f"add provider: one of {', '.join(BUILT_IN)}, or endpoint")
    if provider in BUILT_IN:
        common = (*common, RETIRED)
    if provider in presets.KINDS:
        doc.fields((*common, "classes"))
        return _preset(name, doc, fields, presets.KINDS[provider], cgroup_version)
    if provider == NAMED:
        doc.fields((*common, "classes", *_NAMED_KEYS))
        return _named(name, doc, fields)
    if provider == "rdt":
        doc.fields((*common, "config", ANNOTATIONS, *_RDT_KEYS))
        return _rdt(name, doc, fields)
    if provider == "blockio":
        doc.fields((*common, "config", ANNOTATIONS))
        classes = blockio.parse_classes(_required(doc, fields, "config"))
        offer = _offer(name, doc, fields, list(classes), Level.CONTAINER, True, "blockio")
        return ResourceSpec(offer, BlockIoSpec(classes), doc.where)
    if "classes" in fields and provider:
        fields["provider"].fail(
            f"no built-in provider {provider!r}, and others bring their own classes", suggest(provider, BUILT_IN)
        )
    doc.fields((*common, "endpoint", "config"))
    return _vendor(name, doc, fields, provider)


def _required(doc: Doc, fields: Mapping[str, Doc], key: str) -> Doc:
    if key not in fields:
        doc.fail(f"no {key}", f"add the key {key}")
    return fields[key]


def _rdt(name: str, doc: Doc, fields: Mapping[str, Doc]) -> ResourceSpec:
    config = parse_rdt(_required(doc, fields, "config"))
    prefix = fields["prefix"].text() if "prefix" in fields else DEFAULT_PREFIX
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", prefix):
        fields["prefix"].fail("the prefix begins a directory name and keeps our groups apart", "use letters and '.'")
    monitoring = fields["monitoring"].boolean() if "monitoring" in fields else True
    rules = config.classes()
    offer = dataclasses.replace(
        _offer(name, doc, fields, list(rules), Level.CONTAINER, True, "rdt"),
        deny_pod_annotation=frozenset(c for c, rule in rules.items() if rule.deny_pod_annotation),
        deny_container_annotation=frozenset(c for c, rule in rules.items() if rule.deny_container_annotation),
    )
    return ResourceSpec(offer, RdtSpec(config, prefix, monitoring), doc.where)


def _preset(
    name: str, doc: Doc, fields: Mapping[str, Doc], kind: presets.ClassFamily, cgroup_version: int
) -> ResourceSpec:
    keys = [setting.key for setting in kind.settings] + ["annotations"] * kind.free_annotations
    classes = {
        class_name: presets.parse_preset(kind, child.fields(keys), cgroup_version)
        for class_name, child in _required(doc, fields, "classes").items().items()
    }
    offer = _offer(name, doc, fields, list(classes), kind.level, kind.mutable)
    offer = dataclasses.replace(offer, scales_shares=kind is presets.CPU)
    return ResourceSpec(offer, PresetSpec(kind, classes), doc.where)


def _named(name: str, doc: Doc, fields: Mapping[str, Doc]) -> ResourceSpec:
    classes = [item.text() for item in _required(doc, fields, "classes").elements()]
    for class_name in classes:
        if classes.count(class_name) > 1:
            fields["classes"].fail(f"class {class_name!r} is named twice", "keep one of them")
    level = fields["level"].one_of([level.value for level in Level]) if "level" in fields else Level.CONTAINER.value
    mutable = "mutable" in fields and fields["mutable"].boolean()
    return ResourceSpec(_offer(name, doc, fields, classes, Level(level), mutable), NamedSpec(), doc.where)


def _vendor(name: str, doc: Doc, fields: Mapping[str, Doc], provider: str) -> ResourceSpec:
    endpoint = fields["endpoint"].text() if "endpoint" in fields else ""
    if endpoint and not endpoint.startswith("unix://"):
        fields["endpoint"].fail(f"{endpoint!r} is not a socket", "write it like unix:///run/vendor.sock")
    config = fields["config"].plain() if "config" in fields else None
    capacity = _capacity(fields)
    default = fields["default"].text() if "default" in fields else SYSTEM_DEFAULT
    offer = Advertisement(name, Level.CONTAINER, False, (), default, handlers=_handlers(fields, None))
    return ResourceSpec(offer, VendorSpec(provider, endpoint, config), doc.where, capacity)


def _capacity(fields: Mapping[str, Doc]) -> dict[str, int]:
    if "capacity" not in fields:
        return {}
    return {name: child.integer(0, MAX_CAPACITY) for name, child in fields["capacity"].items().items()}


def _offer(
    name: str, doc: Doc, fields: Mapping[str, Doc], classes: list[str], level: Level, mutable: bool, stem: str = ""
) -> Advertisement:
    capacity = _capacity(fields)
    for class_name in capacity:
        if class_name not in classes:
            fields["capacity"].items()[class_name].fail("no such class", suggest(class_name, classes))
    default = fields["default"].text() if "default" in fields else SYSTEM_DEFAULT
    if default and default not in classes:
        fields["default"].fail(f"no class {default!r}", suggest(default, classes))
    for class_name in classes:
        if not class_name or class_name != class_name.strip():
            doc.fail(f"{class_name!r} is not a class name", "give every class a name")
    retired = _listed(fields, RETIRED, classes)
    if default in retired:
        fields[RETIRED].fail(f"class {default!r} is the default", "choose another default first")
    infos = tuple(ClassInfo(c, capacity.get(c, 0)) for c in classes)
    opened = _listed(fields, ANNOTATIONS, classes)
    handlers = _handlers(fields, classes)
    return Advertisement(
        name, level, mutable, infos, default, stem, by_annotation=opened, retired=retired, handlers=handlers
    )


def _handlers(fields: Mapping[str, Doc], classes: list[str] | None) -> dict[str, frozenset[str]]:
    """The classes that pods of single runtime handlers get; `classes` None: a vendor's, who names them later."""
    found = fields[HANDLERS].items() if HANDLERS in fields else {}
    for doc in found.values():
        for one in doc.elements() if classes is not None else ():
            if one.text() not in (classes or ()):
                one.fail(f"no class {one.text()!r}", suggest(one.text(), classes or ()))
    return {handler: frozenset(one.text() for one in doc.elements()) for handler, doc in found.items()}


def _listed(fields: Mapping[str, Doc], key: str, classes: list[str]) -> frozenset[str]:
    """The classes that a key names."""
    found = list(fields[key].elements()) if key in fields else []
    for one in found:
        if one.text() not in classes:
            one.fail(f"no class {one.text()!r}", suggest(one.text(), classes))
    return frozenset(one.text() for one in found)
