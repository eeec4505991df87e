"""Several managers' grants for one container as one; what two of them set differently is a conflict. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubeqos.model.cpuset import NO_CPUS
from kubeqos.plugins.managers import NOTHING, ContainerKey, ContainerRef, DeviceNode, Grant, Mount


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two managers want different values."""

    what: str
    first: tuple[str, str]
    second: tuple[str, str]

    def __str__(self) -> str:
        (one, value), (other, another) = self.first, self.second
        return f"{self.what}: manager {one} wants {value!r}, manager {other} wants {another!r}"


def beside(grant: Grant) -> Grant:
    """What an ephemeral container has of the grant of the one that it runs beside: its place, and nothing else.

    It moves with it, so nobody's own CPUs are ever shared with somebody who debugs another pod.
    """
    place = {key: value for key, value in grant.properties.items() if key in ("cpuset_cpus", "cpuset_mems")}
    return Grant(properties=place) if place else NOTHING


def all_beside(
    companions: Mapping[ContainerKey, ContainerRef], grants: Mapping[ContainerKey, Grant]
) -> dict[ContainerKey, Grant]:
    """The same for everybody who runs beside another."""
    near = {key: beside(grants.get((one.pod_uid, one.name), NOTHING)) for key, one in companions.items()}
    return {key: grant for key, grant in near.items() if grant is not NOTHING}


def combine(grants: Iterable[tuple[str, Grant]]) -> Grant | Conflict:
    """The union of all grants, by manager name."""
    tables: dict[str, dict[str, tuple[str, str | int]]] = {
        name: {} for name in ("properties", "unified", "envs", "annotations")
    }
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceNode] = {}
    because = []
    exclusive, unthrottled = NO_CPUS, False
    for manager, grant in grants:
        if grant is NOTHING:
            continue
        for name, table in tables.items():
            for key, value in getattr(grant, name).items():
                owner, known = table.setdefault(key, (manager, value))
                if known != value:
                    return Conflict(key, (owner, str(known)), (manager, str(value)))
        mounts |= {mount.container_path: mount for mount in grant.mounts}
        devices |= {device.container_path: device for device in grant.devices}
        exclusive |= grant.exclusive
        unthrottled |= grant.unthrottled
        if grant.because:
            because.append(grant.because)
    plain = {name: {key: value for key, (_, value) in table.items()} for name, table in tables.items()}
    return Grant(
        properties=plain["properties"],
        unified={key: str(value) for key, value in plain["unified"].items()},
        envs={key: str(value) for key, value in plain["envs"].items()},
        annotations={key: str(value) for key, value in plain["annotations"].items()},
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        because="; ".join(because),
        exclusive=exclusive,
        unthrottled=unthrottled,
    )
