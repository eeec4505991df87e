"""The files under examples/qrm work together: four plugins, four pods."""

from __future__ import annotations

from pathlib import Path

import yaml

from kubeqos.model.hardware.named import kep80
from tests.qrm.harness import PluginProcess, plugin_processes, qrm_node

EXAMPLES = Path(__file__).parents[2] / "examples" / "qrm"
RESOURCES = {"cpu": "cpu", "memory": "memory", "nic": "NIC", "knob": "knob"}


async def test_the_examples_run(folder: Path) -> None:
    plugins = [PluginProcess(folder, kind, kep80(), (EXAMPLES / f"{kind}.yaml").read_text()) for kind in RESOURCES]
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(*plugins):
            await node.plugins(*RESOURCES.values())
            found = {}
            for raw in yaml.safe_load_all((EXAMPLES / "pods.yaml").read_text()):
                name = raw["metadata"]["name"]
                raw["metadata"] |= {"uid": f"uid-{name}", "namespace": "default", "generation": 1}
                raw["spec"] |= {"nodeName": "n1", "nodeSelector": {}}  # they name the node of `kubeqos up`
                node.submit(raw)
                await node.until_running(f"uid-{name}")
                found[name] = node.resources(f"uid-{name}", "app")
    told = {name: (one["cpuset_cpus"], one["cpuset_mems"]) for name, one in found.items()}
    assert told == {
        "web": ("22-33,62-73", "0-1"),
        "etl": ("2-5,42-45", "0-1"),
        "storage": ("6-15", "0"),
        "near-its-nic": ("46-49", "1"),
    }
    assert (found["etl"]["cpu_shares"], found["storage"]["oom_score_adj"]) == (2, -500)
