"""QoS-class resources of a simulated runtime: the table on offer, who may enter a class, what a status shows.

The table is a `classes.yaml` as the relay reads it (`providers.config`); what a class would do on a real machine is not
done here. Rules of KEP-3008 ("CRI API") and DESIGN rulings 2, 3 and 5. Pure, but for the counts that `ClassBook` keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kubeqos.cri.enforcing.host import V2
from kubeqos.cri.errors import Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.config import NAMED, NodeClasses, VendorSpec, parse_classes
from kubeqos.cri.providers.protocol import SYSTEM_DEFAULT, Advertisement, Level
from kubeqos.cri.providers.retiring import all_held
from kubeqos.cri.runtime import class_of
from kubeqos.cri.simulated.state import Container
from kubeqos.errors import ConfigurationError
from kubeqos.rules.qos.classes import POD_QOS

Requests = Iterable[cri.ContainerQOSResource] | Iterable[cri.PodQOSResource]


def read_classes(text: str, source: str) -> tuple[Advertisement, ...]:
    """The table from its file."""
    return offered(parse_classes(text, source, V2))


def offered(classes: NodeClasses) -> tuple[Advertisement, ...]:
    """What a simulated machine with these classes advertises."""
    for name, resource in classes.resources.items():
        if isinstance(resource.spec, VendorSpec):
            raise ConfigurationError(
                f"resource {name!r}: a simulated machine has no vendor's provider to ask for its classes",
                where=resource.where,
                remedy=f"write its classes out: provider: {NAMED}, classes: […]",
            )
    return tuple(resource.offer for resource in classes.resources.values())


class ClassBook:
    """What is on offer now, and how many alive subjects have asked for each class."""

    def __init__(self, offers: Iterable[Advertisement] = ()) -> None:
        self.used: Counter[tuple[str, str]] = Counter()
        self.offer(offers)

    def offer(self, offers: Iterable[Advertisement]) -> None:
        """What is on offer from now on."""
        self.offers: dict[str, Advertisement] = {offer.name: offer for offer in offers}
        self.fixed_classes = {offer.name: offer.default for offer in self.offers.values() if not offer.mutable}
        """Implicit classes that a subject keeps once it runs; one table for all that start under it."""

    def replace(self, offers: Iterable[Advertisement]) -> None:
        """The same for another table: who has a class that it no longer names keeps it, as retired."""
        self.offer(all_held(offers, self.offers, lambda name, cls: self.used[name, cls]))

    def info(self) -> cri.ResourcesInfo:
        """The table as RuntimeStatus carries it."""
        out = cri.ResourcesInfo()
        for offer in self.offers.values():
            if offer.classes and not offer.current():
                continue  # nothing of it is left for anybody new
            into = out.pod_qos_resources if offer.level is Level.POD else out.container_qos_resources
            classes = [cri.QOSResourceClassInfo(name=c.name, capacity=c.capacity) for c in offer.current()]
            open_to = offer.by_handler() if offer.handlers else ()
            handlers = [cri.QOSResourceHandlerInfo(name=name, classes=given) for name, given in open_to]
            into.add(name=offer.name, mutable=offer.mutable, classes=classes, runtime_handlers=handlers)
        return out

    def requested(
        self,
        level: Level,
        requests: Requests,
        held: Mapping[str, str] | None = None,
        fixed_classes: Mapping[str, str] | None = None,
        *,
        handler: str = "",
        earlier: Iterable[Container] = (),
    ) -> dict[str, str]:
        """The classes asked for, all of them available, or a refusal. `held`: a subject that would move; `handler`: of
        its pod; `earlier`: instances of it that went before, whose class may be retired by now."""
        wanted: dict[str, str] = {}
        for request in requests:
            name, cls = request.name, class_of(request)
            if name == POD_QOS:
                continue  # informational; no request fails because of it (KEP-3008, Pass on Pod QoS class)
            if name in wanted:
                raise RuntimeRefused(Code.INVALID_ARGUMENT, f"{level.value} QoS resource {name!r} is requested twice")
            self._check_class(level, name, cls)
            if held is None or held.get(name) != cls:
                if self.offers[name].handlers and not self.offers[name].is_for(handler, cls):
                    raise RuntimeRefused(Code.INVALID_ARGUMENT, self.offers[name].withheld(handler, cls))
                if cls in self.offers[name].retired and all(one.classes.get(name) != cls for one in earlier):
                    self._refuse_retired(name, cls)
                if held is not None and self._assigned(self.offers[name], held, fixed_classes, handler) != cls:
                    self._check_mutable(level, name)
                self._check_room(name, cls)
            wanted[name] = cls
        return wanted

    def _check_class(self, level: Level, name: str, cls: str) -> None:
        offer = self.offers.get(name)
        if offer is None or offer.level is not level:
            known = sorted(o.name for o in self.offers.values() if o.level is level) or ["none"]
            what = f"{level.value} QoS resource {name!r} is not available; this runtime has: {', '.join(known)}"
            raise RuntimeRefused(Code.INVALID_ARGUMENT, what)
        if offer.find(cls) is None:
            known = [c.name for c in offer.classes]
            raise RuntimeRefused(
                Code.INVALID_ARGUMENT, f"QoS resource {name!r} has no class {cls!r}; it has: {', '.join(known)}"
            )

    def _refuse_retired(self, name: str, cls: str) -> None:
        rest = ", ".join(c.name for c in self.offers[name].current())
        what = f"class {cls!r} of QoS resource {name!r} is retired; there are: {rest}"
        raise RuntimeRefused(Code.INVALID_ARGUMENT, what)

    def _check_mutable(self, level: Level, name: str) -> None:
        if not self.offers[name].mutable:
            what = f"QoS resource {name!r} cannot be changed while a {level.value} runs"
            raise RuntimeRefused(Code.FAILED_PRECONDITION, what)

    def _check_room(self, name: str, cls: str) -> None:
        info, used = self.offers[name].find(cls), self.used[name, cls]
        if info is not None and info.capacity and used >= info.capacity:
            what = f"class {cls!r} of QoS resource {name!r} is full: {used} of {info.capacity} in use"
            raise RuntimeRefused(Code.RESOURCE_EXHAUSTED, what)

    def take(self, classes: Mapping[str, str]) -> None:
        self.used.update(classes.items())

    def release(self, classes: Mapping[str, str]) -> None:
        self.used.subtract(classes.items())

    def moved(self, classes: Mapping[str, str], moves: Mapping[str, str]) -> dict[str, str]:
        """The classes of a subject that leaves some of them for others; counted so from now on."""
        self.release(classes)
        now = {**classes, **moves}
        self.take(now)
        return now

    def assigned(
        self, level: Level, asked: Mapping[str, str], fixed_classes: Mapping[str, str] | None = None, handler: str = ""
    ) -> list[tuple[str, str]]:
        """(resource, class) of everything on offer at this level, implicit defaults included.

        `fixed_classes` are those of a subject that runs: what is immutable stays as it was when it started.
        """
        own = (offer for offer in self.offers.values() if offer.level is level)
        return [(offer.name, self._assigned(offer, asked, fixed_classes, handler)) for offer in own]

    def _assigned(
        self, offer: Advertisement, asked: Mapping[str, str], fixed_classes: Mapping[str, str] | None, handler: str
    ) -> str:
        if offer.name in asked:
            return asked[offer.name]
        if offer.mutable or fixed_classes is None:
            return offer.default_for(handler) if offer.handlers else offer.default
        kept = fixed_classes.get(offer.name, SYSTEM_DEFAULT)
        return kept if offer.find(kept) and (not offer.handlers or offer.is_for(handler, kept)) else SYSTEM_DEFAULT
