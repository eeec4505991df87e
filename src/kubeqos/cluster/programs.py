"""Which plugins and drivers run beside a node of `kubeqos up`: the built-in ones of its profile, or those of its owner.

    plugins:                                  # of a node of profile qrm, in place of cpu, memory and nic
    - cpu                                     # a built-in one: cpu, memory, nic or knob
    - {name: memory, config: memory.yaml}     # with a configuration file beside the cluster's
    - {name: gpu, command: [python, gpu.py]}  # your own, started beside the cluster's file
    drivers:                                  # of a node of profile cci, in place of reference: reference, power, hpc
    - {name: mine, command: [./driver, --registry, "{registry}"]}

Read by `clusterfile`, run by `pluginprocesses`. Pure but for looking whether a file is there.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeqos.document import Doc
from kubeqos.errors import ConfigurationError
from kubeqos.model import names

PLUGIN, DRIVER = "plugin", "driver"
KEYS: Mapping[str, tuple[str, str]] = {"plugins": (PLUGIN, "qrm"), "drivers": (DRIVER, "cci")}
"""The keys of a node, what they list, and the profile that uses it."""
BUILT_IN: Mapping[str, Sequence[str]] = {
    PLUGIN: ("cpu", "memory", "nic", "knob"),
    DRIVER: ("reference", "power", "hpc"),
}
PROGRAM_KEYS: Mapping[str, str] = {
    "name": "Of a built-in one, or what to call yours.",
    "config": "Configuration file of a built-in plugin.",
    "command": "Your own: a program and its words.",
}
WAITED_FOR = ("cpu", "memory")
"""Built-in plugins without which pods would run unpinned, so that they wait for them."""


@dataclass(frozen=True, slots=True)
class Program:
    """One plugin or driver: built-in by its name, or a command."""

    kind: str
    name: str
    command: tuple[str, ...] = ()
    config: Path | None = None
    folder: Path | None = None
    """Where the command is started."""

    @property
    def label(self) -> str:
        return f"{self.kind}-{self.name}"

    def words(self, registry: Path, machine: Path, state: Path) -> list[str]:
        """The command of its owner. The plugin folder is its last word, unless the command says where it goes."""
        places = {"{registry}": str(registry), "{machine}": str(machine), "{state}": str(state)}
        filled = list(self.command)
        for mark, place in places.items():
            filled = [word.replace(mark, place) for word in filled]
        return filled if any("{registry}" in word for word in self.command) else [*filled, str(registry)]


_DEFAULTS: Mapping[str, tuple[Program, ...]] = {
    "qrm": tuple(Program(PLUGIN, name) for name in ("cpu", "memory", "nic")),
    "cci": (Program(DRIVER, "reference"),),
}


def of_profile(profile: str) -> tuple[Program, ...]:
    """What runs beside a node whose owner says nothing."""
    return _DEFAULTS.get(profile, ())


def read_programs(fields: Mapping[str, Doc], profile: str, folder: Path) -> tuple[Program, ...]:
    """What a node's keys say, or what its profile runs."""
    for key, (kind, wanted) in KEYS.items():
        if key not in fields:
            continue
        if profile != wanted:
            fields[key].fail(f"a node of profile {profile} has no {key}", f"set profile: {wanted}, or remove {key}")
        found = tuple(_read(item, kind, folder) for item in fields[key].elements())
        for twin in {one.name for one in found if [each.name for each in found].count(one.name) > 1}:
            fields[key].fail(f"two {key} are called {twin!r}", "give each its own name")
        return found
    return of_profile(profile)


def _read(item: Doc, kind: str, folder: Path) -> Program:
    if not item.is_mapping:
        return Program(kind, item.one_of(BUILT_IN[kind]))
    fields = item.fields(PROGRAM_KEYS)
    name = item.required(fields, "name")
    if "command" not in fields:
        known = name.one_of(BUILT_IN[kind])
        return Program(kind, known, config=_config(fields["config"], kind, folder) if "config" in fields else None)
    if "config" in fields:
        fields["config"].fail("a command of your own takes its configuration as a word", "put it into command")
    if problems := names.dns_label(name.text()):
        name.fail(f"{name.text()!r} is not a name: {problems[0]}", "use small letters, digits and -")
    words = tuple(word.text() for word in fields["command"].elements())
    if not words:
        fields["command"].fail("a command needs a program", "name it, such as [python, plugin.py]")
    return Program(kind, name.text(), words, folder=folder)


def _config(item: Doc, kind: str, folder: Path) -> Path:
    if kind != PLUGIN:
        item.fail("drivers have no configuration file", "remove config")
    path = folder / item.text()
    if not path.is_file():
        item.fail(f"there is no file {path}", "name it relative to this file")
    return path.absolute()


def from_option(kind: str, text: str, folder: Path) -> Program:
    """What `--plugin` and `--driver` say: the name of a built-in one, or a command line."""
    if text in BUILT_IN[kind]:
        return Program(kind, text)
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigurationError(f"not a command: {error}", where=f"--{kind} {text!r}") from error
    if not words:
        raise ConfigurationError(f"--{kind} names no program", remedy=f"pass a command, or {', '.join(BUILT_IN[kind])}")
    script = next((word for word in reversed(words) if "." in word and not word.startswith("-")), words[0])
    stem = Path(script).stem.lower().replace("_", "-")
    return Program(kind, stem if not names.dns_label(stem) else "own", words, folder=folder)
