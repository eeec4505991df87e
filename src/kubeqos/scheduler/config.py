"""The scheduler's configuration file: profiles by scheduler name and the weights of their scores.

    apiVersion: kubeqos.io/v1alpha1
    kind: SchedulerConfiguration
    profiles:
    - schedulerName: default-scheduler
      weights: {resources: 1, balance: 1, classes: 2}
    - schedulerName: bin-packing
      weights: {mostAllocated: true}

Strict: an unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kubeqos.codec import YamlError, decode_yaml
from kubeqos.errors import ConfigurationError
from kubeqos.placement.score import Weights
from kubeqos.scheduler.core import Profile

API_VERSION, KIND = "kubeqos.io/v1alpha1", "SchedulerConfiguration"
_WEIGHTS = {
    field.name.split("_")[0] + "".join(part.title() for part in field.name.split("_")[1:]): field.name
    for field in dataclasses.fields(Weights)
}


def load(path: Path) -> tuple[Profile, ...]:
    """Read the file, or say what is wrong with it and where."""
    try:
        raw = decode_yaml(path.read_text())
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the scheduler configuration: {error.strerror}", where=str(path)
        ) from error
    except YamlError as error:
        raise ConfigurationError(f"scheduler configuration: {error}", where=str(path)) from error
    return parse(raw, str(path))


def parse(raw: Any, where: str) -> tuple[Profile, ...]:
    """The profiles of a configuration document."""
    _only_known(raw, ("apiVersion", "kind", "profiles"), where)
    if raw.get("apiVersion") != API_VERSION or raw.get("kind") != KIND:
        raise ConfigurationError(
            "not a scheduler configuration", where=where, remedy=f"set apiVersion: {API_VERSION} and kind: {KIND}"
        )
    profiles = tuple(
        _profile(each, f"{where}: profiles[{index}]") for index, each in enumerate(raw.get("profiles") or ())
    )
    names = [profile.scheduler_name for profile in profiles]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two profiles are named {name!r}", where=where, remedy="name each profile once")
    return profiles or (Profile(),)


def _profile(raw: Any, where: str) -> Profile:
    _only_known(raw, ("schedulerName", "weights"), where)
    name = raw.get("schedulerName", Profile().scheduler_name)
    if not isinstance(name, str) or not name:
        raise ConfigurationError("schedulerName must be a name", where=where)
    given = raw.get("weights") or {}
    _only_known(given, _WEIGHTS, f"{where}.weights")
    values: dict[str, Any] = {}
    for key, value in given.items():
        field = _WEIGHTS[key]
        wanted = bool if field == "most_allocated" else int
        if type(value) is not wanted or (wanted is int and not 0 <= value <= 100):
            expected = "true or false" if wanted is bool else "a whole number from 0 to 100"
            raise ConfigurationError(f"{key} must be {expected}, not {value!r}", where=f"{where}.weights")
        values[field] = value
    return Profile(name, Weights(**values))


def _only_known(raw: Any, known: Collection[str], where: str) -> None:
    if not isinstance(raw, Mapping):
        raise ConfigurationError("expected a map of settings", where=where)
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "known settings: " + ", ".join(known)
            raise ConfigurationError(f"unknown setting {key!r}", where=where, remedy=remedy)
