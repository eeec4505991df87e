"""`kubeqos doctor`: whether a Kubernetes cluster, and this machine, can have kubeqos, before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kubeqos.client.light import LightApi
    from kubeqos.stock.examination import Finding, LocalFacts

RUNTIME_SOCKET = Path("/run/containerd/containerd.sock")
KUBELET_FOLDER = Path("/var/lib/kubelet")


@click.command("doctor")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use.")
@click.option("--context", help="The context of the kubeconfig to use.")
@click.option("--node", "local", is_flag=True, help="Look at this machine instead: can the agent work here?")
def command(kubeconfig: Path | None, context: str | None, local: bool) -> int:
    """Tell what a cluster has and lacks for kubeqos, and what to do about it. Changes nothing.

    Exits with 1 when something is missing.
    """
    from kubeqos.cli.output import table
    from kubeqos.stock.examination import is_fit, machine

    if local:
        findings = machine(local_facts(Path("/")))
    else:
        from kubeqos.client.light import LightApi

        findings = _cluster(LightApi.from_kubeconfig(kubeconfig, context))
    click.echo(table(["check", "state", "details"], [(each.what, each.state, each.details) for each in findings]))
    return 0 if is_fit(findings) else 1


def _cluster(api: LightApi) -> list[Finding]:
    from kubeqos.stock import examination

    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kubeqos"
    definitions = api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    names = [raw["metadata"]["name"] for raw in definitions]
    reports = api.items("/apis/kubeqos.io/v1alpha1/nodeqoses") if "nodeqoses.kubeqos.io" in names else []
    by_node = {raw["metadata"]["name"]: raw for raw in reports}
    has_claims = api.get_or_none(f"/apis/{examination.CLAIMS}") is not None
    found = examination.cluster(api.get("/version"), _may_install(api), has_claims)
    deployment = api.get_or_none("/apis/apps/v1/namespaces/kubeqos-system/deployments/kubeqos-controller")
    found += examination.installed(names, deployment, api.get_or_none(hooks) is not None)
    for raw in api.items("/api/v1/nodes"):
        found += examination.node(raw, by_node.get(raw["metadata"]["name"]), managers_of(api, raw))
    return found


def managers_of(api: LightApi, node: Mapping[str, Any]) -> dict[str, str] | None:
    """Policies of the managers of a node's kubelet, asked through the API server; None where it does not tell us."""
    from kubeqos.client.errors import ApiError, Unreachable
    from kubeqos.codec import JsonError
    from kubeqos.stock.examination import MANAGER_STATES

    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return None  # who asks it would wait
    try:
        answer = api.get(f"/api/v1/nodes/{node['metadata']['name']}/proxy/configz")
    except (ApiError, Unreachable, JsonError):
        return None
    told = answer.get("kubeletconfig")
    return {name: str(told.get(name) or "none") for name in MANAGER_STATES} if isinstance(told, dict) else None


def _may_install(api: LightApi) -> bool:
    """Kubernetes answers such questions to a POST; nothing is stored."""
    wanted = (("apiextensions.k8s.io", "customresourcedefinitions"), ("rbac.authorization.k8s.io", "clusterroles"))
    for group, resource in wanted:
        attributes = {"verb": "create", "group": group, "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer, _ = api.write("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        if not (answer.get("status") or {}).get("allowed"):
            return False
    return True


def local_facts(root: Path) -> LocalFacts:
    """What there is on the machine whose files are below `root`."""
    from kubeqos.cri.enforcing.host import cgroup_version
    from kubeqos.nri.plugin import SOCKET
    from kubeqos.stock.examination import LocalFacts
    from kubeqos.stock.names import CONTAINERD_CONFIG

    cgroups = root / "sys/fs/cgroup"
    checks, waits = required_plugins(_below(root, CONTAINERD_CONFIG), _below(root, RUNTIME_SOCKET))
    return LocalFacts(
        root=os.geteuid() == 0,
        nri_socket=_below(root, SOCKET).exists(),
        cgroup_version=cgroup_version(cgroups),
        resctrl=(root / "sys/fs/resctrl/schemata").exists(),
        validator=checks,
        restart_needed=waits,
        kernel=_text(root / "proc/sys/kernel/osrelease"),
        managers=_managers(_below(root, KUBELET_FOLDER)),
        io_files=_io_files(cgroups),
    )


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _managers(folder: Path) -> dict[str, str]:
    """What the kubelet has written down of its managers: it does so when they start."""
    from kubeqos.codec import JsonError, decode_json
    from kubeqos.stock.examination import MANAGER_STATES

    found = {}
    for setting, name in MANAGER_STATES.items():
        try:
            found[setting] = str(decode_json((folder / name).read_bytes()).get("policyName", "none"))
        except (OSError, JsonError, AttributeError):
            continue  # no such manager has ever been there
    return found


def _io_files(cgroups: Path) -> frozenset[str] | None:
    """Control files of block I/O. Version 2 has them in no root, and in groups below it where the controller is on."""
    old = cgroups / "blkio"
    found = [*old.glob("blkio.*"), *old.glob("*/blkio.*")] if old.is_dir() else [*cgroups.glob("*/io.*")]
    return frozenset({path.name for path in found} - {"io.pressure"}) or None


def required_plugins(config: Path, runtime: Path) -> tuple[bool | None, bool]:
    """Whether containerd's files turn its validator on (None: there are none), and whether it has not read them."""
    import socket

    from kubeqos.errors import ConfigurationError
    from kubeqos.stock import validator

    root = Path("/")
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(runtime))
            return validator.is_on(config), validator.waits_for(config, root, validator.running(link))
    except OSError:
        return validator.is_on(config), False  # it does not run, or not for us: when it starts, it reads them
    except ConfigurationError:
        return None, False
