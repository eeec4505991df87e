"""Finds the kubeconfig as kubectl does: a given file, `$KUBECONFIG` (a list), the pod's own account, the home's; and
where there is none of these, that of `kubeqos up`.

Reading and merging the files needs nothing but YAML, so that the command line starts fast. What a context says becomes
a `Config`; `credentials` makes certificates and headers of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeqos.codec import JsonObject, YamlError, decode_yaml
from kubeqos.errors import ConfigurationError

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

FILE_FIELDS = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
REMEDY = "pass --kubeconfig, or set KUBECONFIG to the file that `kubeqos up` printed"
T = TypeVar("T", bound=msgspec.Struct)


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Where a server is, and how it proves to be the one that is meant."""

    server: str = "http://localhost:8080"
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[JsonObject] | None = None


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that knows who we are."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """Who we are to a server."""

    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    exec: ExecPlugin | None = None
    auth_provider: JsonObject | None = None


class Config(msgspec.Struct, frozen=True):
    """One context of a kubeconfig."""

    cluster: Cluster
    user: User = User()
    namespace: str = "default"
    context_name: str = ""
    where: str = ""


def load(path: Path | None = None, context: str | None = None, env: Mapping[str, str] = os.environ) -> Config:
    """The cluster, user and namespace to use."""
    if path is None and not env.get("KUBECONFIG") and in_cluster(env):
        return of_service_account(env)
    where = str(path or env.get("KUBECONFIG") or "~/.kube/config")
    whole = merged(files(path, env))
    name = context or whole.get("current-context") or ""
    chosen = _entry(whole, "contexts", name, "context", where)
    cluster = _entry(whole, "clusters", chosen.get("cluster") or "", "cluster", where)
    user = _entry(whole, "users", chosen["user"], "user", where) if chosen.get("user") else {}
    return Config(
        _typed(cluster, Cluster, f"{where}: cluster {chosen.get('cluster')}"),
        _typed(user, User, f"{where}: user {chosen.get('user')}"),
        chosen.get("namespace") or "default",
        name,
        where,
    )


def _entry(whole: JsonObject, section: str, name: str, kind: str, where: str) -> JsonObject:
    for entry in whole[section]:
        if entry["name"] == name and isinstance(entry.get(kind), dict | None):
            return entry.get(kind) or {}
    if not name:
        raise ConfigurationError(f"kubeconfig: no current {kind}", where=where, remedy=REMEDY)
    known = ", ".join(str(entry["name"]) for entry in whole[section])
    raise ConfigurationError(
        f"{kind} was not found for specified {kind}: {name}",
        where=where,
        remedy=f"the kubeconfig has: {known or 'none'}",
    )


def _typed(raw: JsonObject, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert({key: value for key, value in raw.items() if value is not None}, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"kubeconfig: {error}", where=where, remedy=REMEDY) from error


def in_cluster(env: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod that has an account of its own."""
    return "KUBERNETES_SERVICE_HOST" in env and Path(SERVICE_ACCOUNT, "token").exists()


def of_service_account(env: Mapping[str, str]) -> Config:
    """The server of the cluster that we run in, as the pod's own account."""
    folder = Path(SERVICE_ACCOUNT)
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    cluster = Cluster(f"https://{address}:{port}", certificate_authority=str(folder / "ca.crt"))
    namespace = folder / "namespace"
    return Config(
        cluster,
        User(token_file=str(folder / "token")),
        namespace.read_text().strip() if namespace.exists() else "default",
        "the pod's service account",
        str(folder),
    )


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
            entries = [_named(entry, section, path) for entry in content.get(section) or []]
            whole[section] += [absolute(entry, path) for entry in entries if entry["name"] not in known]
        if content.get("current-context"):
            whole.setdefault("current-context", content["current-context"])
    return whole


def _named(entry: Any, section: str, path: Path) -> JsonObject:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        what = f"kubeconfig: an entry of {section} has no name"
        raise ConfigurationError(what, where=str(path), remedy=REMEDY)
    return entry


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
    """File names in a kubeconfig are relative to that file; so is a program that is named with a folder."""
    for section, names in FILE_FIELDS.items():
        inner = entry.get(section)
        if isinstance(inner, dict):
            for name in names:
                if isinstance(inner.get(name), str) and inner[name]:
                    inner[name] = str(path.resolve().parent / inner[name])
            plugin = inner.get("exec")
            if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
                plugin["command"] = str(path.resolve().parent / plugin["command"])
    return entry
