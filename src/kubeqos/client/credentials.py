"""Who we are to a server and how it proves who it is: certificates, tokens, and programs that know either.

`Credentials` follow what they were read from. Files are looked at again every minute and when the server says 401, as
client-go does, because tokens and certificates are renewed under a running process; a program (`exec` of a kubeconfig)
is asked again when what it said expires. Shared by the transport of the components and by the command line's reader.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubeqos.client.kubeconfig import Cluster, Config, ExecPlugin, User
from kubeqos.errors import ConfigurationError

LOOK_SECONDS = 60.0  # between two looks at the files
PLUGIN_SECONDS = 60.0
PLUGIN_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
EXEC_INFO = "KUBERNETES_EXEC_INFO"
Stamp = tuple[tuple[int, int, int], ...]
Headers = tuple[tuple[str, str], ...]


class ResumingContext(ssl.SSLContext):
    """TLS to one server that goes on with the last session, so that another connection costs no signatures."""

    session: ssl.SSLSession | None = None

    def wrap_bio(self, *words: Any, **more: Any) -> ssl.SSLObject:
        # The event loops offer no way to pass a session, but all of them come here.
        return super().wrap_bio(*words, **{"session": self.session, **more})


class Credentials:
    """A kubeconfig's context as it is now: `tls` and `headers`."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None = None) -> None:
        self._config = config
        self._given = tls  # certificates that somebody else has read
        self._said: PluginAnswer | None = None
        self._stamp: Stamp = ()
        self._looked = 0.0
        self.tls: ssl.SSLContext | None = None
        self.headers: Headers = ()
        if config.user.exec is None:
            self._read()

    @property
    def asks_program(self) -> bool:
        """A program has to be run before anything can be sent: `renew` does, and takes its time."""
        said = self._said
        wanted = self._config.user.exec is not None
        return wanted and (said is None or (said.expires is not None and said.expires <= time.time()))

    @property
    def due(self) -> bool:
        """It is time to look at the files again."""
        return time.monotonic() - self._looked >= LOOK_SECONDS

    def renew(self, *, refused: bool = False) -> bool:
        """Read again what may have changed, after a while or because the server `refused` us. Whether it has."""
        before = self.headers, self.tls
        self._looked = time.monotonic()
        if self._config.user.exec is not None and (refused or self.asks_program):
            self._said = ask_program(self._config)
            self._read()
        elif self._stamp and stamp_of(self._config) != self._stamp:
            self._read()
        return (self.headers, self.tls) != before

    def _read(self) -> None:
        config, said = self._config, self._said
        stamp = stamp_of(config)
        try:
            self.headers = headers_of(config.user, said.token if said else "")
            if config.cluster.server.startswith("https") and (self.tls is None or stamp != self._stamp or said):
                self.tls = self._given or tls_of(config.cluster, config.user, said)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"kubeconfig: the credentials cannot be used: {error}",
                where=f"{config.where}: context {config.context_name}",
                remedy="check the certificate, key and token entries of this context",
            ) from error
        self._stamp, self._looked = stamp, time.monotonic()


def stamp_of(config: Config) -> Stamp:
    """What changes when one of the files does."""
    user = config.user
    named = (config.cluster.certificate_authority, user.client_certificate, user.client_key, user.token_file)
    found = []
    for name in filter(None, named):
        try:
            status = os.stat(name)
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)


def headers_of(user: User, said: str) -> Headers:
    """What says who we are in every request, and whom we act for."""
    found: list[tuple[str, str]] = []
    token = Path(user.token_file).read_text().strip() if user.token_file else user.token or said
    if token:
        found.append(("authorization", f"Bearer {token}"))
    elif user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        found.append(("authorization", f"Basic {pair}"))
    if user.auth_provider is not None:
        raise ValueError("auth-provider is not supported any more; use exec")
    if user.as_:
        found.append(("impersonate-user", user.as_))
        if user.as_uid:
            found.append(("impersonate-uid", user.as_uid))
        found += [("impersonate-group", name) for name in user.as_groups or ()]
        for key, values in (user.as_user_extra or {}).items():
            found += [(f"impersonate-extra-{quote(key, safe='').lower()}", value) for value in values]
    if broken := [name for name, value in found if "\r" in value or "\n" in value]:
        raise ValueError(f"{broken[0]} has a line break")
    return tuple(found)


def tls_of(cluster: Cluster, user: User, said: PluginAnswer | None = None) -> ResumingContext:
    """Certificates as the kubeconfig says; data comes before files, and without an authority the system's count."""
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    has_authority = cluster.certificate_authority or cluster.certificate_authority_data
    if cluster.insecure_skip_tls_verify:
        if has_authority:
            raise ValueError("certificate-authority and insecure-skip-tls-verify exclude each other")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif cluster.certificate_authority_data:
        context.load_verify_locations(cadata=base64.b64decode(cluster.certificate_authority_data).decode())
    elif cluster.certificate_authority:
        context.load_verify_locations(cafile=cluster.certificate_authority)
    else:
        context.load_default_certs()  # SSL_CERT_FILE and SSL_CERT_DIR name others, as for kubectl
    if said is not None and said.certificate:
        _load_pair(context, said.certificate.encode(), said.key.encode())
    elif user.client_certificate_data or user.client_certificate:
        certificate = _content(user.client_certificate_data, user.client_certificate)
        _load_pair(context, certificate, _content(user.client_key_data, user.client_key))
    return context


def _content(data: str, name: str) -> bytes:
    return base64.b64decode(data) if data else Path(name).read_bytes() if name else b""


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The library reads a client certificate from a file only; this one exists for a moment, for nobody else."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


class PluginAnswer:
    """An ExecCredential's status."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.token = str(status.get("token") or "")
        self.certificate = str(status.get("clientCertificateData") or "")
        self.key = str(status.get("clientKeyData") or "")
        until = status.get("expirationTimestamp")
        self.expires = datetime.datetime.fromisoformat(str(until)).timestamp() if until else None
        if not self.token and not (self.certificate and self.key):
            raise ValueError("it says neither a token nor a certificate with its key")


def ask_program(config: Config) -> PluginAnswer:
    """Run a kubeconfig's credential plugin. Waits for it: call it in a thread where others must go on."""
    import subprocess  # few need it, and the command line starts without

    plugin = config.user.exec
    assert plugin is not None
    where = f"{config.where}: context {config.context_name}: exec {plugin.command}"
    remedy = plugin.install_hint or "run the command by hand and see what it says"
    if plugin.api_version not in PLUGIN_VERSIONS:
        what = f"kubeconfig: exec with apiVersion {plugin.api_version!r} is not supported"
        raise ConfigurationError(what, where=where, remedy=f"use one of {', '.join(PLUGIN_VERSIONS)}")
    try:
        # Whom it may ask something has the terminal, and takes the time that people take.
        asks = may_ask(plugin)
        done = subprocess.run(
            [plugin.command, *(plugin.args or ())],
            env=_environment(plugin, config.cluster, interactive=asks),
            stdin=None if asks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if asks else subprocess.PIPE,
            timeout=None if asks else PLUGIN_SECONDS,
            check=False,
        )
        if done.returncode:
            text = (done.stderr or b"").decode(errors="replace").strip().rpartition("\n")[2]
            raise ValueError(f"it ended with code {done.returncode}: {text[:200]}".removesuffix(": "))
        return PluginAnswer(_status(done.stdout, plugin.api_version))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigurationError(
            f"kubeconfig: no credentials from a program: {why}", where=where, remedy=remedy
        ) from error


def may_ask(plugin: ExecPlugin) -> bool:
    """Whether a program may ask the person at the terminal something, by its `interactiveMode`, as kubectl reads it."""
    mode = plugin.interactive_mode or ("IfAvailable" if plugin.api_version.endswith("v1beta1") else "")
    if mode not in ("Never", "IfAvailable", "Always"):
        said = f"unknown interactiveMode: {mode!r}" if mode else "interactiveMode must be specified"
        raise ValueError(f"{said} (Never, IfAvailable or Always)")
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not at_terminal:
        raise ValueError("it has to ask (interactiveMode: Always), and standard input is not a terminal")
    return mode != "Never" and at_terminal


def _environment(plugin: ExecPlugin, cluster: Cluster, *, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        said = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "certificate-authority-data": cluster.certificate_authority_data,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "proxy-url": cluster.proxy_url,
        }
        if cluster.certificate_authority:
            content = Path(cluster.certificate_authority).read_bytes()
            said["certificate-authority-data"] = base64.b64encode(content).decode()
        for extension in cluster.extensions or ():
            if extension.get("name") == "client.authentication.k8s.io/exec":
                said["config"] = extension.get("extension")
        spec["cluster"] = {name: value for name, value in said.items() if value}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    more = {one.get("name", ""): one.get("value", "") for one in plugin.env or ()}
    return {**os.environ, **more, EXEC_INFO: json.dumps(info)}


def _status(output: bytes, version: str) -> Mapping[str, Any]:
    found: Any = json.loads(output)
    if not isinstance(found, dict) or found.get("kind") != "ExecCredential":
        raise ValueError("it does not print an ExecCredential")
    if found.get("apiVersion") != version:
        raise ValueError(f"it answers with apiVersion {found.get('apiVersion')!r} where {version!r} was asked for")
    return found.get("status") or {}
