"""The scheduler's configuration file: profiles by scheduler name and the weights of their scores.

    apiVersion: kubeqos.io/v1alpha1
    kind: SchedulerConfiguration
    profiles:
    - schedulerName: default-scheduler
      weights: {resources: 1, balance: 1, classes: 2}
    - schedulerName: bin-packing
      weights: {mostAllocated: true}

Strict: an unknown key is an error that names the line and the nearest known one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kubeqos.document import Doc, check_kind, read_document
from kubeqos.placement.score import Weights
from kubeqos.scheduler.core import Profile

API_VERSION, KIND = "kubeqos.io/v1alpha1", "SchedulerConfiguration"
WEIGHTS = {
    field.name.split("_")[0] + "".join(part.title() for part in field.name.split("_")[1:]): field.name
    for field in dataclasses.fields(Weights)
}


def load(path: Path) -> tuple[Profile, ...]:
    """Read the file, or say what is wrong with it and where."""
    return parse(read_document(path, "scheduler configuration"))


def parse(doc: Doc) -> tuple[Profile, ...]:
    """The profiles of a configuration document."""
    fields = doc.fields(("apiVersion", "kind", "profiles"))
    check_kind(doc, fields, API_VERSION, KIND)
    return read_profiles(fields)


def read_profiles(fields: dict[str, Doc]) -> tuple[Profile, ...]:
    """The profiles in a document's members; the default one where there are none."""
    profiles: dict[str, Profile] = {}
    for each in fields["profiles"].elements() if "profiles" in fields else ():
        profile = _profile(each)
        if profile.scheduler_name in profiles:
            each.fail(f"two profiles are named {profile.scheduler_name!r}", "name each profile once")
        profiles[profile.scheduler_name] = profile
    return tuple(profiles.values()) or (Profile(),)


def _profile(doc: Doc) -> Profile:
    fields = doc.fields(("schedulerName", "weights"))
    name = fields["schedulerName"].text() if "schedulerName" in fields else Profile().scheduler_name
    if not name:
        fields["schedulerName"].fail("must be a name")
    values: dict[str, Any] = {}
    for key, child in fields["weights"].fields(WEIGHTS).items() if "weights" in fields else ():
        values[WEIGHTS[key]] = child.boolean() if key == "mostAllocated" else child.integer(0, 100)
    return Profile(name, Weights(**values))
