"""All providers of one configuration, and the merged list of what they offer.

Built in two steps so that a bad configuration changes nothing: `build` makes and checks every provider, `install`
performs the writes. A keeper of classes has one catalog, and takes on another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.builtin import BlockIoProvider, NamedProvider, PresetProvider
from kubeqos.cri.providers.config import (
    BUILT_IN,
    BlockIoSpec,
    NamedSpec,
    NodeClasses,
    PresetSpec,
    RdtSpec,
    ResourceSpec,
    VendorSpec,
)
from kubeqos.cri.providers.holders import Holder
from kubeqos.cri.providers.protocol import ENTRY_POINT_GROUP, Advertisement, ClassInfo, ClassProvider, Level
from kubeqos.cri.providers.rdt.files import Kernel, ResctrlFiles, discover
from kubeqos.cri.providers.rdt.provider import RdtProvider
from kubeqos.cri.providers.rdt.resolve import ResctrlPlan
from kubeqos.cri.providers.retiring import Used, still_held, with_old_rules
from kubeqos.document import suggest
from kubeqos.errors import ConfigurationError, RemoteError
from kubeqos.rules.qos.classes import POD_QOS


def nobody(_resource: str, _class: str) -> int:
    """How many have a class where nobody has any."""
    return 0


Connect = Callable[[str, str, Any], ClassProvider]
"""Makes the proxy of an out-of-process provider from (resource name, endpoint, configuration)."""


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """The parts of this machine that providers work on."""

    host: Host
    resctrl_root: Path = Path("/sys/fs/resctrl")
    resctrl_kernel: Kernel = field(default_factory=Kernel)
    mbps_mode: bool | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The resources on offer by name, and who stands behind each."""

    offers: Mapping[str, Advertisement] = field(default_factory=dict)
    providers: Mapping[str, ClassProvider] = field(default_factory=dict)
    specs: Mapping[str, ResourceSpec] = field(default_factory=dict)
    rdt_plans: tuple[tuple[RdtProvider, ResctrlPlan], ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    """Vendors' processes that do not answer, by their entry in the file, and why. Nothing of theirs is on offer."""
    away: Mapping[str, ClassProvider] = field(default_factory=dict)
    """Our ends of those, to be asked again."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The entry in the file behind each offer."""
    heard: Mapping[int, int] = field(default_factory=dict)
    """How much news of each provider is in here."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Resources that cannot be given in the way in which this node gives classes, and why. They are not on offer."""

    @property
    def stale(self) -> bool:
        """Whether a provider has changed what it offers, or has gone."""
        return any(provider.news != self.heard.get(id(provider), 0) for provider in self.distinct_providers())

    def at(self, level: Level) -> list[Advertisement]:
        return [offer for _, offer in sorted(self.offers.items()) if offer.level is level]

    def install(self) -> None:
        for provider, plan in self.rdt_plans:
            provider.files.apply(plan)

    def reinstall(self) -> None:
        """Write everything as this configuration wants it, whatever is there now."""
        for provider, _ in self.rdt_plans:
            provider.install()

    def repair(self) -> bool:
        """Make again what another agent took away; whether there was anything to make.

        containerd and CRI-O with RDT configured remove every resctrl group they do not know when they start.
        """
        damaged = [provider for provider, _ in self.rdt_plans if provider.missing()]
        for provider in damaged:
            provider.install()
        return bool(damaged)

    def gather(self, holders: Iterable[Holder]) -> int:
        """Bring stray tasks of running containers into their groups; how many there were."""
        found = 0
        for name, provider in self.providers.items():
            if isinstance(provider, RdtProvider):
                held = ((h, h.classes[name].class_name) for h in holders if name in h.classes)
                found += provider.gather([(h.subject, h.place, c) for h, c in held if h.alive and h.place and c])
        return found

    def retire(self) -> list[str]:
        """Clear away what the previous configuration left behind; returns what is still in use."""
        return [name for provider, plan in self.rdt_plans for name in provider.files.retire(plan)]

    def clear(self) -> None:
        """Take away what `install` made; tasks in a group that goes are nobody's again."""
        for provider, plan in self.rdt_plans:
            for group in filter(None, plan.schemata):
                provider.files.remove(group)

    def distinct_providers(self) -> Iterable[ClassProvider]:
        everybody = (*self.providers.values(), *self.away.values())
        return {id(provider): provider for provider in everybody}.values()


async def build(
    classes: NodeClasses, machine: LocalMachine, connect: Connect, previous: Catalog | None = None, used: Used = nobody
) -> Catalog:
    """Every provider of a configuration, checked. Raises ConfigurationError; changes nothing on the machine.

    `used` says who has the classes of the previous one: those that are gone from the file stay, as retired.
    """
    entries = _entries(classes, previous, used)
    offers: dict[str, Advertisement] = {}
    providers: dict[str, ClassProvider] = {}
    plans: list[tuple[RdtProvider, ResctrlPlan]] = []
    absent: dict[str, str] = {}
    away: dict[str, ClassProvider] = {}
    sources: dict[str, str] = {}
    heard: dict[int, int] = {}
    for entry, spec in entries.items():
        provider = _make(spec, machine, connect, previous)
        if isinstance(provider, RdtProvider):
            if plans:
                raise ConfigurationError(
                    "two rdt resources are configured",
                    where=spec.where,
                    remedy="keep one: resctrl groups are exclusive",
                )
            plans.append((provider, provider.plan()))
        heard[id(provider)] = provider.news
        try:
            advertised = await provider.advertise()
        except RemoteError as error:
            # A vendor's process that is away takes its own classes with it, and nobody else's.
            absent[spec.offer.name], away[spec.offer.name] = error.what, provider
            continue
        for offer in advertised:
            offer = _kept(_adjusted(offer, spec), previous, used, gone=entry not in classes.resources)
            if offer.name in offers:
                _refuse_twice(offers[offer.name], offer, spec)
            offers[offer.name] = offer
            providers[offer.name], sources[offer.name] = provider, spec.offer.name
    return Catalog(offers, providers, entries, tuple(plans), absent, away, sources, heard)


def _entries(classes: NodeClasses, previous: Catalog | None, used: Used) -> dict[str, ResourceSpec]:
    """The entries of the file, and those that are gone from it while somebody has one of their classes."""
    before = previous.specs if previous else {}
    found = {name: with_old_rules(spec, before.get(name), used) for name, spec in classes.resources.items()}
    for name, offer in (previous.offers if previous else {}).items():
        source = previous.sources[name] if previous else name
        if source not in found and still_held(None, offer, used) is not None:
            found[source] = before[source]
    return found


def _kept(offer: Advertisement, previous: Catalog | None, used: Used, *, gone: bool) -> Advertisement:
    before = previous.offers.get(offer.name) if previous else None
    if before is None:
        return offer
    return still_held(None if gone else offer, before, used) or dataclasses.replace(
        offer, retired=frozenset(one.name for one in offer.classes), default=""
    )


def _make(spec: ResourceSpec, machine: LocalMachine, connect: Connect, previous: Catalog | None) -> ClassProvider:
    match spec.spec:
        case PresetSpec(kind, classes):
            return PresetProvider(spec.offer, kind, classes, machine.host)
        case NamedSpec():
            return NamedProvider(spec.offer)
        case BlockIoSpec(classes):
            return BlockIoProvider(spec.offer, classes, machine.host)
        case RdtSpec(config, prefix, monitoring):
            found = discover(machine.resctrl_root, machine.mbps_mode)
            if not monitoring:
                found = dataclasses.replace(found, mon_features=())
            files = ResctrlFiles(machine.resctrl_root, machine.resctrl_kernel)
            return RdtProvider(spec.offer, config, found, files, machine.host, prefix)
        case VendorSpec(entry_point, endpoint, config):
            kept = previous.specs.get(spec.offer.name) if previous else None
            known = _known(previous, spec.offer.name) if previous and kept and kept.spec == spec.spec else None
            if known is not None:
                return known
            return connect(spec.offer.name, endpoint, config) if endpoint else _load(entry_point, config, spec.where)


def _known(previous: Catalog, entry: str) -> ClassProvider | None:
    """The provider of an entry of the file that has not changed."""
    found = (previous.providers[offer] for offer, source in previous.sources.items() if source == entry)
    return previous.away.get(entry) or next(found, None)


def _load(name: str, config: Any, where: str) -> ClassProvider:
    """A vendor's entry point: a callable that takes the `config` of its resource and returns the provider."""
    found = {point.name: point for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        known = [*BUILT_IN, *found]
        raise ConfigurationError(f"no provider {name!r} is installed", where=where, remedy=suggest(name, known))
    provider = found[name].load()(config)
    if not isinstance(provider, ClassProvider):
        raise ConfigurationError(
            f"entry point {name!r} did not return a ClassProvider",
            where=where,
            remedy=f"{found[name].value} must return a subclass of kubeqos.cri.providers.protocol.ClassProvider",
        )
    return provider


def _adjusted(offer: Advertisement, spec: ResourceSpec) -> Advertisement:
    """A vendor's offer with the capacity and default that the administrator set, checked like our own."""
    if offer.name == POD_QOS:
        raise ConfigurationError(f"a provider offers {POD_QOS!r}, which belongs to Kubernetes", where=spec.where)
    if not isinstance(spec.spec, VendorSpec):
        return offer
    for name in spec.capacity:
        if not offer.find(name):
            known = [info.name for info in offer.classes]
            raise ConfigurationError(
                f"no class {name!r} to set a capacity for", where=spec.where, remedy=suggest(name, known)
            )
    for handler, classes in spec.offer.handlers.items():
        for name in sorted(classes):
            if not offer.find(name):
                known = [info.name for info in offer.classes]
                what = f"no class {name!r} to give to runtime handler {handler!r}"
                raise ConfigurationError(what, where=spec.where, remedy=suggest(name, known))
    default = spec.offer.default or offer.default
    if default and not offer.find(default):
        raise ConfigurationError(f"{offer.name}: default {default!r} is not one of its classes", where=spec.where)
    infos = tuple(ClassInfo(info.name, spec.capacity.get(info.name, info.capacity)) for info in offer.classes)
    return dataclasses.replace(offer, classes=infos, default=default, handlers=spec.offer.handlers)


def _refuse_twice(first: Advertisement, second: Advertisement, spec: ResourceSpec) -> None:
    """Names are unique, also across levels (KEP-3008, RuntimeStatus; DESIGN ruling 5)."""
    levels = " and ".join(sorted({first.level.value, second.level.value}))
    raise ConfigurationError(
        f"resource {second.name!r} is offered twice ({levels} level)",
        where=spec.where,
        remedy="every QoS-class resource of a node needs its own name",
    )
