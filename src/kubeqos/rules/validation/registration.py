"""Validation of APIService: a group version, and which Service serves it where that is not this server."""

from __future__ import annotations

from kubeqos.model import names
from kubeqos.rules.fielderror import invalid, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_supported, complain
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of

_MOST_GROUP, _MOST_VERSION = 20000, 1000
_STATES = ("True", "False", "Unknown")


def check_api_service(out: Errors, raw: Raw) -> None:
    spec = raw.get("spec") or NO_MAP
    group, version = spec.get("group", ""), spec.get("version", "")
    needed = f"{version}.{group}"

    def name_rule(name: str) -> names.Complaints:
        wrong = names.path_segment(name)
        if wrong or name == needed:
            return wrong
        return (f'must be `spec.version+"."+spec.group`: "{needed}"',)

    check_meta(out, meta_of(raw), name_rule, namespaced=False)
    if not group and version != "v1":
        out.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    if group:
        complain(out, "spec.group", group, names.dns_subdomain(group))
    complain(out, "spec.version", version, names.dns_1035_label(version))
    for field, most in (("groupPriorityMinimum", _MOST_GROUP), ("versionPriority", _MOST_VERSION)):
        number = spec.get(field, 0)
        if not 0 < number <= most:
            out.append(invalid(f"spec.{field}", number, f"must be positive and less than {most}"))
    _check_service(out, spec)


def _check_service(out: Errors, spec: Raw) -> None:
    service, bundle, insecure = spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            out.append(invalid("spec.caBundle", f"{len(bundle)} bytes", "local APIServices may not have a caBundle"))
        if insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            out.append(invalid("spec.insecureSkipTLSVerify", insecure, why))
        return
    for field in ("namespace", "name"):
        if not service.get(field):
            out.append(required(f"spec.service.{field}"))
    port = service.get("port", 0)
    if wrong := names.port_number(port):
        out.append(invalid("spec.service.port", port, f"port is not valid: {', '.join(wrong)}"))
    if insecure and bundle:
        out.append(invalid("spec.insecureSkipTLSVerify", insecure, "may not be true if caBundle is present"))


def check_api_service_status(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    for index, one in enumerate((raw.get("status") or NO_MAP).get("conditions") or NO_LIST):
        check_supported(out, f"status.conditions[{index}].status", one.get("status", ""), _STATES)
