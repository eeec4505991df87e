"""Validation of ConfigMap and Secret."""

from __future__ import annotations

import binascii

from kubeqos.codec import JsonError, decode_json
from kubeqos.model import names
from kubeqos.model.text.gojson import syntax_problem
from kubeqos.rules.fielderror import forbidden, invalid, required, too_long
from kubeqos.rules.validation.common import NO_MAP, Errors, Raw, check_immutable, complain
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of

MAX_BYTES = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_DOCKER_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}


def check_config_map(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    data, binary = raw.get("data") or NO_MAP, raw.get("binaryData") or NO_MAP
    for key in data:
        complain(out, f"data[{key}]", key, names.config_key(key))
        if key in binary:
            out.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        complain(out, f"binaryData[{key}]", key, names.config_key(key))
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    if size > MAX_BYTES:
        out.append(too_long("[]", MAX_BYTES))  # Kubernetes' way to print a path without a name


def check_config_map_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_frozen(out, raw, old, ("data", "binaryData"))
    check_config_map(out, raw)


def _check_frozen(out: Errors, raw: Raw, old: Raw, fields: tuple[str, ...]) -> None:
    if not old.get("immutable"):
        return
    if not raw.get("immutable"):
        out.append(forbidden("immutable", _FROZEN))
    changed = (field for field in fields if (raw.get(field) or NO_MAP) != (old.get(field) or NO_MAP))
    out.extend(forbidden(field, _FROZEN) for field in changed)


def check_secret(out: Errors, raw: Raw) -> None:
    meta = meta_of(raw)
    check_meta(out, meta, names.dns_subdomain, namespaced=True)
    data = raw.get("data") or NO_MAP
    for key in data:
        complain(out, f"data[{key}]", key, names.config_key(key))
    if sum(map(_decoded_size, data.values())) > MAX_BYTES:
        out.append(too_long("data", MAX_BYTES))
    kind = raw.get("type", "")
    if kind == "kubernetes.io/service-account-token":
        if not (meta.get("annotations") or NO_MAP).get(_ACCOUNT_NAME):
            out.append(required(f"metadata.annotations[{_ACCOUNT_NAME}]"))
    elif kind in _DOCKER_KEYS:
        _check_docker_config(out, _DOCKER_KEYS[kind], data)
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            out.extend((required("data[username]"), required("data[password]")))
    elif kind == "kubernetes.io/ssh-auth":
        if not data.get("ssh-privatekey"):
            out.append(required("data[ssh-privatekey]"))
    elif kind == "kubernetes.io/tls":
        out.extend(required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data)


def _check_docker_config(out: Errors, key: str, data: Raw) -> None:
    if key not in data:
        out.append(required(f"data[{key}]"))
        return
    content = binascii.a2b_base64(data[key])
    try:
        decoded = decode_json(content)
    except JsonError as error:
        why = syntax_problem(content) or str(error)
        out.append(invalid(f"data[{key}]", "<secret contents redacted>", why))
        return
    if not isinstance(decoded, dict):
        why = "json: cannot unmarshal the contents into a map"
        out.append(invalid(f"data[{key}]", "<secret contents redacted>", why))


def check_secret_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    check_immutable(out, "type", raw.get("type", ""), old.get("type", ""))
    _check_frozen(out, raw, old, ("data",))
    check_secret(out, raw)


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")
