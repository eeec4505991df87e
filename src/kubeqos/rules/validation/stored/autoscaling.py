"""What Kubernetes says about the fields of HorizontalPodAutoscalers."""

from __future__ import annotations

from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw
from kubeqos.rules.validation.resources import container_resource_name
from kubeqos.rules.validation.stored.checks import (
    Fields,
    choice,
    least,
    most,
    named,
    needed,
    needs_name,
    quantity,
    unjudged,
    word,
)

_SOURCES = {"ContainerResource": "containerResource", "External": "external", "Object": "object", "Pods": "pods",
            "Resource": "resource"}  # fmt: skip
_ORDER = ("object", "external", "pods", "resource", "containerResource")
_TARGETS = ("Utilization", "Value", "AverageValue")
_POSITIVE = quantity(zero=False, why="must be positive")
_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800


def _check_spec(out: Errors, path: str, spec: Raw) -> None:
    lowest, highest = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if not highest:
        out.append(required(f"{path}.maxReplicas"))
    elif highest < 0:
        out.append(invalid(f"{path}.maxReplicas", highest, "must be greater than or equal to 1"))
    if lowest is not None and highest < lowest:
        out.append(invalid(f"{path}.maxReplicas", highest, "must be greater than or equal to `minReplicas`"))
    _check_api_version(
        out, f"{path}.scaleTargetRef.apiVersion", (spec.get("scaleTargetRef") or NO_MAP).get("apiVersion")
    )
    kinds = {metric.get("type") for metric in spec.get("metrics") or NO_LIST}
    if lowest == 0 and not kinds & {"Object", "External"}:
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        out.append(forbidden(f"{path}.metrics", why))


def _check_api_version(out: Errors, path: str, value: Any) -> None:
    """What is scaled is of a group: of the core group nothing can be scaled by an autoscaler."""
    text = value or ""
    if text.count("/") > 1:
        out.append(invalid(path, text, f"unexpected GroupVersion string: {text}"))
    elif "/" not in text or text.startswith("/"):
        out.append(invalid(path, text, "apiVersion must specify API group"))


def _check_metric(out: Errors, path: str, metric: Raw) -> None:
    """Of the sources there is the one that the type names, and no other."""
    kind = metric.get("type", "")
    if not kind:
        out.append(required(f"{path}.type", "must specify a metric source type"))
    wanted = _SOURCES.get(kind, "")
    if not wanted:
        out.append(not_supported(f"{path}.type", kind, tuple(sorted(_SOURCES))))
    elif metric.get(wanted) is None:
        out.append(required(f"{path}.{wanted}", "must populate information for the given metric source"))
    present = [field for field in _ORDER if metric.get(field) is not None]
    if len(present) > 1:
        why = "must populate the given metric source only"
        out.extend(forbidden(f"{path}.{field}", why) for field in present if field != wanted)


def _check_target(out: Errors, path: str, target: Raw) -> None:
    kind = target.get("type", "")
    if not kind:
        out.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in _TARGETS:
        out.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))


def _target(holder: Raw) -> Raw:
    found: Raw = holder.get("target") or NO_MAP
    return found


def _check_resource(out: Errors, path: str, source: Raw) -> None:
    target = _target(source)
    share, amount = target.get("averageUtilization"), target.get("averageValue")
    if share is None and amount is None:
        why = "must set either a target raw value or a target utilization"
        out.append(required(f"{path}.target.averageUtilization", why))
    if share is not None and amount is not None:
        why = "may not set both a target raw value and a target utilization"
        out.append(forbidden(f"{path}.target.averageValue", why))


def _check_pods(out: Errors, path: str, source: Raw) -> None:
    if _target(source).get("averageValue") is None:
        out.append(required(f"{path}.target.averageValue", "must specify a positive target averageValue"))


def _check_object(out: Errors, path: str, source: Raw) -> None:
    target = _target(source)
    if target.get("value") is None and target.get("averageValue") is None:
        out.append(required(f"{path}.target.averageValue", "must set either a target value or averageValue"))


def _check_external(out: Errors, path: str, source: Raw) -> None:
    target = _target(source)
    value, amount = target.get("value"), target.get("averageValue")
    if value is None and amount is None:
        why = "must set either a target value for metric or a per-pod target"
        out.append(required(f"{path}.target.averageValue", why))
    if value is not None and amount is not None:
        why = "may not set both a target value for metric and a per-pod target"
        out.append(forbidden(f"{path}.target.value", why))


_RESOURCE_NAME = needed("must specify a resource name")
TYPES: dict[str, Fields] = {
    "autoscaling/v2.HorizontalPodAutoscalerSpec": {"minReplicas": least(0), "": _check_spec},
    "autoscaling/v2.HorizontalPodAutoscalerStatus": {"currentReplicas": least(0), "desiredReplicas": least(0)},
    "autoscaling/v2.CrossVersionObjectReference": {
        "kind": needs_name(names.path_segment),
        "name": needs_name(names.path_segment),
    },
    "autoscaling/v2.MetricSpec": {"type": (), "": _check_metric},
    "autoscaling/v2.MetricIdentifier": {
        "name": (needed("must specify a metric name"), named(names.path_segment)),
        "selector": unjudged,
    },
    "autoscaling/v2.MetricTarget": {
        "type": (),
        "value": _POSITIVE,
        "averageValue": _POSITIVE,
        "averageUtilization": least(1, "must be greater than 0"),
        "": _check_target,
    },
    "autoscaling/v2.ResourceMetricSource": {"name": _RESOURCE_NAME, "": _check_resource},
    "autoscaling/v2.ContainerResourceMetricSource": {
        "name": (_RESOURCE_NAME, named(container_resource_name)),
        "container": (needed("must specify a container"), named(names.dns_label)),
        "": _check_resource,
    },
    "autoscaling/v2.PodsMetricSource": {"": _check_pods},
    "autoscaling/v2.ObjectMetricSource": {"": _check_object},
    "autoscaling/v2.ExternalMetricSource": {"": _check_external},
    "autoscaling/v2.HPAScalingRules": {
        "stabilizationWindowSeconds": (
            least(0, "must be greater than or equal to zero"),
            most(_LONGEST_WINDOW),
        ),
        "selectPolicy": choice("Disabled", "Max", "Min"),
        "policies": needed("must specify at least one Policy"),
        "tolerance": quantity(zero=True, why=names.NEGATIVE),
    },
    "autoscaling/v2.HPAScalingPolicy": {
        "type": word("Percent", "Pods"),
        "value": least(1, names.NOT_POSITIVE, unset=False),
        "periodSeconds": (least(1, names.NOT_POSITIVE, unset=False), most(_LONGEST_PERIOD)),
    },
}
