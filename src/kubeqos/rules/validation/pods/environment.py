"""Environment of a container: variables, and references to fields, resources, ConfigMaps and Secrets."""

from __future__ import annotations

from collections.abc import Mapping

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import invalid, not_found, not_supported, required
from kubeqos.rules.validation.common import NO_MAP, Errors, Raw, check_local_path, check_no_backsteps, complain

ENV_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_CONVERTIBLE = frozenset(
    (*ENV_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "spec.host", "status.phase")
)
_RESOURCE_FIELDS = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory",
    "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_HUGE_PAGE_FIELDS = ("requests.hugepages-", "limits.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SIZE_NAMES = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
_SOURCES = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_TOO_MANY = "may not have more than one field specified at a time"


def check_env(out: Errors, path: str, variables: list[Raw]) -> None:
    for index, variable in enumerate(variables):
        name, where = variable.get("name", ""), f"{path}[{index}]"
        if not name:
            out.append(required(f"{where}.name"))
        elif wrong := names.env_var_name(name):
            complain(out, f"{where}.name", name, wrong)
        source = variable.get("valueFrom")
        if source is not None:
            _check_value_from(out, f"{where}.valueFrom", source, variable.get("value", ""))


def _check_value_from(out: Errors, path: str, source: Raw, value: str) -> None:
    given = [field for field in _VALUE_SOURCES if source.get(field) is not None]
    for field in given:
        _VALUE_SOURCES[field](out, f"{path}.{field}", source[field])
    if not given:
        out.append(invalid(path, "", f"must specify one of: {_SOURCES}"))
    elif value:
        out.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        out.append(invalid(path, "", _TOO_MANY))


def _check_env_field(out: Errors, path: str, selector: Raw) -> None:
    check_field_selector(out, path, selector, ENV_FIELDS)


def check_field_selector(out: Errors, path: str, selector: Raw, supported: tuple[str, ...]) -> None:
    """A reference to a field of the pod."""
    field = selector.get("fieldPath", "")
    if not field:
        out.append(required(f"{path}.fieldPath"))
        return
    base, subscript = _split_subscript(field)
    if problem := _conversion_problem(selector.get("apiVersion", "v1"), field, base, subscript):
        out.append(invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {problem}"))
    elif subscript is not None:
        key = subscript.lower() if base == "metadata.annotations" else subscript
        complain(out, path, key, names.qualified_name(key))
    elif (real := "spec.nodeName" if field == "spec.host" else field) not in supported:
        out.append(not_supported(f"{path}.fieldPath", real, supported))


def _split_subscript(field: str) -> tuple[str, str | None]:
    """`metadata.labels['x']` as `("metadata.labels", "x")`."""
    base, mark, key = field.removesuffix("']").partition("['")
    return (base, key) if mark and base and field.endswith("']") else (field, None)


def _conversion_problem(version: str, field: str, base: str, subscript: str | None) -> str | None:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if subscript is not None:
        fits = base in ("metadata.annotations", "metadata.labels")
        return None if fits else f"field label does not support subscript: {field}"
    return None if field in _CONVERTIBLE else f"field label not supported: {field}"


def _check_env_resource(out: Errors, path: str, selector: Raw) -> None:
    check_resource_selector(out, path, selector, volume=False)


def check_resource_selector(out: Errors, path: str, selector: Raw, *, volume: bool) -> None:
    """A reference to a container's request or limit."""
    resource = selector.get("resource", "")
    if volume and not selector.get("containerName"):
        out.append(required(f"{path}.containerName"))
    elif not resource:
        out.append(required(f"{path}.resource"))
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGE_FIELDS):
        out.append(not_supported(f"{path}.resource", resource, _RESOURCE_FIELDS))
    divisor = Quantity.parse(selector.get("divisor", "0"))
    if not divisor.is_zero:
        _check_divisor(out, f"{path}.divisor", resource, str(divisor))


def _check_divisor(out: Errors, path: str, resource: str, divisor: str) -> None:
    if resource in ("limits.cpu", "requests.cpu"):
        if divisor not in ("1m", "1"):
            why = "only divisor's values 1m and 1 are supported with the cpu resource"
            out.append(invalid(path, resource, why))
        return
    what = "hugepages" if resource.startswith(_HUGE_PAGE_FIELDS) else _SIZE_NAMES.get(resource.partition(".")[2])
    if what and divisor not in _SIZES and resource.startswith(("limits.", "requests.")):
        why = f"only divisor's values {', '.join(_SIZES)} are supported with the {what} resource"
        out.append(invalid(path, resource, why))


def _check_key_selector(out: Errors, path: str, selector: Raw) -> None:
    name, key = selector.get("name", ""), selector.get("key", "")
    complain(out, f"{path}.name", name, names.dns_subdomain(name))
    if not key:
        out.append(required(f"{path}.key"))
    else:
        complain(out, f"{path}.key", key, names.config_key(key))


def _check_file_selector(out: Errors, path: str, selector: Raw) -> None:
    volume, file, key = selector.get("volumeName", ""), selector.get("path", ""), selector.get("key", "")
    if not key:
        out.append(required(f"{path}.key"))
    else:
        complain(out, f"{path}.key", key, names.env_var_name(key))
    if not volume:
        out.append(required(f"{path}.volumeName"))
    else:
        complain(out, f"{path}.volumeName", volume, names.dns_label(volume))
    if not file:
        out.append(required(f"{path}.path"))
    else:
        check_no_backsteps(out, f"{path}.path", file)


def check_file_volumes(out: Errors, path: str, variables: list[Raw], volumes: Mapping[str, Raw]) -> None:
    """Variables that are read from a file need an emptyDir to read it from."""
    for index, variable in enumerate(variables):
        source = (variable.get("valueFrom") or NO_MAP).get("fileKeyRef")
        if source is None:
            continue
        name, where = source.get("volumeName", ""), f"{path}[{index}].valueFrom.fileKeyRef.volumeName"
        if name not in volumes:
            out.append(not_found(where, name))
        elif volumes[name].get("emptyDir") is None:
            out.append(invalid(where, name, "referenced volume must be of type emptyDir"))


_VALUE_SOURCES = {
    "fieldRef": _check_env_field,
    "resourceFieldRef": _check_env_resource,
    "configMapKeyRef": _check_key_selector,
    "secretKeyRef": _check_key_selector,
    "fileKeyRef": _check_file_selector,
}


def check_env_from(out: Errors, path: str, sources: list[Raw]) -> None:
    for index, source in enumerate(sources):
        where, prefix = f"{path}[{index}]", source.get("prefix", "")
        if prefix:
            complain(out, f"{where}.prefix", prefix, names.env_var_name(prefix))
        given = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        for field in given:
            name = source[field].get("name", "")
            if not name:
                out.append(required(f"{where}.{field}.name"))
            else:
                complain(out, f"{where}.{field}.name", name, names.generated(names.dns_subdomain)(name))
        if not given:
            out.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            out.append(invalid(path, "", _TOO_MANY))


def check_downward_file(out: Errors, path: str, file: Raw) -> None:
    """One file of a downward API volume."""
    target = file.get("path", "")
    if not target:
        out.append(required(f"{path}.path"))
    check_local_path(out, f"{path}.path", target, reserved=True)
    field, resource = file.get("fieldRef"), file.get("resourceFieldRef")
    if field is not None:
        check_field_selector(out, f"{path}.fieldRef", field, VOLUME_FIELDS)
        if resource is not None:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            out.append(invalid(path, "resource", why))
    elif resource is not None:
        check_resource_selector(out, f"{path}.resourceFieldRef", resource, volume=True)
    else:
        out.append(required(path, "one of fieldRef and resourceFieldRef is required"))
