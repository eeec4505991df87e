"""Probes and lifecycle hooks of a container."""

from __future__ import annotations

from kubeqos.model import names
from kubeqos.rules.fielderror import forbidden, invalid, required
from kubeqos.rules.validation.common import (
    NO_LIST,
    Errors,
    Raw,
    check_non_negative,
    check_port_or_name,
    check_supported,
    complain,
)

_SCHEMES = ("HTTP", "HTTPS")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_ONLY_ONE = "may not specify more than 1 handler type"
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_REAL_TIME = ["RTMIN", "RTMAX", *(f"RTMIN+{n}" for n in range(1, 16)), *(f"RTMAX-{n}" for n in range(1, 15))]
_SIGNALS = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP "
    "TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
)
_STOP_SIGNALS = {
    "linux": sorted(f"SIG{name}" for name in (*_SIGNALS.split(), *_REAL_TIME)),
    "windows": ["SIGKILL", "SIGTERM"],
}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check_probes(out: Errors, path: str, container: Raw, grace: int | None) -> None:
    """All probes of a container that may have them."""
    for kind in PROBES:
        probe = container.get(kind)
        if probe is not None:
            _check_probe(out, f"{path}.{kind}", kind, probe, grace)


def _check_probe(out: Errors, path: str, kind: str, probe: Raw, grace: int | None) -> None:
    _check_handler(out, path, probe, _PROBE_HANDLERS, grace)
    for field in _PROBE_NUMBERS:
        check_non_negative(out, f"{path}.{field}", probe.get(field))
    own_grace = probe.get("terminationGracePeriodSeconds")
    if own_grace is not None and own_grace <= 0:
        out.append(invalid(f"{path}.terminationGracePeriodSeconds", own_grace, "must be greater than 0"))
    if kind == "readinessProbe":
        if own_grace is not None:
            why = "must not be set for readinessProbes"
            out.append(invalid(f"{path}.terminationGracePeriodSeconds", own_grace, why))
    elif probe.get("successThreshold", 1) != 1:
        out.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))


def check_lifecycle(out: Errors, path: str, lifecycle: Raw, grace: int | None, system: str | None) -> None:
    """Hooks, and the signal that stops the container; `system` is what the pod says it runs on."""
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if handler is not None:
            _check_handler(out, f"{path}.{hook}", handler, _HOOK_HANDLERS, grace)
    signal = lifecycle.get("stopSignal")
    if signal is not None:
        if system is None:
            why = "may not be set for containers with empty `spec.os.name`"
            out.append(forbidden(f"{path}.stopSignal", why))
        else:
            check_supported(out, f"{path}.stopSignal", signal, _STOP_SIGNALS.get(system, (signal,)))


def _check_handler(out: Errors, path: str, handler: Raw, kinds: tuple[str, ...], grace: int | None) -> None:
    found = False
    for kind in kinds:
        action = handler.get(kind)
        if action is None:
            continue
        if found:
            out.append(forbidden(f"{path}.{kind}", _ONLY_ONE))
            continue
        found = True
        _check_action(out, f"{path}.{kind}", kind, action, grace)
    if not found:
        out.append(required(path, "must specify a handler type"))


def _check_action(out: Errors, path: str, kind: str, action: Raw, grace: int | None) -> None:
    if kind == "exec":
        if not action.get("command"):
            out.append(required(f"{path}.command"))
    elif kind == "httpGet":
        _check_http_get(out, path, action)
    elif kind == "sleep":
        seconds = action.get("seconds", 0)
        if grace is not None and not 0 <= seconds <= grace:
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            out.append(invalid(path, seconds, why))
    else:
        check_port_or_name(out, f"{path}.port", action.get("port"))


def _check_http_get(out: Errors, path: str, action: Raw) -> None:
    if not action.get("path"):
        out.append(required(f"{path}.path"))
    check_port_or_name(out, f"{path}.port", action.get("port"))
    check_supported(out, f"{path}.scheme", action.get("scheme", ""), _SCHEMES)
    for header in action.get("httpHeaders") or NO_LIST:
        name = header.get("name", "")
        complain(out, f"{path}.httpHeaders", name, names.http_header(name))
