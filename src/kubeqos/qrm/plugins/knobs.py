"""Cgroup properties by role: a table, and the plugin that applies it (KEP-3461: "set and update those parameters").

A key with a dot is a cgroup v2 file (`io.weight`, `memory.oom.group`); any other is a property of CRI's
LinuxContainerResources, by its Go or its proto name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeqos.codec import encode_json
from kubeqos.errors import ConfigurationError
from kubeqos.qrm.answers import PROPERTIES, UNIFIED
from kubeqos.qrm.messages import Allocation
from kubeqos.qrm.plugins.roles import Asking
from kubeqos.qrm.sdk.values import Request

Knobs = Mapping[str, str | int]
_GO_NAMES = {field.name: name for name, field in PROPERTIES.items()}


class KnobConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Knobs by role; `default` is for pods whose role is not listed."""

    roles: dict[str, dict[str, str | int]] = {}
    default: dict[str, str | int] = {}


def check_knobs(where: str, knobs: Knobs) -> None:
    """Refuse a table that names a property that does not exist."""
    for key in knobs:
        if ("." not in key and key not in PROPERTIES and key not in _GO_NAMES) or key.lower() == UNIFIED:
            known = ", ".join(sorted(set(PROPERTIES) - {"Unified"}))
            raise ConfigurationError(
                f"{where}: there is no property {key}",
                remedy=f"use a cgroup v2 file such as io.weight, or one of {known}",
            )


def knob_allocations(name: str, knobs: Knobs) -> dict[str, Allocation]:
    """A table of knobs as allocations: the cgroup files together, each property by itself."""
    files = {key: str(value) for key, value in knobs.items() if "." in key}
    given = {name: Allocation(property="Unified", result=encode_json(files).decode())} if files else {}
    for key, value in knobs.items():
        if "." not in key:
            go_name = _GO_NAMES.get(key, key)
            given[f"{name}/{go_name}"] = Allocation(property=go_name, result=str(value))
    return given


class KnobPlugin:
    """Gives every container the knobs of its pod's role."""

    resource = "knob"

    def __init__(self, config: KnobConfig) -> None:
        for role, knobs in {**config.roles, "default": config.default}.items():
            check_knobs(f"knobs of {role}", knobs)
        self.config = config
        self.implicit = tuple(config.roles) if config.roles and not config.default else True

    def allocate(self, request: Request) -> dict[str, Allocation]:
        return knob_allocations(self.resource, self.knobs_of(request))

    def knobs_of(self, request: Asking) -> Knobs:
        return self.config.roles.get(request.role, self.config.default)
