"""Where a server is and which way leads there, as kubectl reads it: the URL, the name in its certificate, proxies.

Proxies: `proxy-url` of the kubeconfig's cluster, else `HTTPS_PROXY` (for a server without TLS `HTTP_PROXY`) unless
`NO_PROXY` names the server or it is on this machine. Used by the transport of the components and by the command line's.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from kubeqos.errors import ConfigurationError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True, slots=True)
class Address:
    """A server: how to get there, whom it must prove to be, and what stands before every path."""

    url: str
    scheme: str
    host: str
    port: int
    base: str
    name: str
    proxy: SplitResult | None = None

    @property
    def authority(self) -> str:
        """For the Host header."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def address_of(url: str, name: str = "", proxy: str = "", env: Mapping[str, str] = os.environ) -> Address:
    """Of a server's URL; `name` is the one in its certificate, where that is another."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise ConfigurationError(f"kubeconfig: {error}", where=f"server: {url}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        remedy = "write it as https://host:port"
        raise ConfigurationError("kubeconfig: the server is no address", where=f"server: {url}", remedy=remedy)
    host, base = parts.hostname, parts.path.rstrip("/")
    via = proxy or ("" if host in LOOPBACK else proxy_of(parts.scheme, host, port, env))
    return Address(parts.geturl().rstrip("/"), parts.scheme, host, port, base, name or host, _proxy(via))


def _proxy(url: str) -> SplitResult | None:
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "socks5", "socks5h") or not parts.hostname:
        remedy = "use http://host:port or socks5://host:port"
        raise ConfigurationError(f"the proxy {url} cannot be used", where="proxy-url or HTTPS_PROXY", remedy=remedy)
    return parts


def proxy_of(scheme: str, host: str, port: int, env: Mapping[str, str]) -> str:
    """What the environment says, in capitals or small letters as Go reads it."""
    name = "HTTPS_PROXY" if scheme == "https" else "HTTP_PROXY"
    found = env.get(name) or env.get(name.lower()) or ""
    return "" if _is_excepted(host, port, env.get("NO_PROXY") or env.get("no_proxy") or "") else found


def _is_excepted(host: str, port: int, rules: str) -> bool:
    for rule in filter(None, (one.strip().lower() for one in rules.split(","))):
        if rule == "*":
            return True
        name, _, of_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
        if of_port and of_port != str(port):
            continue
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:  # one of the two is a name
            domain = name.removeprefix("*").removeprefix(".")
            if (host == domain and not name.startswith(".")) or host.endswith(f".{domain}"):
                return True
    return False


def basic(proxy: SplitResult) -> str:
    """How we prove to a proxy who we are."""
    pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
