"""An operator as its author would write it, with kopf: backups that make ConfigMaps, and webhooks of its own.

Run by tests/scenarios/test_kopf.py; the paths of its certificate come from the environment.
"""

from __future__ import annotations

import os
from typing import Any

import kopf
import kubernetes

GROUP = ("ops.example.com", "v1", "backups")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.admission.managed = "auto.ops.example.com"
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        certfile=os.environ["HOOK_CERTIFICATE"],
        pkeyfile=os.environ["HOOK_KEY"],
        cafile=os.environ["HOOK_AUTHORITY"],
    )
    kubernetes.config.load_kube_config(os.environ["KUBECONFIG"])


@kopf.on.mutate(*GROUP)
def keep_some(spec: kopf.Spec, patch: kopf.Patch, warnings: list[str], **_: Any) -> None:
    if "keep" not in spec:
        patch.spec["keep"] = 7
        warnings.append("keeping a week")


@kopf.on.validate(*GROUP)
def often_enough(spec: kopf.Spec, **_: Any) -> None:
    if spec.get("every") == "never":
        raise kopf.AdmissionError("never is not often enough", code=422)


@kopf.on.create(*GROUP)
@kopf.on.update(*GROUP)
def back_up(spec: kopf.Spec, name: str, namespace: str, **_: Any) -> dict[str, Any]:
    child: dict[str, Any] = {"metadata": {"name": f"{name}-plan"}, "data": {"keep": str(spec["keep"])}}
    kopf.adopt(child)
    api = kubernetes.client.CoreV1Api()
    try:
        api.create_namespaced_config_map(namespace, child)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        api.patch_namespaced_config_map(child["metadata"]["name"], namespace, child)
    return {"kept": spec["keep"]}


@kopf.on.delete(*GROUP)
def forget(name: str, namespace: str, **_: Any) -> None:
    kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-gone"}})
