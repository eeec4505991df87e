"""The compute drivers of one node: who is registered, who is well, and the three calls with their deadlines.

`Drivers` is the handler for plugins of type `CCIDriver` (`plugins.registration.Watcher`). A call that fails because
the driver is away marks it sick at once. After one that is late it is asked how it is, and is sick if it does not
answer that either, so that a hung driver holds up one admission and not the next; `watch` probes until it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from kubeqos.cci.metrics import Metrics
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.logs import logger
from kubeqos.model import names
from kubeqos.plugins.distrust import RefusedAnswers
from kubeqos.plugins.health import examine
from kubeqos.plugins.registration import Plugin
from kubeqos.plugins.sockets import PluginCallError, call, dial
from kubeqos.topology.claims.choosing import BY_ATTRIBUTES, WAYS

PLUGIN_TYPE = "CCIDriver"
VERSIONS = ("v1alpha1",)
"""What this manager speaks, newest first; the newest that both sides know is used."""

SERVICE = "v1alpha1.CCIDriver"
METHODS: tuple[tuple[str, type[Any], type[Any]], ...] = (
    ("CCIAdmit", pb.AdmitRequest, pb.AdmitResponse),
    ("CCIAddContainerResource", pb.AddResourceRequest, pb.AddResourceResponse),
    ("CCIRemoveContainerResource", pb.RemoveResourceRequest, pb.RemoveResourceResponse),
)
WAY_KEY = "kubeqos-cci-way"
"""Under which a driver says how it chooses, in the metadata that follow its answer to a health check."""
_ANSWERS = {name: answer for name, _, answer in METHODS}


log = logger("kubeqos.cci")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a driver may take, in seconds, and how often its health is looked at."""

    call: float = 2.0
    health: float = 1.0
    probe_every: float = 5.0
    probe_sick_every: float = 0.5


@dataclass
class Driver:
    """One registered driver. `sick` says why it is not to be called; empty when it is well."""

    plugin: Plugin
    version: str
    channel: grpc.aio.Channel
    sick: str = ""
    way: str = BY_ATTRIBUTES
    """How it chooses, as far as the scheduler can know."""

    @property
    def name(self) -> str:
        return self.plugin.name

    def hear(self, said: Mapping[str, object]) -> None:
        """What it says of itself. A way that is not known here tells nobody anything."""
        way = said.get(WAY_KEY, BY_ATTRIBUTES)
        self.way = way if isinstance(way, str) and way in WAYS else BY_ATTRIBUTES


Listener = Callable[[Driver, bool, str], None]
"""It cannot wait: news come in the middle of calls, and whoever makes one may keep others from calling meanwhile."""


def _nobody(_driver: Driver, _well: bool, _message: str) -> None:
    """Used until somebody listens."""


@dataclass
class Drivers:
    """The registered drivers by name, and the handler that lets them in."""

    metrics: Metrics
    several: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)
    listener: Listener = _nobody
    """Told when a driver comes, recovers, falls ill or goes."""
    table: dict[str, Driver] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Drivers that were here and have not come back, nor another in their place."""
    tell_refused: Callable[[str, str], None] = lambda _driver, _what: None
    refused: RefusedAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.refused = RefusedAnswers(self.metrics.unbelieved, self.tell_refused)

    def validate(self, plugin: Plugin) -> str | None:
        """Why this driver cannot be taken, or None."""
        problems = names.dns_subdomain(plugin.name)
        if problems:
            return f"{plugin.name!r} is not a driver's name: {problems[0]}"
        if negotiate(plugin.versions) is None:
            theirs = ", ".join(plugin.versions) or "none"
            return f"driver {plugin.name} speaks versions {theirs}, this node speaks {', '.join(VERSIONS)}"
        others = sorted(name for name in self.table if name != plugin.name)
        if others and not self.several:
            return (
                f"this node runs one compute driver and {others[0]} is registered; "
                f"stop it, or allow several with cciSeveralDrivers"
            )
        known = self.table.get(plugin.name)
        if known and not known.sick and known.plugin.socket != plugin.socket:
            return f"driver {plugin.name} is already registered from {known.plugin.socket}"
        return None

    async def register(self, plugin: Plugin) -> str | None:
        """Connect, see that it is well, and use it from now on."""
        driver = Driver(plugin, negotiate(plugin.versions) or VERSIONS[-1], dial(plugin.endpoint))
        problem = await examine(driver.channel, self.deadlines.health, driver.hear)
        # Another driver may have come meanwhile.
        refusal = f"driver {plugin.name} is not healthy: {problem}" if problem else self.validate(plugin)
        if refusal:
            await driver.channel.close(None)
            return refusal
        old = self.table.get(plugin.name)
        self.refused.forget(plugin.name)
        self.table[plugin.name] = driver
        self.gone = self.gone - {plugin.name} if self.several else set()
        if old:
            await old.channel.close(None)
        self._tell(driver, True, f"driver registered with version {driver.version}")
        return None

    async def deregister(self, plugin: Plugin) -> None:
        driver = self.table.get(plugin.name)
        if driver is None or driver.plugin != plugin:
            return
        del self.table[plugin.name]
        self.gone.add(plugin.name)
        await driver.channel.close(None)
        self._tell(driver, False, "driver is gone")
        self.metrics.forget(plugin.name)

    def condition(self) -> tuple[str, str, str] | None:
        """How the drivers are, as a condition of the Node: status, reason, message; None without any."""
        if not self.table:
            return None
        sick = [f"driver {one.name} is unhealthy: {one.sick}" for one in self.table.values() if one.sick]
        if sick:
            return "False", "ComputeDriverNotReady", "; ".join(sorted(sick))
        wrong = [f"driver {name} is in the wrong: {what}" for name in self.table for what in self.refused.of(name)]
        if wrong:
            return "False", "ComputeDriverAnswerRefused", "; ".join(wrong)
        return "True", "ComputeDriversReady", f"drivers answer: {', '.join(sorted(self.table))}"

    def health(self, needed: Iterable[str] = ()) -> dict[str, str]:
        """What is wrong with each driver, empty where nothing is; with those that are gone, and all `needed`."""
        away = dict.fromkeys(sorted({*self.gone, *needed} - self.table.keys()), "driver is gone")
        return {name: one.sick for name, one in self.table.items()} | away

    def ways(self) -> tuple[tuple[str, str], ...]:
        """Drivers that look at more than attributes, and how they choose."""
        return tuple(sorted((one.name, one.way) for one in self.table.values() if one.way != BY_ATTRIBUTES))

    def choose(self, name: str) -> Driver | str:
        """The driver that serves a claim, or why there is none. Without a name it is the node's only one."""
        if not name:
            if len(self.table) > 1:
                return f"this node runs several compute drivers ({', '.join(sorted(self.table))}); use a claim"
            name = next(iter(self.table), "")
        driver = self.table.get(name)
        if driver is None:
            return (
                f"compute driver {name} is not registered on this node" if name else "no compute driver is registered"
            )
        return f"compute driver {name} is unhealthy: {driver.sick}" if driver.sick else driver

    async def invoke(self, driver: Driver, method: str, request: Any) -> Any:
        """One of the three calls. A `RemoteError` means that there is no answer; the driver is then sick if away."""
        started = time.perf_counter()
        try:
            return await call(
                driver.channel, f"/{SERVICE}/{method}", request, _ANSWERS[method], seconds=self.deadlines.call
            )
        except PluginCallError as error:
            if error.late:
                await self.probe(driver)
            elif error.unreachable:
                self._fell_ill(driver, error.what)
            raise
        finally:
            self.metrics.called(driver.name, method, time.perf_counter() - started)

    async def watch(self) -> None:
        """Look after the drivers' health until cancelled."""
        last: dict[str, float] = {}
        while True:
            await asyncio.sleep(self.deadlines.probe_sick_every)
            now = time.monotonic()
            due = [
                driver
                for name, driver in self.table.items()
                if driver.sick or now - last.get(name, 0.0) >= self.deadlines.probe_every
            ]
            last.update({driver.name: now for driver in due})
            await asyncio.gather(*(self.probe(driver) for driver in due))

    async def probe(self, driver: Driver) -> None:
        """Ask one driver how it is. A sick one is dialled anew: its old connection may wait for a dead peer."""
        channel = dial(driver.plugin.endpoint) if driver.sick else driver.channel
        problem = await examine(channel, self.deadlines.health, driver.hear)
        current = self.table.get(driver.name) is driver
        if channel is not driver.channel:
            unused = channel if problem or not current else driver.channel
            if unused is driver.channel:
                driver.channel = channel
            await unused.close(None)
        if current and problem:
            self._fell_ill(driver, problem)
        elif current and driver.sick:
            driver.sick = ""
            self._tell(driver, True, "driver is healthy again")

    async def close(self) -> None:
        for driver in self.table.values():
            await driver.channel.close(None)
        self.table.clear()

    def _fell_ill(self, driver: Driver, problem: str) -> None:
        was, driver.sick = driver.sick, problem
        if not was:
            self._tell(driver, False, problem)

    def _tell(self, driver: Driver, well: bool, message: str) -> None:
        self.metrics.healthy(driver.name, well)
        log.info("compute driver", driver=driver.name, healthy=well, message=message)
        self.listener(driver, well, message)


def negotiate(theirs: tuple[str, ...]) -> str | None:
    """The newest version that both sides speak."""
    return next((version for version in VERSIONS if version in theirs), None)
