"""Finds the kubeconfig as kubectl does: a given file, `$KUBECONFIG` (a list), the pod's own account, the home's; and
where there is none of these, that of `kubeqos up`.

Reading and merging the files needs nothing but YAML, so that the command line starts fast; what lightkube knows about
credentials is imported when a client is really made from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeqos.codec import JsonObject, YamlError, decode_yaml
from kubeqos.errors import ConfigurationError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

FILE_FIELDS = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
REMEDY = "pass --kubeconfig, or set KUBECONFIG to the file that `kubeqos up` printed"


def load(path: Path | None = None, context: str | None = None, env: Mapping[str, str] = os.environ) -> SingleConfig:
    """The cluster, user and namespace to use."""
    import msgspec
    from lightkube.core.exceptions import ConfigError

    where = str(path or env.get("KUBECONFIG") or "~/.kube/config")
    try:
        found = find(path, env).get(context)
    except (ConfigError, KeyError, TypeError, msgspec.ValidationError) as error:
        what = f"missing {error}" if isinstance(error, KeyError) else error
        raise ConfigurationError(f"kubeconfig: {what}", where=where, remedy=REMEDY) from error
    if found is None:
        raise ConfigurationError("kubeconfig: no current context", where=where, remedy=REMEDY)
    return found


def find(path: Path | None, env: Mapping[str, str]) -> KubeConfig:
    from lightkube.config.kubeconfig import KubeConfig

    if path is None and not env.get("KUBECONFIG") and in_cluster(env):
        return KubeConfig.from_service_account()
    return KubeConfig.from_dict(merged(files(path, env)))


def in_cluster(env: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod that has an account of its own."""
    return "KUBERNETES_SERVICE_HOST" in env and Path(SERVICE_ACCOUNT, "token").exists()


def files(path: Path | None, env: Mapping[str, str]) -> list[Path]:
    """The files to merge, in order."""
    if path is not None:
        return [path]
    listed = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return [part for part in listed if part.exists()] or listed
    usual = Path("~/.kube/config").expanduser()
    local = Path(env.get("KUBEQOS_DATA_DIR") or "~/.kubeqos").expanduser() / "kubeconfig"
    return [local] if local.exists() and not usual.exists() else [usual]


def merged(paths: list[Path]) -> JsonObject:
    """Several files as one: the first to name something wins."""
    whole: dict[str, Any] = {"clusters": [], "contexts": [], "users": []}
    for path in paths:
        content = read(path)
        for section in ("clusters", "contexts", "users"):
            known = {entry["name"] for entry in whole[section]}
            entries = content.get(section) or []
            whole[section] += [absolute(entry, path) for entry in entries if entry["name"] not in known]
        if content.get("current-context"):
            whole.setdefault("current-context", content["current-context"])
    return whole


def read(path: Path) -> JsonObject:
    try:
        content = decode_yaml(path.read_text())
    except (OSError, UnicodeDecodeError, YamlError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"kubeconfig cannot be read: {what}", where=str(path), remedy=REMEDY) from error
    if not isinstance(content, dict):
        raise ConfigurationError("kubeconfig is not a mapping", where=str(path), remedy=REMEDY)
    return content


def absolute(entry: JsonObject, path: Path) -> JsonObject:
    """File names in a kubeconfig are relative to that file."""
    for section, names in FILE_FIELDS.items():
        inner = entry.get(section)
        if isinstance(inner, dict):
            for name in names:
                if isinstance(inner.get(name), str):
                    inner[name] = str(path.resolve().parent / inner[name])
    return entry
