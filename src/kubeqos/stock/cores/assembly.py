"""Makes the keeper of a node's cores from its NodeConfiguration, the same file that a node agent of ours reads.

Of that file only what is about cores is used: gates, managers, what is reserved, plugins. All else is the kubelet's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from kubeqos.client import Api
from kubeqos.codec import JsonError, decode_json
from kubeqos.cri.enforcing.host import Host
from kubeqos.errors import ConfigurationError
from kubeqos.gates import CCI, QRM
from kubeqos.model.machine import Machine
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config import configured
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.checks import refuse_machine
from kubeqos.node.config.configuration import NodeConfiguration, load
from kubeqos.node.config.plugins import plugin_managers
from kubeqos.node.runtime.executor import no_claims
from kubeqos.stock.cores.dra import stock_claims
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.cores.pods import PodTable
from kubeqos.stock.cores.tableruntime import TableRuntime

COMPONENT = "kubeqos-agent"
KUBELET_DIR = Path("/var/lib/kubelet")
_STATES = (("cpu_manager_state", "cpuManagerPolicy"), ("memory_manager_state", "memoryManagerPolicy"))


def is_empty(path: Path) -> bool:
    """Whether a file says nothing at all: the installation gives agents one of these where cores are not handed out."""
    try:
        return not path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False  # whoever reads it says what is wrong


def read_configuration(path: Path, node: str) -> NodeConfiguration:
    """The node's configuration; one that hands out no cores is a mistake here."""
    config = dataclasses.replace(load(path), node_name=node)
    managers = config.cpu_manager_policy != "none" or config.memory_manager_policy.lower() != "none"
    if not (config.gates.enabled(QRM) or config.gates.enabled(CCI) or managers):
        raise ConfigurationError(
            "node configuration: no manager of cores is on",
            where=str(path),
            remedy=f"set profile to qrm or cci, turn {QRM} or {CCI} on, or start the agent without --node-config",
        )
    return config


def refuse_kubelet(folder: Path) -> None:
    """Two who pin the same containers undo each other's work: the kubelet's own managers must be off."""
    for name, setting in _STATES:
        try:
            policy = str(decode_json((folder / name).read_bytes()).get("policyName", "none"))
        except (OSError, JsonError, AttributeError):
            continue  # no such manager has ever been there
        if policy.lower() != "none":
            raise ConfigurationError(
                f"the kubelet of this node pins containers itself: its {setting} is {policy!r}",
                where=str(folder / name),
                remedy=f"set {setting} to none in the kubelet's configuration and remove the file, or start the agent "
                "without --node-config",
            )


def make_keeper(
    config: NodeConfiguration,
    machine: Machine,
    host: Host,
    api: Api | None,
    runtime: Callable[[PodTable], TableRuntime],
    changed: Callable[[], None],
) -> CoreKeeper:
    """Everything about cores on one node; without an API server its pods are those that this process sets.

    `runtime` is how containers are told: of that alone cores know on which side of the runtime we stand.
    """
    refuse_machine(config, machine)
    settings = configured.node_settings(config, machine)
    settings.check()
    events = NodeEvents(api, settings.node_name, component=COMPONENT)
    plugins = plugin_managers(
        settings,
        machine,
        events,
        folder=config.plugin_registration_dir,
        legacy_folder=config.qrm_plugin_dir,
        qrm=configured.qrm_settings(config),
        cci=configured.cci_settings(config),
    )
    table = PodTable(takes_claims=plugins.cci is not None)
    teller = runtime(table)
    claims = stock_claims(api, machine) if api is not None and plugins.cci is not None else no_claims
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    parts = assemble(settings, teller, machine, Hosting(api=api), events=events, plugins=plugins, claims=claims)
    return CoreKeeper(parts, table, teller, host, changed)
