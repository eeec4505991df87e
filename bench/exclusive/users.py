"""Who uses the nodes: pods that own CPUs by role, claim, annotation or the static CPU manager, and those that share.

Each pod says in a label what it was promised, for the watcher: its owner knows that without knowing who keeps it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.cri.images import BUSYBOX_IMAGE

from bench.exclusive.house import DRIVER
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.informer import Informer
from kubeqos.client.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLASSES,
)
from kubeqos.codec import encode_json

NAMESPACE = "day"
OWNS = "cpuwatch/owns."
RUNNING, OVER = b'"phase":"Running"', (b'"phase":"Failed"', b'"phase":"Succeeded"')
PATIENCE_SECONDS = 20.0
"""A pod may have to wait while nobody can serve it; then it goes, and another comes."""
GONE_SECONDS = 90.0
OVERTIME_SECONDS = 180.0
LIVES, SHORT_LIVES = (0.2, 1.0, 3.0, 8.0, 20.0), (0.1, 0.2, 0.5, 1.0, 4.0)
"""How long pods run, and how long where room is short or while fewer have started than were to have by then."""

SLEEP = "trap 'exit 0' TERM; sleep 3600 & wait"
Kind = Callable[[random.Random], dict[str, Any]]

CLAIMS: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "two": ({"cores": ["2"], "cpu attributes": [["EXCLUSIVE"]]}, 2, "2.full"),
    "four": ({"cores": ["4"], "cpu attributes": [["EXCLUSIVE"]]}, 4, "4.full"),
    "three": ({"cores": ["3"], "cpu attributes": [["EXCLUSIVE"]]}, 3, "3.full"),
    "denied": ({"cores": ["3"], "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-DENIED"]]}, 3, "3.full"),
    "whole": ({"cores": ["4"], "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-REQUIRED"]]}, 4, "4.full"),
    "mixed": ({"cores": ["5", "4"], "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-PREFERRED"], ["SHARED"]]}, 9, "5"),
    "shared": ({"cores": ["3"], "cpu attributes": [["SHARED"]]}, 3, ""),
    "one": ({"cores": ["1"], "cpu attributes": [["EXCLUSIVE"]]}, 1, "1.full"),
}
"""Parameters, cores in sum, and what is promised of them."""


@dataclass
class Tally:
    """What became of the pods."""

    created: int = 0
    started: int = 0
    waited_in_vain: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)
    owned_on: set[str] = field(default_factory=set)
    """Nodes on which a pod with a promise has run."""
    wrong: list[str] = field(default_factory=list)


async def prepare(api: HttpApi) -> None:
    """The namespace, and what claims refer to."""
    await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await api.create(RESOURCE_CLASSES, {"metadata": {"name": "cores"}, "driverName": DRIVER})
    for name, (wish, _, _) in CLAIMS.items():
        body = {"metadata": {"name": name}, "data": {"config.json": encode_json(wish).decode()}}
        await api.create(CONFIG_MAPS, body, NAMESPACE)
        claim = {"resourceClassName": "cores", "parametersRef": {"kind": "ConfigMap", "name": name}}
        await api.create(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": claim}}, NAMESPACE)


# ---- Pods


def pod(node: str, *containers: dict[str, Any], promises: Mapping[str, str], **more: Any) -> dict[str, Any]:
    labels = {OWNS + name: promise for name, promise in promises.items() if promise}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": list(containers)}
    metadata = {"labels": labels, "annotations": more.pop("annotations", {})}
    return {"metadata": metadata, "spec": {**spec, "terminationGracePeriodSeconds": 1, **more}}


def node_of(made: dict[str, Any]) -> str:
    return str(made["spec"]["nodeSelector"]["kubernetes.io/hostname"])


def promises_in(made: dict[str, Any]) -> list[str]:
    """What the watcher is told of a pod."""
    return [label for label in made["metadata"]["labels"] if label.startswith(OWNS)]


def container(cpu: int = 0, name: str = "main", **more: Any) -> dict[str, Any]:
    given = {"cpu": str(cpu), "memory": "64Mi"}
    return {"name": name, "image": "app:1", "resources": {"requests": given, "limits": given, **more} if cpu else {}}


def by_role(role: str, cpu: int, promise: str = "", node: str = "qrm") -> dict[str, Any]:
    marks = {"kubernetes.io/pod-role": role} if role else {}
    return pod(node, container(cpu), promises={"main": promise}, annotations=marks)


def by_claim(name: str, node: str = "cci") -> dict[str, Any]:
    _, cpu, promise = CLAIMS[name]
    source = [{"name": "compute", "source": {"resourceClaimTemplateName": name}}]
    return pod(node, container(cpu, claims=[{"name": "compute"}]), promises={"main": promise}, resourceClaims=source)


def two_claims() -> dict[str, Any]:
    """A pod of two owners, with a third container that shares."""
    source = [{"name": name, "source": {"resourceClaimTemplateName": name}} for name in ("two", "three")]
    owners = [container(CLAIMS[name][1], name, claims=[{"name": name}]) for name in ("two", "three")]
    promises = {name: CLAIMS[name][2] for name in ("two", "three")}
    return pod("cci", *owners, container(0, "beside"), promises=promises, resourceClaims=source)


def by_policy(cpu: int = 2, node: str = "cci") -> dict[str, Any]:
    marks = {"cci.resources.alpha.kubernetes.io/container.main": "cci-exclusive"}
    return pod(node, container(cpu), promises={"main": f"{cpu}.full"}, annotations=marks)


def small(name: str) -> Kind:
    """A pod without requests."""
    return lambda _: pod(name, container(), promises={})


def real(kind: Kind) -> Kind:
    """The same with an image that there is: processes that run, and end when they are told to."""
    runs = {"image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", SLEEP]}

    def made(rng: random.Random) -> dict[str, Any]:
        found = kind(rng)
        for one in found["spec"]["containers"]:
            one |= runs
        found["spec"]["hostNetwork"] = True
        return found

    return made


KINDS: tuple[Kind, ...] = (
    lambda _: by_role("web", 2),
    lambda _: by_role("etl", 1),
    lambda _: by_role("", 1),
    lambda rng: by_role("pinned", *rng.choice(((2, "2.full"), (4, "4.full")))),
    lambda rng: by_role("pinned", *rng.choice(((2, "2.full"), (6, "6.full")))),
    lambda rng: by_role("storage", *rng.choice(((3, "3"), (5, "5")))),
    lambda rng: by_claim(rng.choice(("two", "four", "whole"))),
    lambda rng: by_claim(rng.choice(("three", "denied", "mixed"))),
    lambda rng: by_claim(rng.choice(tuple(CLAIMS))),
    lambda _: two_claims(),
    lambda _: by_policy(),
    small("cci"),
    lambda rng: pod("static", container(cpu := rng.choice((1, 2))), promises={"main": str(cpu)}),
    lambda _: pod("static", container(1), promises={"main": "1"}),
    small("static"),
)
"""What users ask for, each kind by several users."""
REAL_KINDS: tuple[Kind, ...] = tuple(
    real(kind)
    for kind in (
        lambda _: by_role("pinned", 1, "1", "real-qrm"),
        small("real-qrm"),
        small("real-qrm"),
        lambda rng: by_claim("one", "real-cci") if rng.random() < 0.5 else by_policy(1, "real-cci"),
        small("real-cci"),
        small("real-cci"),
    )
)
"""And what they ask of two real CPUs, each by one user: one pod may own one of them; the others have the other then."""


class Users:
    """Everybody who comes and goes."""

    def __init__(self, api: HttpApi, kinds: Sequence[Kind], seed: int, most: int, ends: float, starts: int = 0) -> None:
        """`starts`: how many pods are to start until the day `ends`."""
        self.kinds = kinds
        self.promised = {node_of(one) for kind in kinds if promises_in(one := kind(random.Random(seed)))}
        self.api, self.seed, self.most, self.ends, self.starts = api, seed, most, ends, starts
        self.began = time.monotonic()
        self.tally = Tally()
        self.pods = Informer(api, PODS, namespace=NAMESPACE)

    def going_on(self) -> bool:
        """Until the end of the day; on a busy machine longer, until somebody has owned something on every node."""
        over = 0.0 if self.promised <= self.tally.owned_on else OVERTIME_SECONDS
        return time.monotonic() < self.ends + over and self.tally.started < self.most

    def is_behind(self) -> bool:
        """Whether fewer pods have started than were to have by now."""
        passed = (time.monotonic() - self.began) / max(self.ends - self.began, 1.0)
        return self.tally.started < self.starts * min(passed, 1.0)

    async def visitor(self, number: int) -> None:
        """One pod after the other, of one kind."""
        rng = random.Random(f"{self.seed}/{number}")
        kind, turn = self.kinds[number], 0
        while self.going_on():
            turn += 1
            name = f"u{number}-{turn}"
            lives = SHORT_LIVES if kind in REAL_KINDS or self.is_behind() else LIVES
            try:
                await self._one(name, kind(rng), rng.choice(lives))
            except (ApiError, Unreachable) as error:
                self.tally.wrong.append(f"{name}: {' '.join(error.lines())}")
                return
            await asyncio.sleep(rng.uniform(0, 0.1 if self.is_behind() else 0.5))

    async def _one(self, name: str, made: dict[str, Any], lives: float) -> None:
        made["metadata"]["name"] = name
        await self.api.create(PODS, made, NAMESPACE)
        self.tally.created += 1
        key = f"{NAMESPACE}/{name}"
        if await self._until(lambda: self._is(key, RUNNING, *OVER)):
            if self._is(key, RUNNING):
                self.tally.started += 1
                if promises_in(made):
                    self.tally.owned_on.add(node_of(made))
                await asyncio.sleep(lives)
            else:
                self._count_refusal(key)
        else:
            self.tally.waited_in_vain += 1
        await self.api.delete(PODS, name, NAMESPACE)
        if not await self._until(lambda: self.pods.get(key) is None, GONE_SECONDS):
            self.tally.wrong.append(f"{name} was deleted and is still there")

    def _is(self, key: str, *words: bytes) -> bool:
        known = self.pods.get(key) or b""
        return any(word in known for word in words)

    def _count_refusal(self, key: str) -> None:
        known = self.pods.get(key) or b""
        _, _, rest = known.partition(b'"reason":"')
        reason = rest.partition(b'"')[0].decode() or "no reason"
        self.tally.refused[reason] = self.tally.refused.get(reason, 0) + 1

    async def _until(self, question: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
        ends = time.monotonic() + seconds
        while not question():
            if time.monotonic() > ends:
                return False
            await asyncio.sleep(0.05)
        return True
