"""Security contexts of pods and containers: as much as decides whether a spec makes sense."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeqos.model import names
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_supported, required, too_long
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_local_path,
    check_supported,
    complain,
    go_struct,
)

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_CONTEXT_FIELDS = (
    "capabilities", "privileged", "sELinuxOptions", "windowsOptions", "runAsUser", "runAsGroup", "runAsNonRoot",
    "readOnlyRootFilesystem", "allowPrivilegeEscalation", "procMount", "seccompProfile", "appArmorProfile",
)  # fmt: skip
_OWN_USERS = "when `hostUsers` is false"
_NOT_WINDOWS = "cannot be set for a windows pod"
_LINUX_SPEC = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_LINUX_POD_CONTEXT = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_LINUX_CONTEXT = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
_MAX_PROFILE_BYTES = 4095
_MAX_SYSCTL = 253
_SYSCTL_PART = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"^({_SYSCTL_PART}[\./])*{_SYSCTL_PART}$"
_is_sysctl = re.compile(_SYSCTL).fullmatch
_NAMESPACED_SYSCTLS = {
    "hostNetwork": ("net.",),
    "hostIPC": ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."),
}
_POD_CHOICES = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}


def check_pod_context(out: Errors, path: str, context: Raw) -> None:
    _check_ids(out, path, context, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or NO_LIST):
        complain(out, f"{path}.supplementalGroups[{index}]", group, names.user_or_group_id(group))
    _check_sysctls(out, f"{path}.sysctls", context.get("sysctls") or NO_LIST)
    for field, supported in _POD_CHOICES.items():
        value = context.get(field)
        if value is not None:
            check_supported(out, f"{path}.{field}", value, supported)
    _check_profiles(out, path, context)


def check_host_sysctls(out: Errors, path: str, spec: Raw) -> None:
    """A pod in the host's namespace would change the host's settings."""
    for index, sysctl in enumerate((spec.get("securityContext") or NO_MAP).get("sysctls") or NO_LIST):
        name = str(sysctl.get("name", ""))
        for field, prefixes in _NAMESPACED_SYSCTLS.items():
            if spec.get(field) and name.replace("/", ".").startswith(prefixes):
                why = f"may not be specified when '{field}' is true"
                out.append(invalid(f"{path}.sysctls[{index}].name", name, why))


def _check_ids(out: Errors, path: str, context: Raw, fields: tuple[str, ...]) -> None:
    for field in fields:
        value = context.get(field)
        if value is not None and (wrong := names.user_or_group_id(value)):
            complain(out, f"{path}.{field}", value, wrong)


def _check_sysctls(out: Errors, path: str, sysctls: Sequence[Raw]) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, where = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            out.append(required(where))
        elif len(name) > _MAX_SYSCTL or not _is_sysctl(name):
            why = f"must have at most {_MAX_SYSCTL} characters and match regex {_SYSCTL}"
            out.append(invalid(where, name, why))
        elif name in seen:
            out.append(duplicate(where, name))
        seen.add(name)


def check_container_context(out: Errors, path: str, context: Raw, *, host_users: bool) -> None:
    _check_ids(out, path, context, ("runAsUser", "runAsGroup"))
    proc_mount = context.get("procMount")
    if proc_mount is not None:
        check_supported(out, f"{path}.procMount", proc_mount, ("Default", "Unmasked"))
        if host_users and proc_mount == "Unmasked":
            out.append(invalid(f"{path}.procMount", proc_mount, "`hostUsers` must be false to use `Unmasked`"))
    if context.get("allowPrivilegeEscalation") is False:
        shown = go_struct(context, _CONTEXT_FIELDS)
        if context.get("privileged"):
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            out.append(invalid(path, shown, why))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or NO_LIST):
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            out.append(invalid(path, shown, why))
    _check_profiles(out, path, context)


def _check_profiles(out: Errors, path: str, context: Raw) -> None:
    seccomp, app_armor = context.get("seccompProfile"), context.get("appArmorProfile")
    if seccomp is not None:
        _check_seccomp(out, f"{path}.seccompProfile", seccomp)
    if app_armor is not None:
        _check_app_armor(out, f"{path}.appArmorProfile", app_armor)


def _check_seccomp(out: Errors, path: str, profile: Raw) -> None:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        out.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        out.append(not_supported(f"{path}.type", kind, _PROFILES))
    if kind == "Localhost":
        if local is None:
            out.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            check_local_path(out, f"{path}.localhostProfile", local)
    elif local is not None:
        shown = go_struct(profile, ("type", "localhostProfile"))
        out.append(invalid(f"{path}.localhostProfile", shown, "can only be set when seccomp type is Localhost"))


def _check_app_armor(out: Errors, path: str, profile: Raw) -> None:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    where = f"{path}.localhostProfile"
    if not kind:
        out.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    elif kind not in _PROFILES:
        out.append(not_supported(f"{path}.type", kind, _PROFILES))
    elif kind != "Localhost":
        if local is not None:
            out.append(invalid(where, local, "can only be set when AppArmor type is Localhost"))
    elif not local:
        out.append(required(where, "must be set when AppArmor type is Localhost"))
    else:
        if local != local.strip():
            out.append(invalid(where, local, "must not be padded with whitespace"))
        if len(local.encode()) > _MAX_PROFILE_BYTES:
            out.append(too_long(where, _MAX_PROFILE_BYTES))


def check_host_users(out: Errors, path: str, spec: Raw) -> None:
    """A pod with its own user namespace may not share the host's other namespaces. The spelling is Kubernetes'."""
    if spec.get("hostUsers") is not False:
        return
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(field):
            out.append(forbidden(f"{path}.{shown}", _OWN_USERS))
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(key) or NO_LIST):
            if container.get("volumeDevices"):
                out.append(forbidden(f"{path}.{key}[{index}].volumeDevices", _OWN_USERS))


def check_windows(out: Errors, path: str, spec: Raw) -> None:
    """What only Linux has may not be set for a pod that says it is for Windows."""
    context = spec.get("securityContext") or NO_MAP
    out.extend(
        forbidden(f"{path}.{field}", _NOT_WINDOWS) for field in _LINUX_SPEC if spec.get(field) not in (None, False)
    )
    given = (field for field in _LINUX_POD_CONTEXT if context.get(field) is not None)
    out.extend(forbidden(f"{path}.securityContext.{field}", _NOT_WINDOWS) for field in given)
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(key) or NO_LIST):
            own = container.get("securityContext") or NO_MAP
            where = f"{path}.{key}[{index}].securityContext"
            given = (field for field in _LINUX_CONTEXT if own.get(field) is not None)
            out.extend(forbidden(f"{where}.{field}", _NOT_WINDOWS) for field in given)
