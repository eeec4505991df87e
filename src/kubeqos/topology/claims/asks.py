"""What each container of a pod asks of compute drivers, and whether that agrees with its requests and limits.

Two forms (KEP-3675): claims named in `resources.claims`, and the annotations `cci.resources.alpha.kubernetes.io/…`
whose policies are short names for attributes. Pure; called by the manager on admission and by the API server's
admission, which turns the same findings into field errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.model.annotations.computepolicies import DEFAULT_POLICY, compute_policy
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.objects import ContainerView, PodView
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import FieldError, invalid, required
from kubeqos.topology.attributes import Siblings
from kubeqos.topology.claims.document import Problem
from kubeqos.topology.claims.parameters import CONFIG_KEY, Group, Parameters, parse
from kubeqos.topology.claims.resolving import ResolvedClaim, Unresolved

POLICIES: Mapping[str, Mapping[str, Any] | None] = {
    DEFAULT_POLICY: None,  # as a pod without claim
    "cci-exclusive": {"exclusive": True},
    "cci-shared": {"exclusive": False},
    "sibling-cores-required": {"exclusive": True, "siblings": Siblings.REQUIRED},
    "sibling-cores-preferred": {"exclusive": True, "siblings": Siblings.PREFERRED},
    "no-sibling-cores": {"exclusive": True, "siblings": Siblings.DENIED},
}
"""Other names go to the driver as they are: "new policies can be provided through CCI drivers"."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of `CCIAdmit`: a claim, and what its parameters ask for. Without `driver`, the node's only one."""

    namespace: str
    claim_uid: str
    claim_name: str
    parameters: Parameters
    driver: str = ""
    class_name: str = ""
    within: CpuSet = NO_CPUS
    """Where somebody has chosen its cores already: only from these."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Why a container's ask cannot be put: field errors, and whether waiting may help."""

    errors: tuple[FieldError, ...]
    retry: bool = False

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


def asks_of(
    pod: PodView, container: ContainerView, path: str, claims: Mapping[str, ResolvedClaim | Unresolved]
) -> tuple[Ask, ...] | Wrong:
    """What a container asks of drivers; empty for a standard container. `path` is its field, `spec.containers[0]`."""
    policy = compute_policy(pod.metadata.annotations, container.name)
    names = [use.name for use in container.resources.claims]
    if policy and names:
        detail = f"has claims and the policy {policy[1]!r} of an annotation; use one of them"
        return Wrong((invalid(f"{path}.resources.claims", names[0], detail),))
    if policy:
        return _ask_by_policy(pod, container, path, *policy)
    asks = []
    for index, name in enumerate(names):
        where = f"{path}.resources.claims[{index}].name"
        claim = claims.get(name) or Unresolved(f"pod has no claim {name!r}", retry=False)
        if isinstance(claim, Unresolved):
            return Wrong((invalid(where, name, claim.message),), claim.retry)
        found = parse(claim.parameters)
        if isinstance(found, Problem):
            return Wrong((invalid(where, name, f"{claim.source}: {found.shown()}"),))
        asks.append(
            Ask(
                claim.namespace, claim.claim_uid, claim.claim_name, found, claim.driver, claim.class_name, claim.within
            ),
        )
    wrong = disagreements(container, path, [ask.parameters for ask in asks]) if asks else ()
    return Wrong(wrong) if wrong else tuple(asks)


def disagreements(container: ContainerView, path: str, parameters: Sequence[Parameters]) -> tuple[FieldError, ...]:
    """Where requests and limits differ from the cores of the claims (KEP-3675, Scheduling: they "have to match")."""
    least = sum(each.least for each in parameters)
    most = sum(each.most for each in parameters)
    found = []
    for kind, given, wanted in (
        ("requests", container.resources.requests.get("cpu"), least),
        ("limits", container.resources.limits.get("cpu"), most),
    ):
        field = f"{path}.resources.{kind}[cpu]"
        if given is None:
            found.append(required(field, f"must be {wanted}, the cores of the container's claims"))
        elif given != Quantity.from_int(wanted):
            found.append(invalid(field, str(given), f"must be {wanted}, the cores of the container's claims"))
    return tuple(found)


def check_pod(pod: PodView, claims: Mapping[str, ResolvedClaim | Unresolved]) -> tuple[FieldError, ...]:
    """Everything wrong with what a pod asks of drivers; for the API server's admission. Unknown claims are no error."""
    found: list[FieldError] = []
    for group, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            asks = asks_of(pod, container, f"spec.{group}[{index}]", claims)
            if isinstance(asks, Wrong) and not asks.retry:
                found += asks.errors
    return tuple(found)


def check_config(data: Mapping[str, str]) -> tuple[FieldError, ...]:
    """What is wrong with the parameters in a ConfigMap's `data`."""
    if CONFIG_KEY not in data:
        return (required(f"data[{CONFIG_KEY}]", "holds the parameters of a claim"),)
    found = parse(data[CONFIG_KEY])
    return (invalid(f"data[{CONFIG_KEY}]", "", found.shown()),) if isinstance(found, Problem) else ()


def _ask_by_policy(
    pod: PodView, container: ContainerView, path: str, annotation: str, policy: str
) -> tuple[Ask, ...] | Wrong:
    """A policy takes its number of cores from the container's requests and limits."""
    request, limit = container.resources.requests.get("cpu"), container.resources.limits.get("cpu")
    field = f"{path}.resources.requests[cpu]"
    if request is None or request.is_zero:
        return Wrong((required(field, f"policy {policy!r} takes the number of cores from here"),))
    meaning = POLICIES.get(policy)
    group = Group(request.value(), max(request.value(), limit.value() if limit else 0), **(meaning or {}))
    if meaning is None or not group.exclusive:
        name = policy if meaning is None else ""
        return (_policy_ask(pod, container, Parameters((group,), name)),)
    if not request.is_integer or limit != request:
        detail = f"policy {policy!r} gives whole cores: requests and limits must be the same whole number"
        return Wrong((invalid(field, str(request), detail),))
    return (_policy_ask(pod, container, Parameters((group,))),)


def _policy_ask(pod: PodView, container: ContainerView, parameters: Parameters) -> Ask:
    name = f"{pod.metadata.name}-{container.name}"
    return Ask(pod.metadata.namespace, f"{pod.metadata.uid}/{container.name}", name, parameters)
