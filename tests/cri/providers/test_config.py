"""classes.yaml: what is accepted, and one clear message with the line for what is not."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.providers.catalog import LocalMachine, build
from kubeqos.cri.providers.config import parse_classes
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, ClassProvider, Level
from kubeqos.errors import ConfigurationError
from tests.cri.providers.trees import TreeKernel, plant

EVERYTHING = """
resources:
  rdt:
    provider: rdt
    default: silver
    capacity: {gold: 2}
    config:
      partitions:
        all: {classes: {gold: {}, silver: {l3Allocation: "50%"}}}
  blockio:
    provider: blockio
    config: {Classes: {slow: [{Weight: 20}]}}
  ulimits:
    provider: ulimits
    classes: {many-files: {nofile: 65536}}
  network:
    provider: network
    classes: {fast: {priority: 1}}
  example.com/shelf:
    provider: named
    level: pod
    mutable: true
    capacity: {upper: 3}
    classes: [upper, lower]
"""


def nobody(name, endpoint, config):
    raise AssertionError(f"unexpected vendor process {endpoint}")


async def test_every_built_in_resource_is_offered(tmp_path: Path):
    root = plant("full", tmp_path)
    machine = LocalMachine(Host(tmp_path / "cg", version=V2), root, TreeKernel(root), mbps_mode=False)
    catalog = await build(parse_classes(EVERYTHING, "classes.yaml", V2), machine, nobody)
    assert [(o.name, o.mutable) for o in catalog.at(Level.CONTAINER)] == [
        ("blockio", True),
        ("rdt", True),
        ("ulimits", False),
    ]
    assert [(o.name, o.mutable) for o in catalog.at(Level.POD)] == [("example.com/shelf", True), ("network", False)]
    assert catalog.offers["example.com/shelf"].classes == (ClassInfo("upper", 3), ClassInfo("lower"))
    assert catalog.offers["rdt"] == Advertisement(
        "rdt", Level.CONTAINER, True, (ClassInfo("gold", 2), ClassInfo("silver")), "silver", "rdt"
    )
    assert not (root / "kubeqos.gold").exists()
    catalog.install()
    assert (root / "kubeqos.gold").is_dir()
    catalog.clear()
    assert not (root / "kubeqos.gold").exists()


REFUSED = [
    ("resorces: {}", "unknown key", "classes.yaml:1  resorces", "did you mean 'resources'?"),
    ("resources:\n  a: {provider: cpu, clases: {}}", "unknown key", "classes.yaml:2  resources.a.clases", "'classes'"),
    ("resources:\n  a: {}", "no provider", "classes.yaml:2", "add provider"),
    ("resources: {a: {provider: cpu}}", "no classes", "classes.yaml:1", "add the key classes"),
    ("resources: {pod-qos: {provider: cpu, classes: {}}}", "belongs to Kubernetes", "classes.yaml:1", "another name"),
    ("resources: {'a b': {provider: cpu, classes: {}}}", "not a resource name", "classes.yaml:1", "letters"),
    (
        "resources:\n  a:\n    provider: cpu\n    default: gld\n    classes: {gold: {}}",
        "no class 'gld'",
        "classes.yaml:4  resources.a.default",
        "did you mean 'gold'?",
    ),
    ("resources: {a: {provider: cpu, capacity: {x: 1}, classes: {y: {}}}}", "no such class", "", "known here: y"),
    ("resources: {a: {provider: cpu, classes: {y: {}}, capacity: {y: -1}}}", "whole number from 0", "", ""),
    ("resources: {a: {provider: cpu, classes: {y: {}}, prefix: x}}", "unknown key", "resources.a.prefix", ""),
    ("resources:\n  a: {provider: cpu, classes: {}}\n  a: {provider: cpu, classes: {}}", "appears twice", ":3", ""),
    ("resources: {a: {endpoint: /run/x.sock}}", "is not a socket", "", "unix:///run"),
    ("resources: [", "not valid YAML", "classes.yaml:2", "syntax"),
    ("- a", "expected a mapping", "classes.yaml:1", ""),
]


@pytest.mark.parametrize(("text", "what", "where", "remedy"), REFUSED)
def test_what_is_wrong_where_and_what_to_do(text, what, where, remedy):
    with pytest.raises(ConfigurationError) as caught:
        parse_classes(text, "classes.yaml", V2)
    assert what in caught.value.what
    assert where in str(caught.value.where)
    assert remedy in str(caught.value.remedy)


def test_an_empty_file_offers_nothing():
    assert parse_classes("", "classes.yaml", V2).resources == {}


class Turbo(ClassProvider):
    """A vendor's provider, in a few lines."""

    def __init__(self, config):
        self.config = config

    async def advertise(self):
        level = Level(self.config.get("level", "container"))
        return (Advertisement(self.config.get("name", "turbo"), level, True, (ClassInfo("on", 4), ClassInfo("off"))),)


@pytest.fixture
def vendor(monkeypatch):
    """The entry point as an installed distribution would give it."""
    point = metadata.EntryPoint("turbo", f"{__name__}:Turbo", "kubeqos.class_providers")
    monkeypatch.setattr(metadata, "entry_points", lambda group: (point,))


async def offers(text: str, tmp_path: Path):
    return (
        await build(parse_classes(text, "classes.yaml", V2), LocalMachine(Host(tmp_path, version=V2)), nobody)
    ).offers


async def test_a_vendor_is_an_entry_point_with_its_own_configuration(vendor, tmp_path: Path):
    text = "resources: {turbo: {provider: turbo, default: 'off', capacity: {on: 1}, config: {name: v.example/turbo}}}"
    assert await offers(text, tmp_path) == {
        "v.example/turbo": Advertisement(
            "v.example/turbo", Level.CONTAINER, True, (ClassInfo("on", 1), ClassInfo("off")), "off"
        )
    }


async def test_one_name_is_never_offered_at_both_levels(vendor, tmp_path: Path):
    text = "resources: {cpu: {provider: cpu, classes: {a: {}}}, v: {provider: turbo, config: {name: cpu, level: pod}}}"
    with pytest.raises(ConfigurationError, match=r"'cpu' is offered twice \(container and pod level\)"):
        await offers(text, tmp_path)


async def test_runtime_handlers_name_classes_that_are_there(vendor, tmp_path: Path):
    own = "resources: {cpu: {provider: cpu, classes: {a: {}, b: {}}, handlers: {kata: [a], wasm: []}}}"
    assert (await offers(own, tmp_path))["cpu"].handlers == {"kata": frozenset("a"), "wasm": frozenset()}
    for text in (own.replace("[a]", "[c]"), "resources: {v: {provider: turbo, config: {}, handlers: {kata: [c]}}}"):
        with pytest.raises(ConfigurationError, match="no class 'c'"):
            await offers(text, tmp_path)


async def test_an_unknown_provider_is_named(vendor, tmp_path: Path):
    with pytest.raises(ConfigurationError, match="no provider 'turbp' is installed") as caught:
        await offers("resources: {v: {provider: turbp}}", tmp_path)
    assert caught.value.remedy == "did you mean 'turbo'?"
