"""The built-in providers but rdt: presets and blockio, which write cgroup files, limits and annotations, and names.

Each is a thin shell: the pure module next to it says which effects, `host.Host` performs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers import blockio, presets
from kubeqos.cri.providers.effects import Effect
from kubeqos.cri.providers.protocol import Advertisement, ClassProvider, ClassRefusal, Edit, Place, Subject
from kubeqos.rules.qos.podlevel import CPU, IO, MEMORY


class PresetProvider(ClassProvider):
    """Classes of one preset kind: ulimits, memory, cpu or network."""

    def __init__(
        self, offer: Advertisement, kind: presets.ClassFamily, classes: Mapping[str, presets.Preset], host: Host
    ) -> None:
        self.offer = offer
        self.kind = kind
        self.acts_in_place = any(setting.v1 or setting.v2 or setting.rlimit for setting in kind.settings)
        self.weighs = frozenset({kind.name} & {CPU, MEMORY})
        self.classes = classes
        self.host = host

    async def advertise(self) -> Sequence[Advertisement]:
        return (self.offer,)

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        return presets.check_preset(self.classes.get(class_name, {}), subject, class_name)

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        return presets.edit_for(self.kind, self.classes.get(class_name, {}), subject, self.host.version)

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        await self.move(subject, place, resource, "", class_name)

    async def move(self, subject: Subject, place: Place, resource: str, old: str, new: str) -> None:
        self.host.perform(place, self._effects(subject, old, new))

    async def drifted(self, subject: Subject, place: Place, resource: str, class_name: str) -> Sequence[str]:
        return self.host.drifted(place, self._effects(subject, "", class_name))

    def _effects(self, subject: Subject, old: str, new: str) -> Sequence[Effect]:
        before, after = self.classes.get(old, {}), self.classes.get(new, {})
        return presets.transition(self.kind, before, after, subject, self.host.version)


class NamedProvider(ClassProvider):
    """Classes that are only names."""

    acts_in_place = False

    def __init__(self, offer: Advertisement) -> None:
        self.offer = offer

    async def advertise(self) -> Sequence[Advertisement]:
        return (self.offer,)


class BlockIoProvider(ClassProvider):
    """Block I/O classes."""

    weighs = frozenset({IO})

    def __init__(self, offer: Advertisement, classes: Mapping[str, Sequence[blockio.DeviceRule]], host: Host) -> None:
        self.offer = offer
        self.classes = classes
        self.host = host

    async def advertise(self) -> Sequence[Advertisement]:
        return (self.offer,)

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        """A class that names devices of which none is here would promise nothing."""
        entries = [entry for entry in self.classes.get(class_name, ()) if entry.devices]
        for entry in entries:
            if not any(self.host.block_devices(pattern) for pattern in entry.devices):
                return ClassRefusal(
                    f"no block device matches {', '.join(entry.devices)} of blockio class {class_name!r}",
                    "attach the device or change the class's Devices",
                )
        return None

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        await self.move(subject, place, resource, "", class_name)

    async def move(self, subject: Subject, place: Place, resource: str, old: str, new: str) -> None:
        self.host.perform(place, self._effects(old, new))

    async def drifted(self, subject: Subject, place: Place, resource: str, class_name: str) -> Sequence[str]:
        return self.host.drifted(place, self._effects("", class_name))

    def _effects(self, old: str, new: str) -> Sequence[Effect]:
        before, after = (blockio.resolve(self.classes.get(c, ()), self.host.block_devices) for c in (old, new))
        return blockio.transition(before, after, self.host.version)
