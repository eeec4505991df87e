"""From a `NodeConfiguration` to what runs beside an agent: pressure, endpoints, plugins. Pure.

Called by `kubeqos node`; the agent's own settings are made by `node.config.assembly`.
"""

from __future__ import annotations

from pathlib import Path

from kubeqos.cci.drivers import Deadlines
from kubeqos.cci.manager import Settings as CciSettings
from kubeqos.client.api import Api
from kubeqos.model.machine import Machine
from kubeqos.node.config.configuration import NodeConfiguration
from kubeqos.node.config.extensions import Extensions, extensions
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pressure.imagegc import ImageGcSettings
from kubeqos.node.pressure.thresholds import PressureSettings
from kubeqos.node.run import ServiceSettings
from kubeqos.qrm.settings import Settings as QrmSettings

_MICROSECONDS = 1_000_000
CGROUP_MOUNT = Path("/sys/fs/cgroup")


def service_settings(config: NodeConfiguration, client_authority: Path | None) -> ServiceSettings:
    """What runs around the agent."""
    return ServiceSettings(
        PressureSettings(
            config.thresholds(), config.eviction_transition, config.eviction_max_pod_grace, config.eviction_ranking
        ),
        config.housekeeping_interval,
        config.pod_resources_socket,
        config.address,
        # Simulated nodes come in numbers: unless told otherwise, each takes a free port.
        0 if config.simulated_machine and "port" not in config.places else config.port,
        client_authority,
        ImageGcSettings(config.image_gc_high, config.image_gc_low, config.image_minimum_age, config.image_maximum_age),
    )


def node_extensions(config: NodeConfiguration, settings: NodeSettings, machine: Machine, api: Api | None) -> Extensions:
    """QRM and CCI as the settings want them."""
    cci = CciSettings(
        standard_minimum=config.cci_standard_minimum,
        best_effort_without_driver=config.cci_fallback,
        driver_wait_seconds=config.cci_driver_wait,
        several_drivers=config.cci_several_drivers,
        deadlines=Deadlines(call=config.cci_call_timeout),
    )
    qrm = QrmSettings(
        names=config.qrm_names,
        expected=frozenset(config.qrm_expected),
        reconcile_seconds=config.qrm_reconcile_period,
    )
    made = extensions(settings, machine, api, qrm=qrm, cci=cci)
    made.folder = config.plugin_registration_dir
    if made.qrm is not None:
        made.legacy_folder = config.qrm_plugin_dir
    return made
