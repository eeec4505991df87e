"""What is installed into a cluster: complete, the same by both ways, and with no right that nobody needs."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubeqos.cli.stock.install import command
from kubeqos.client.http import HttpApi
from kubeqos.stock.chart import chart
from kubeqos.stock.installation import EMPTY, RUNTIME, objects
from kubeqos.stock.installer import install, uninstall
from kubeqos.testing import api_server
from tests.apiserver.live import live_server
from tests.scenarios.cluster import KUBECTL
from tests.stock.kube_apiserver import acting_as
from tests.stock.rights import BY_APPLY, STORIES, granted, used

ROOT = Path(__file__).parents[2]


@pytest.mark.kubectl
def test_kustomize_makes_the_objects_that_are_installed() -> None:
    """By a real kubectl; only the image is for the user to set."""
    command = [str(KUBECTL), "kustomize", str(files("kubeqos.stock"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    [image] = {
        container["image"]
        for raw in built
        if raw["kind"] in ("Deployment", "DaemonSet")
        for container in raw["spec"]["template"]["spec"]["containers"]
    }
    assert sorted(built, key=key) == sorted(objects(image, EMPTY), key=key)


def key(raw: Any) -> tuple[str, str]:
    return raw["kind"], raw["metadata"]["name"]


def test_schemas_say_nothing_that_kubernetes_does_not_know() -> None:
    """A comma in a sentence of a flow mapping makes a key of the rest; a real server refuses the whole object."""
    known = {"type", "format", "properties", "required", "items", "enum", "description", "additionalProperties"}
    known |= {"minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "default"}
    known |= {"anyOf", "allOf", "oneOf", "not", "nullable", "minProperties", "maxProperties", "uniqueItems"}

    def unknown(schema: Any, path: str) -> list[str]:
        found = [f"{path}.{key}" for key in schema if key not in known and not key.startswith("x-kubernetes-")]
        for name, child in (schema.get("properties") or {}).items():
            found += unknown(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                found += unknown(schema[key], f"{path}.{key}")
        return found

    for path in sorted((files("kubeqos.stock") / "crds").iterdir(), key=lambda each: each.name):
        for raw in yaml.safe_load_all(path.read_text()):
            for version in raw["spec"]["versions"]:
                assert unknown(version["schema"]["openAPIV3Schema"], path.name) == []


def test_the_image_and_the_classes_are_those_that_were_said() -> None:
    made = objects("registry.example/kubeqos:1", {"kubeqos-classes": "resources: {a: {}}\n"})
    images = {
        container["image"]
        for raw in made
        if raw["kind"] in ("Deployment", "DaemonSet")
        for container in raw["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"registry.example/kubeqos:1"}
    assert [raw["data"]["classes.yaml"] for raw in made if raw["kind"] == "ConfigMap"] == ["resources: {a: {}}\n"]
    assert not [raw for raw in objects("x", {}) if raw["kind"] == "ConfigMap"], "those of the cluster stay"


def test_the_chart_has_the_same_objects() -> None:
    written = dict(chart("0.1.0.dev3", "kubeqos:1", {"kubeqos-classes": "resources: {a: {}}\n"}))
    values = yaml.safe_load(written.pop("values.yaml"))
    assert yaml.safe_load(written.pop("Chart.yaml"))["version"] == "0.1.0", "Helm takes three numbers"

    def rendered(text: str) -> Any:
        return yaml.safe_load(re.sub(r"{{ \.Values\.(\w+) \| toJson }}", lambda one: json.dumps(values[one[1]]), text))

    expected = objects("kubeqos:1", {**EMPTY, "kubeqos-classes": "resources: {a: {}}\n"})
    assert sorted(map(rendered, written.values()), key=key) == sorted(expected, key=key)


def test_agents_reach_the_sockets_of_providers_where_the_documentation_puts_them() -> None:
    [agent] = [raw["spec"]["template"]["spec"] for raw in objects("x", EMPTY) if raw["kind"] == "DaemonSet"]
    where = {one["name"]: one["hostPath"]["path"] for one in agent["volumes"] if "hostPath" in one}
    mounts = agent["containers"][0]["volumeMounts"]
    same = [Path(one["mountPath"]) for one in mounts if where.get(one["name"]) == one["mountPath"]]
    said = re.findall(r"endpoint: unix://(\S+\.sock)", (ROOT / "docs" / "stock.md").read_text())
    assert said and all(any(Path(one).is_relative_to(folder) for folder in same) for one in said)


async def test_every_right_is_needed_and_enough(tmp_path: Path) -> None:
    """The parts do all that they do with the rights of their accounts, and use each of them."""
    with live_server(tmp_path / "data") as live:
        admin = HttpApi.from_kubeconfig(live.kubeconfig)
        accounts = {part: HttpApi.from_kubeconfig(acting_as(live.kubeconfig, f"kubeqos-{part}")) for part in STORIES}
        try:
            said = [line async for line in install(admin, "kubeqos:test", {})]
            assert "configmap/kubeqos-classes applied" in said
            for part, story in STORIES.items():
                await story(admin, accounts[part], "1")
                assert used(live, tmp_path, part) | BY_APPLY[part] == granted(part)
            left = [line async for line in uninstall(admin)]
            assert {line.removesuffix(" applied") for line in said} <= {line.removesuffix(" deleted") for line in left}
            # Nobody empties namespaces here.
            assert [line async for line in uninstall(admin)] == ["namespace/kubeqos-system deleted"]
        finally:
            for api in (admin, *accounts.values()):
                await api.close()


@pytest.mark.parametrize("restart", ["", "restart: systemctl restart containerd\n"])
async def test_who_has_to_restart_runtimes_is_told_so(restart: str) -> None:
    with api_server() as server:
        admin = HttpApi.from_kubeconfig(server.kubeconfig)
        try:
            settings = {RUNTIME: f"config: /etc/containerd/config.toml\n{restart}"}
            said = [line async for line in install(admin, "kubeqos:test", settings)]
            assert "configmap/kubeqos-runtime applied" in said
            left = [line async for line in uninstall(admin)]
            assert any("restart the container runtime" in line for line in left) is not bool(restart)
        finally:
            await admin.close()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--runtime-config"], "config: /etc/containerd/config.toml\n"),
        (["--runtime-config", "/a.toml", "--restart-runtime", "b c"], "config: /a.toml\nrestart: b c\n"),
        (["--runtime-config", ""], ""),
        ([], ""),
    ],
)
def test_runtimes_are_changed_only_where_that_is_said(words: list[str], text: str) -> None:
    done = CliRunner().invoke(command, ["--dry-run", *words])
    [made] = [raw for raw in yaml.safe_load_all(done.output) if raw["metadata"]["name"] == RUNTIME]
    assert made["data"] == {"runtime.yaml": text}


def test_a_restart_for_nothing_is_a_mistake() -> None:
    done = CliRunner().invoke(command, ["--dry-run", "--restart-runtime"])
    assert done.exit_code == 2 and "--runtime-config" in done.output
