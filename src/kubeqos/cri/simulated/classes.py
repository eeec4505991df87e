"""QoS-class resources of a simulated runtime: the table on offer, who may enter a class, what a status shows.

The table is a file:

    resources:
    - {name: rdt, level: container, default: silver, classes: [{name: gold, capacity: 2}, {name: silver}]}
    - {name: network, level: pod, mutable: true, classes: [{name: fast}, {name: slow}]}

Rules of KEP-3008 ("CRI API") and DESIGN rulings 2, 3 and 5. Pure, but for the counts that `ClassBook` keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kubeqos.cri.errors import Code, Refused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.config import MAX_CAPACITY, POD_QOS
from kubeqos.cri.providers.protocol import SYSTEM_DEFAULT, Advertisement, ClassInfo, Level
from kubeqos.cri.runtime import class_of
from kubeqos.document import Doc, parse_document, suggest
from kubeqos.errors import ConfigurationError

Requests = Iterable[cri.ContainerQOSResource] | Iterable[cri.PodQOSResource]


def read_classes(text: str, source: str) -> tuple[Advertisement, ...]:
    """The table from its file."""
    top = parse_document(text, source).fields(("resources",))
    return read_offers(top["resources"]) if "resources" in top else ()


def read_offers(listed: Doc) -> tuple[Advertisement, ...]:
    """The table's rows, wherever a file has them."""
    offers = [_read_offer(item) for item in listed.elements()]
    seen: dict[str, Advertisement] = {}
    for offer in offers:
        if offer.name in seen:
            levels = " and ".join(sorted({offer.level.value, seen[offer.name].level.value}))
            raise ConfigurationError(
                f"resource {offer.name!r} is offered twice ({levels} level)",
                where=listed.where,
                remedy="every QoS-class resource of a node needs its own name",
            )
        seen[offer.name] = offer
    return tuple(offers)


def _read_offer(item: Doc) -> Advertisement:
    fields = item.fields(("name", "level", "mutable", "default", "classes"))
    for key in ("name", "level", "classes"):
        if key not in fields:
            item.fail(f"{key} is missing")
    name, level = fields["name"].text(), fields["level"].text()
    if name == POD_QOS:
        fields["name"].fail(f"{POD_QOS!r} belongs to Kubernetes and is never offered")
    if level not in ("pod", "container"):
        fields["level"].fail(f"{level!r} is not a level", suggest(level, ("pod", "container")))
    classes = tuple(_read_class(entry) for entry in fields["classes"].elements())
    default = fields["default"].text() if "default" in fields else SYSTEM_DEFAULT
    names = [info.name for info in classes]
    if default and default not in names:
        fields["default"].fail(f"{default!r} is not one of the classes", suggest(default, names))
    mutable = "mutable" in fields and fields["mutable"].boolean()
    return Advertisement(name, Level(level), mutable, classes, default)


def _read_class(entry: Doc) -> ClassInfo:
    fields = entry.fields(("name", "capacity"))
    if "name" not in fields:
        entry.fail("name is missing")
    capacity = fields["capacity"].integer(0, MAX_CAPACITY) if "capacity" in fields else 0
    return ClassInfo(fields["name"].text(), capacity)


class ClassBook:
    """What is on offer now, and how many alive subjects have asked for each class."""

    def __init__(self, offers: Iterable[Advertisement] = ()) -> None:
        self.offers: dict[str, Advertisement] = {offer.name: offer for offer in offers}
        self.used: Counter[tuple[str, str]] = Counter()

    def info(self) -> cri.ResourcesInfo:
        """The table as RuntimeStatus carries it."""
        out = cri.ResourcesInfo()
        for offer in self.offers.values():
            into = out.pod_qos_resources if offer.level is Level.POD else out.container_qos_resources
            classes = [cri.QOSResourceClassInfo(name=c.name, capacity=c.capacity) for c in offer.classes]
            into.add(name=offer.name, mutable=offer.mutable, classes=classes)
        return out

    def requested(self, level: Level, requests: Requests, held: Mapping[str, str] | None = None) -> dict[str, str]:
        """The classes asked for, all of them available, or a refusal. `held`: a running subject that would move."""
        wanted: dict[str, str] = {}
        for request in requests:
            name, cls = request.name, class_of(request)
            if name in wanted:
                raise Refused(Code.INVALID_ARGUMENT, f"{level.value} QoS resource {name!r} is requested twice")
            self._check(level, name, cls, held)
            wanted[name] = cls
        return wanted

    def _check(self, level: Level, name: str, cls: str, held: Mapping[str, str] | None) -> None:
        offer = self.offers.get(name)
        if offer is None or offer.level is not level:
            known = sorted(o.name for o in self.offers.values() if o.level is level) or ["none"]
            what = f"{level.value} QoS resource {name!r} is not available; this runtime has: {', '.join(known)}"
            raise Refused(Code.INVALID_ARGUMENT, what)
        info = offer.find(cls)
        if info is None:
            known = [c.name for c in offer.classes]
            raise Refused(
                Code.INVALID_ARGUMENT, f"QoS resource {name!r} has no class {cls!r}; it has: {', '.join(known)}"
            )
        if held is not None and held.get(name) == cls:
            return
        if held is not None and not offer.mutable and held.get(name, offer.default) != cls:
            what = f"QoS resource {name!r} cannot be changed while a {level.value} runs"
            raise Refused(Code.FAILED_PRECONDITION, what)
        used = self.used[name, cls]
        if info.capacity and used >= info.capacity:
            what = f"class {cls!r} of QoS resource {name!r} is full: {used} of {info.capacity} in use"
            raise Refused(Code.RESOURCE_EXHAUSTED, what)

    def take(self, classes: Mapping[str, str]) -> None:
        self.used.update(classes.items())

    def release(self, classes: Mapping[str, str]) -> None:
        self.used.subtract(classes.items())

    def assigned(self, level: Level, asked: Mapping[str, str]) -> list[tuple[str, str]]:
        """(resource, class) of everything on offer at this level, implicit defaults included."""
        if not self.offers:
            return []
        return [(o.name, asked.get(o.name, o.default)) for o in self.offers.values() if o.level is level]
