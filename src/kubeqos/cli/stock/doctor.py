"""`kubeqos doctor`: whether a Kubernetes cluster, and this machine, can have kubeqos, before anything is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubeqos.client.light import LightApi
    from kubeqos.stock.examination import Finding

RUNTIME_SOCKET = Path("/run/containerd/containerd.sock")


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
    from kubeqos.stock.names import CONTAINERD_CONFIG

    resctrl = Path("/sys/fs/resctrl/schemata").exists()
    version = cgroup_version(Path("/sys/fs/cgroup"))
    checks, waits = required_plugins(CONTAINERD_CONFIG, RUNTIME_SOCKET)
    return machine(LocalFacts(os.geteuid() == 0, SOCKET.exists(), version, resctrl, checks, waits))


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
