"""Containers of a pod: regular, init and ephemeral ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kubeqos.model import names
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_found, not_supported, required, too_many
from kubeqos.rules.qos.classes import Level, request_errors
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_choice,
    check_supported,
    complain,
)
from kubeqos.rules.validation.pods.environment import check_env, check_env_from, check_file_volumes
from kubeqos.rules.validation.pods.probes import PROBES, check_lifecycle, check_probes
from kubeqos.rules.validation.pods.security import check_container_context
from kubeqos.rules.validation.pods.volumes import PULL_POLICIES, Volumes, check_devices, check_mounts
from kubeqos.rules.validation.resources import check_container_requirements

PROTOCOLS = ("SCTP", "TCP", "UDP")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RESIZE_RESOURCES = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_MAX_RESTART_RULES = 20
_MAX_EXIT_CODES = 255
_NOT_FOR_INIT = "may not be set for init containers without restartPolicy=Always"
_NOT_FOR_EPHEMERAL = "cannot be set for an Ephemeral Container"
_EPHEMERAL_FORBIDDEN = (
    "ports", "resources", "resizePolicy", "restartPolicy", "livenessProbe", "readinessProbe", "startupProbe",
    "lifecycle",
)  # fmt: skip


class PodContext(NamedTuple):
    """What the containers of a pod need to know about the pod."""

    volumes: Volumes
    claims: frozenset[str]
    grace: int | None
    restart_policy: str
    host_users: bool
    system: str | None
    """`spec.os.name`, if the pod has an `os`."""
    is_pod: bool
    """A pod, not the template of one: pods are held to a few rules more."""


def check_containers(out: Errors, path: str, containers: Sequence[Raw], pod: PodContext) -> None:
    if not containers:
        out.append(required(path))
        return
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where, name = f"{path}[{index}]", container.get("name", "")
        _check_container(out, where, container, pod)
        if name in seen:
            out.append(duplicate(f"{where}.name", name))
        seen.add(name)
        _check_running(out, where, container, pod)
        _check_restart_policy(out, where, container)
    _check_host_ports(out, path, containers)


def check_init_containers(
    out: Errors, path: str, containers: Sequence[Raw], regular: Sequence[Raw], pod: PodContext
) -> None:
    seen = {container.get("name", "") for container in regular}
    for index, container in enumerate(containers):
        where, name = f"{path}[{index}]", container.get("name", "")
        _check_container(out, where, container, pod)
        _check_restart_policy(out, where, container)
        if name in seen:
            out.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        _check_host_ports(out, path, (container,))
        if container.get("restartPolicy") == "Always":
            _check_running(out, where, container, pod)
        else:
            present = (field for field in ("lifecycle", *PROBES) if container.get(field) is not None)
            out.extend(forbidden(f"{where}.{field}", _NOT_FOR_INIT) for field in present)
            for number, policy in enumerate(container.get("resizePolicy") or NO_LIST):
                if policy.get("restartPolicy") == "RestartContainer":
                    why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                    out.append(invalid(f"{where}.resizePolicy[{number}].restartPolicy", "RestartContainer", why))


def check_ephemeral_containers(out: Errors, path: str, spec: Raw, pod: PodContext) -> None:
    others = {one.get("name", "") for key in ("containers", "initContainers") for one in spec.get(key) or NO_LIST}
    seen = set(others)
    for index, container in enumerate(spec.get("ephemeralContainers") or NO_LIST):
        where, name = f"{path}[{index}]", container.get("name", "")
        _check_container(out, where, container, pod)
        if name in seen:
            out.append(duplicate(f"{where}.name", name))
        seen.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            out.append(not_found(f"{where}.targetContainerName", target))
        present = (field for field in _EPHEMERAL_FORBIDDEN if container.get(field))
        out.extend(forbidden(f"{where}.{field}", _NOT_FOR_EPHEMERAL) for field in present)
        for number, mount in enumerate(container.get("volumeMounts") or NO_LIST):
            present = (field for field in ("subPath", "subPathExpr") if mount.get(field))
            out.extend(forbidden(f"{where}.volumeMounts[{number}].{field}", _NOT_FOR_EPHEMERAL) for field in present)


def _check_container(out: Errors, path: str, container: Raw, pod: PodContext) -> None:
    """What is common to all kinds of containers."""
    # In the order of Kubernetes, here and everywhere in validation: a refusal lists the errors as they were found.
    get = container.get
    name, image = get("name"), get("image")
    if not name:
        out.append(required(f"{path}.name"))
    elif wrong := names.dns_label(name):
        complain(out, f"{path}.name", name, wrong)
    if not image:
        out.append(required(f"{path}.image"))
    elif pod.is_pod and image != image.strip():  # in a template a space may be a mark for tools
        out.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    policy = get("terminationMessagePolicy", "")
    if policy not in _MESSAGE_POLICIES:
        check_choice(out, f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES)
    if ports := get("ports"):
        _check_ports(out, f"{path}.ports", ports)
    if env := get("env"):
        check_env(out, f"{path}.env", env)
        check_file_volumes(out, f"{path}.env", env, pod.volumes)
    if sources := get("envFrom"):
        check_env_from(out, f"{path}.envFrom", sources)
    if get("volumeMounts"):
        check_mounts(out, f"{path}.volumeMounts", container, pod.volumes)
    if get("volumeDevices"):
        check_devices(out, f"{path}.volumeDevices", container, pod.volumes)
    policy = get("imagePullPolicy", "")
    if policy not in PULL_POLICIES:
        check_choice(out, f"{path}.imagePullPolicy", policy, PULL_POLICIES)
    if resources := get("resources"):
        check_container_requirements(out, f"{path}.resources", resources, pod.claims)
        if classes := resources.get("qosResources"):
            out.extend(request_errors(classes, f"{path}.resources.qosResources", level=Level.CONTAINER))
    if policies := get("resizePolicy"):
        _check_resize_policy(out, f"{path}.resizePolicy", policies, pod.restart_policy)
    context = get("securityContext")
    if context is not None:
        check_container_context(out, f"{path}.securityContext", context, host_users=pod.host_users)


def _check_running(out: Errors, path: str, container: Raw, pod: PodContext) -> None:
    """Hooks and probes, for containers that keep running."""
    lifecycle = container.get("lifecycle")
    if lifecycle is not None:
        check_lifecycle(out, f"{path}.lifecycle", lifecycle, pod.grace, pod.system)
    check_probes(out, path, container, pod.grace)


def _check_ports(out: Errors, path: str, ports: list[Raw]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name", "")
        if name:
            if wrong := names.port_name(name):
                complain(out, f"{where}.name", name, wrong)
            elif name in seen:
                out.append(duplicate(f"{where}.name", name))
            else:
                seen.add(name)
        number, host = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            out.append(required(f"{where}.containerPort"))
        elif wrong := names.port_number(number):
            complain(out, f"{where}.containerPort", number, wrong)
        if host:
            complain(out, f"{where}.hostPort", host, names.port_number(host))
        check_choice(out, f"{where}.protocol", port.get("protocol", ""), PROTOCOLS)


def _check_host_ports(out: Errors, path: str, containers: Sequence[Raw]) -> None:
    """No two ports of the host may be the same. The index is that of the list given, as in Kubernetes."""
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or NO_LIST):
            host = port.get("hostPort")
            if host:
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{host}"
                if key in taken:
                    out.append(duplicate(f"{path}[{index}].ports[{number}].hostPort", key))
                taken.add(key)


def _check_restart_policy(out: Errors, path: str, container: Raw) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or NO_LIST
    if policy is None:
        if rules:
            out.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy not in _RESTART_POLICIES:
        out.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    if len(rules) > _MAX_RESTART_RULES:
        out.append(too_many(f"{path}.restartPolicyRules", len(rules), _MAX_RESTART_RULES))
    for index, rule in enumerate(rules):
        _check_restart_rule(out, f"{path}.restartPolicyRules[{index}]", rule)


def _check_restart_rule(out: Errors, path: str, rule: Raw) -> None:
    check_supported(out, f"{path}.action", rule.get("action", ""), ("Restart", "RestartAllContainers"))
    codes = rule.get("exitCodes")
    if codes is None:
        out.append(required(f"{path}.exitCodes", "must be specified"))
        return
    check_supported(out, f"{path}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn"))
    values = codes.get("values") or NO_LIST
    if len(values) > _MAX_EXIT_CODES:
        out.append(too_many(f"{path}.exitCodes.values", len(values), _MAX_EXIT_CODES))


def _check_resize_policy(out: Errors, path: str, policies: list[Raw], restart_policy: str) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            out.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        check_choice(out, path, name, _RESIZE_RESOURCES)
        check_choice(out, path, restart, _RESIZE_POLICIES)
        if restart_policy == "Never" and restart != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            out.append(invalid(path, restart, why))


def all_containers(spec: Raw) -> list[tuple[str, Raw]]:
    """Every container of a pod with its path below the spec, in the order Kubernetes visits them."""
    return [
        (f"{key}[{index}]", container)
        for key in ("initContainers", "containers", "ephemeralContainers")
        for index, container in enumerate(spec.get(key) or NO_LIST)
    ]


def check_host_network_ports(out: Errors, path: str, spec: Raw, *, is_pod: bool) -> None:
    """On the host's network a container port is the host's port."""
    for index, container in enumerate(spec.get("containers") or NO_LIST):
        for number, port in enumerate(container.get("ports") or NO_LIST):
            host = port.get("hostPort", 0)
            if (is_pod or host) and host != port.get("containerPort", 0):
                why = "must match `containerPort` when `hostNetwork` is true"
                out.append(invalid(f"{path}.containers[{index}].ports[{number}].hostPort", host, why))


def claims_of(spec: Raw) -> frozenset[str]:
    """Names of the claims that the containers of a pod may use."""
    names_given = ((claim or NO_MAP).get("name") for claim in spec.get("resourceClaims") or NO_LIST)
    return frozenset(name for name in names_given if name)
