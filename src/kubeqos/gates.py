"""Feature gates, with the proposals' names, Kubernetes' flag syntax and its error wording.

A component run alone has its alpha gates off; `kubeqos up` turns on what each profile needs (DESIGN ruling 14).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kubeqos.errors import ConfigurationError


class Stage(enum.StrEnum):
    ALPHA = "ALPHA"
    BETA = "BETA"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature: its stage, whether it is on unless said otherwise, and what it cannot do without."""

    name: str
    stage: Stage
    default: bool
    needs: tuple[str, ...] = ()
    about: str = ""


QOS_RESOURCES = "QOSResources"
STRICT_NAMES = "QOSResourcesStrictNames"
TRANSLATE_METADATA = "TranslateQoSPodMetadata"
QRM = "QoSResourceManager"
CCI = "CCIResourceManager"
MEMORY_QOS = "MemoryQoS"

GATES: Mapping[str, Gate] = {
    gate.name: gate
    for gate in (
        Gate(QOS_RESOURCES, Stage.ALPHA, False, about="KEP-3008: QoS-class resources"),
        Gate(STRICT_NAMES, Stage.ALPHA, False, (QOS_RESOURCES,), "KEP-3008: official names must be known"),
        Gate(TRANSLATE_METADATA, Stage.ALPHA, False, (QOS_RESOURCES,), "KEP-3008: classes from pod annotations"),
        Gate(QRM, Stage.ALPHA, False, about="KEP-3461: resource plugins"),
        Gate(CCI, Stage.ALPHA, False, about="KEP-3675: compute drivers and claims"),
        Gate(MEMORY_QOS, Stage.BETA, True, about="memory.min and memory.high from requests and limits"),
    )
}

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_GROUPS = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Which features are on. Immutable; `set` and `parse` make new ones."""

    states: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        return self.states[name]

    @classmethod
    def default(cls) -> FeatureGates:
        return cls({name: gate.default for name, gate in GATES.items()})

    @classmethod
    def parse(cls, text: str) -> FeatureGates:
        """Read the value of `--feature-gates`: `A=true,B=false`."""
        wanted: dict[str, bool] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise ConfigurationError(f"missing bool value for {name}")
            if value not in _TRUE and value not in _FALSE:
                raise ConfigurationError(
                    f'invalid value of {name}={value}, err: strconv.ParseBool: parsing "{value}": invalid syntax'
                )
            wanted[name] = value in _TRUE
        return cls.default().set(wanted)

    def set(self, wanted: Mapping[str, bool]) -> FeatureGates:
        """These gates with some changed; a named gate wins over its group."""
        states = dict(self.states)
        for name in wanted:
            if name not in GATES and name not in _GROUPS:
                raise ConfigurationError(
                    f"unrecognized feature gate: {name}", remedy="known gates: " + ", ".join(GATES)
                )
        for group, stage in _GROUPS.items():
            if group in wanted:
                states.update({name: wanted[group] for name, gate in GATES.items() if gate.stage is stage})
        states.update({name: on for name, on in wanted.items() if name in GATES})
        for name, gate in GATES.items():
            missing = [need for need in gate.needs if not states[need]]
            if states[name] and missing:
                raise ConfigurationError(
                    f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
                )
        return FeatureGates(states)
