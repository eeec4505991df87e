"""`kubeqos doctor`: whether a Kubernetes cluster, and this machine, can have kubeqos, before anything is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubeqos.client.light import LightApi
    from kubeqos.stock.examination import Finding

CONTAINERD = Path("/etc/containerd/config.toml")


@click.command("doctor")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use.")
@click.option("--context", help="The context of the kubeconfig to use.")
@click.option("--node", "local", is_flag=True, help="Look at this machine instead: can the agent work here?")
def command(kubeconfig: Path | None, context: str | None, local: bool) -> int:
    """Tell what a cluster has and lacks for kubeqos, and what to do about it. Changes nothing.

    Exits with 1 when something is missing.
    """
    from kubeqos.cli.output import table
    from kubeqos.stock.examination import is_fit

    if local:
        findings = _machine()
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
    found = examination.cluster(api.get("/version"), _may_install(api))
    deployment = api.get_or_none("/apis/apps/v1/namespaces/kubeqos-system/deployments/kubeqos-controller")
    found += examination.installed(names, deployment, api.get_or_none(hooks) is not None)
    for raw in api.items("/api/v1/nodes"):
        found += examination.node(raw, by_node.get(raw["metadata"]["name"]))
    return found


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


def _machine() -> list[Finding]:
    from kubeqos.cri.enforcing.host import cgroup_version
    from kubeqos.nri.plugin import SOCKET
    from kubeqos.stock.examination import LocalFacts, machine

    resctrl = Path("/sys/fs/resctrl/schemata").exists()
    version = cgroup_version(Path("/sys/fs/cgroup"))
    return machine(
        LocalFacts(os.geteuid() == 0, SOCKET.exists(), version, resctrl, checks_required_plugins(CONTAINERD))
    )


def checks_required_plugins(config: Path) -> bool | None:
    """Whether containerd's validator of required plugins is on, by its own file; None where there is none to read."""
    import tomllib

    try:
        plugins = tomllib.loads(config.read_text()).get("plugins", {})
        return bool(plugins.get("io.containerd.nri.v1.nri", {}).get("default_validator", {}).get("enable", False))
    except (OSError, ValueError, AttributeError):
        return None
