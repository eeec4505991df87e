"""Follows a node's file of classes and the providers behind it: what changes there is put in force while pods run.

Looked at by the relay and by the agents of stock nodes, each in its own turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from kubeqos.cri.classes.keeper import ClassKeeper
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.retiring import Used
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.plugins.sockets import stamp

Reader = Callable[[Catalog | None, Used], Awaitable[Catalog]]
"""Reads the file: what was in force before, and who has which class of it."""
log = logger("kubeqos.classes")


class ClassFile:
    """The file behind one keeper of classes."""

    def __init__(self, path: Path, read: Reader, keeper: ClassKeeper) -> None:
        self._path = path
        self._read = read
        self._keeper = keeper
        self._seen = stamp(path)

    async def look(self, *, again: bool = False) -> bool:
        """Take on what has changed (or, with `again`, whatever is there); whether other classes are in force now.

        A file that cannot be taken on is told of, and everything stays as it was.
        """
        before = self._keeper.catalog
        try:
            await self._follow_providers()
            # A ConfigMap volume replaces the file, so what stands under its name is compared, not its content.
            seen = stamp(self._path)
            if again or seen != self._seen:
                self._seen = seen
                await self.reload()
        except KubeqosError as error:
            log.error("configuration unchanged", error=" ".join(error.lines()))
        return self._keeper.catalog is not before

    async def reload(self) -> None:
        """Take on the file as it is now; raises and changes nothing when it cannot be."""
        known = self._keeper.catalog
        catalog = await self._read(known, self._keeper.holders.used)
        await self._keeper.take_on(catalog)
        log.info("configuration taken on", resources=sorted(catalog.offers))
        self._tell_kept(known, catalog)
        tell_missing(catalog)

    async def _follow_providers(self) -> None:
        known = self._keeper.catalog
        if known.absent or known.stale:
            catalog = await self._read(known, self._keeper.holders.used)
            if (catalog.absent.keys(), catalog.offers) != (known.absent.keys(), known.offers):
                await self._keeper.take_on(catalog)
                _tell_of_providers(known, catalog)

    def _tell_kept(self, before: Catalog, now: Catalog) -> None:
        """Say which classes stay although the file no longer gives them to anybody, or not to so many."""
        for name, offer in now.offers.items():
            known, used = before.offers.get(name), self._keeper.holders.used
            for one in offer.classes:
                in_use = used(name, one.name)
                if in_use and one.name in offer.retired and (known is None or one.name not in known.retired):
                    log.warning("a retired class is still in use", resource=name, class_name=one.name, in_use=in_use)
                elif one.capacity and in_use > one.capacity:
                    over = f"over by {in_use - one.capacity}"
                    log.warning("a class is in use beyond its capacity", resource=name, class_name=one.name, use=over)


def tell_missing(catalog: Catalog) -> None:
    """Say which entries of the file offer nothing here, and why."""
    for name, reason in catalog.absent.items():
        log.warning("a class provider is away", provider=name, error=reason)
    for name, reason in catalog.unreachable.items():
        log.warning("a resource is not offered", resource=name, reason=reason)


def _tell_of_providers(before: Catalog, now: Catalog) -> None:
    """Say which providers went and came, and what that means for classes."""
    for entry in sorted(now.absent.keys() - before.absent.keys()):
        lost = sorted(name for name, source in before.sources.items() if source == entry)
        log.warning("a class provider has gone", provider=entry, resources=lost, error=now.absent[entry])
    for entry in sorted(before.absent.keys() - now.absent.keys()):
        found = sorted(name for name, source in now.sources.items() if source == entry)
        log.info("a class provider is back", provider=entry, resources=found)
