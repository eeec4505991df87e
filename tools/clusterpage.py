"""The reference page of the file of `kubeqos up --config`: its fields from the code."""

# ruff: noqa: E501 - prose of a page is as wide as the page
from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from kubeqos.cluster.clusterfile import API_VERSION, FIELDS, KIND, MOST_NODES, NODE_FIELDS, NODE_GATES, SERVER_GATES
from kubeqos.cluster.programs import BUILT_IN, DRIVER, PLUGIN, PROGRAM_KEYS
from kubeqos.gates import GATES
from kubeqos.model.hardware.named import MACHINES
from kubeqos.node.config.configuration import PROFILES
from kubeqos.placement.score import Weights
from kubeqos.scheduler.config import WEIGHTS

Table = Callable[[list[str], list[list[str]]], str]

BEFORE = f"""\
# The cluster file

`kubeqos up --config cluster.yaml` starts what this file describes. It is read strictly, and wholly before anything is
made: a file that is wrong leaves nothing behind.

```yaml title="cluster.yaml"
apiVersion: kubeqos.io/v1alpha1
kind: {KIND}
featureGates: {{QOSResourcesStrictNames: true}}
scheduler:
  profiles:
  - schedulerName: default-scheduler
    weights: {{mostAllocated: true}}
settings:                      # of all nodes
  evictionHard: {{memory.available: 10%}}
  evictionRanking: qos
nodes:
- name: small
  count: 2
  machine: laptop8
  reservedCPUs: "0"
  labels: {{tier: small}}
- name: large
  machine: kep80
  profile: qrm
  settings: {{maxPods: 50}}      # of this one
```

```console cluster
$ kubeqos up --detach --port 0 --data-dir two --config cluster.yaml
…
$ kubectl --kubeconfig two/kubeconfig get nodes -L tier -o custom-columns=NAME:.metadata.name,PODS:.status.capacity.pods
NAME      PODS
large     50
small-1   110
small-2   110
$ kubeqos down --data-dir two --delete
…
```
"""


PROGRAMS = """\
## Plugins and drivers

Each runs as a process of its own, is started again when it ends, and ends with the cluster. Its output is in
`DATA-DIR/nodes/NODE/plugin-NAME.log` (or `driver-NAME.log`). `kubeqos up --plugin COMMAND` and `--driver COMMAND` add one to the
nodes of their profile without a file.

A command of your own is started in the folder of this file. `{registry}` in a word is the plugin folder of the node, `{machine}` a
file that describes the node's machine, `{state}` a file of its own to keep state in. Where no word says `{registry}`, the folder is
the last argument, as what `kubeqos qrm new` and `kubeqos cci new` write expects it. Pods wait for the built-in `cpu` and
`memory`, and for those that the setting `qosResourcePlugins` names; other plugins may come late.
"""


def cluster_file(table: Table) -> str:
    """The page; `table` makes a Markdown table."""
    weights = {field.name: field.default for field in dataclasses.fields(Weights)}
    parts = [
        BEFORE,
        "## The file\n\n" + _fields(FIELDS, table),
        "## A node\n\n" + _fields(NODE_FIELDS, table),
        f"Known machines: {', '.join(f'`{name}`' for name in MACHINES)}; `kubeqos map --machine NAME` draws one. "
        "Settings are those of [a node's configuration](node-configuration.md), but for what has a key of its own here "
        "and for where a node keeps its files.",
        PROGRAMS + "\n" + _fields(PROGRAM_KEYS, table),
        "A text in place of an object is the name of a built-in one. "
        f"Plugins: {', '.join(BUILT_IN[PLUGIN])}. Drivers: {', '.join(BUILT_IN[DRIVER])}.",
        "## Gates\n\n" + table(["gate", "in this cluster", "on nodes"], [_gate(name) for name in GATES]),
        "## A profile of the scheduler\n\n`schedulerName` is by which pods choose it. `weights`:\n\n"
        + table(["weight", "default"], [[f"`{key}`", str(weights[name]).lower()] for key, name in WEIGHTS.items()]),
        "What each weight counts says [Scheduling](../scheduling.md).",
        f"## Schema\n\nFor editors that check a file as it is written:\n\n```json\n{json.dumps(schema(), indent=2)}\n```",
    ]
    return "\n\n".join(part.rstrip() for part in parts)


def _fields(fields: object, table: Table) -> str:
    assert isinstance(fields, dict)
    return table(["key", "what"], [[f"`{key}`", about] for key, about in fields.items()])


def _gate(name: str) -> list[str]:
    where = "the same" if name in NODE_GATES else "by profile"
    return [f"`{name}`", "on" if SERVER_GATES.enabled(name) else "off", where]


def schema() -> dict[str, Any]:
    """The file as a JSON schema, for editors."""
    text = {"type": "string"}
    forms: dict[str, Any] = {
        "profile": {"enum": list(PROFILES)},
        "count": {"type": "integer", "minimum": 1, "maximum": MOST_NODES},
        "reservedCPUs": {"type": ["string", "integer"]},
        "labels": {"type": "object", "additionalProperties": text},
        "classes": {"type": "object"},
        "settings": {"type": "object"},
        "plugins": {"type": "array", "items": _program(PLUGIN)},
        "drivers": {"type": "array", "items": _program(DRIVER)},
    }
    node = _object(NODE_FIELDS, forms, ["name"]) | {"oneOf": [{"required": ["machine"]}, {"required": ["runtime"]}]}
    top = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": KIND},
        "nodes": {"type": "array", "items": node},
        "manifests": {"type": "array", "items": text},
        "settings": {"type": "object"},
        "featureGates": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "scheduler": {"type": "object"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_object(
            {"apiVersion": "The version of this form.", "kind": "What this is.", **FIELDS},
            top,
            ["apiVersion", "kind", "nodes"],
        ),
    }


def _program(kind: str) -> dict[str, Any]:
    words = {"command": {"type": "array", "items": {"type": "string"}, "minItems": 1}}
    return {"anyOf": [{"enum": list(BUILT_IN[kind])}, _object(PROGRAM_KEYS, words, ["name"])]}


def _object(keys: Mapping[str, str], forms: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    properties = {key: {**forms.get(key, {"type": "string"}), "description": about} for key, about in keys.items()}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
