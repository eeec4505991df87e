"""Kinds that are stored as another: what turns the objects of one into those of the other, and back.

A newer form of events is such a kind, and the older form of autoscalers: whoever writes one sees it in the other form,
too. Handlers convert bodies on
their way in and answers on their way out; everything between knows the stored kind alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json_as_go, value_at
from kubeqos.model import schema
from kubeqos.rules.validation import NEWER_EVENT

Convert = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class View:
    """The kind that is stored, by its name, and both directions; of a definition's kinds the kind itself.

    What is written in this form is judged by rules of its own, if they have a name here.
    """

    kind: str
    group: str
    shown: Convert
    stored: Convert
    of: Any = None
    rules: str = ""


# newer (events.k8s.io) → older (core)
_EVENT_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_OLDER_FIELDS = {old: new for new, old in _EVENT_FIELDS.items()}


def _renamed(obj: JsonObject, names: dict[str, str], api_version: str) -> JsonObject:
    return {**{names.get(name, name): value for name, value in obj.items()}, "apiVersion": api_version}


EVENT_VIEW = View(
    "Event",
    "",
    shown=lambda obj: _renamed(obj, _OLDER_FIELDS, "events.k8s.io/v1"),
    stored=lambda obj: _renamed(obj, _EVENT_FIELDS, "v1"),
    rules=NEWER_EVENT,
)


# -- autoscalers -------------------------------------------------------------------------------------------------------
# autoscaling/v1 has room for one target of CPU use; whatever else an autoscaler has stands in annotations there, so
# that nothing is lost on the way through the older form. One that cannot be read is passed over, as in Kubernetes.

_ALPHA = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT, _CONDITIONS = f"{_ALPHA}metrics", f"{_ALPHA}current-metrics", f"{_ALPHA}conditions"
_BEHAVIOR = f"{_ALPHA}behavior"
_DROPPED = {_METRICS, _CURRENT, _CONDITIONS, _BEHAVIOR, f"{_ALPHA}scale-down-tolerance", f"{_ALPHA}scale-up-tolerance"}
_SAME_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_SIDES = ("ScaleUp", "ScaleDown")
_RULES = ("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance")
_POLICY = ("Type", "Value", "PeriodSeconds")
_ORDER = (
    "matchLabels", "matchExpressions", "kind", "type", "status", "name", "apiVersion", "lastTransitionTime", "reason",
    "message",
)  # fmt: skip
Moves = tuple[tuple[str, str], ...]


def _moves(side: str, prefix: str) -> dict[str, Moves]:
    """Per source of a metric: field in the older form, path in the newer; "!" marks what is always written there."""
    average, use = (f"{prefix}AverageValue", f"{side}.averageValue"), f"{side}.averageUtilization"
    metric, selector = ("metricName!", "metric.name"), ("selector", "metric.selector")
    always = "!" if side == "current" else ""
    of_resource = (("name!", "name"), (f"{prefix}AverageUtilization", use), (f"{average[0]}{always}", average[1]))
    value = f"{side}.value"
    return {
        "object": (
            ("target!", "describedObject"), metric, (f"{prefix}Value!", value), selector, ("averageValue", average[1]),
        ),
        "pods": (metric, (f"{average[0]}!", average[1]), selector),
        "resource": of_resource,
        "containerResource": (*of_resource, ("container!", "container")),
        "external": (metric, ("metricSelector", "metric.selector"), (f"{prefix}Value{always}", value), average),
    }  # fmt: skip


_ASKED, _SEEN = _moves("target", "target"), _moves("current", "current")


def _in_order(value: Any) -> Any:
    """As Go writes its structs: annotations are compared as texts."""
    if not isinstance(value, dict):
        return value
    known = {key: value[key] for key in _ORDER if key in value}
    return known | {key: one for key, one in value.items() if key not in known}


def _older_metric(metric: JsonObject, moves: dict[str, Moves]) -> JsonObject:
    made: JsonObject = {"type": metric.get("type", "")}
    for source in moves:
        if (found := metric.get(source)) is not None:
            made[source] = {}
            for field, path in moves[source]:
                value = value_at(found, path.split("."))
                if value is None and field.endswith("!"):
                    value = "0" if "Value" in field else ""
                if value is not None:
                    made[source][field.removesuffix("!")] = _in_order(value)
    return made


def _newer_metric(metric: JsonObject, moves: dict[str, Moves]) -> JsonObject:
    made: JsonObject = {"type": metric.get("type", "")}
    for source in moves:
        if isinstance(found := metric.get(source), dict):
            out: JsonObject = made.setdefault(source, {})
            for field, path in moves[source]:
                value = found.get(field.removesuffix("!"))
                *outer, last = path.split(".")
                inner = out.setdefault(outer[0], {}) if outer else out
                if value is not None:
                    inner[last] = value
            if moves is _ASKED:
                _complete_target(source, out["target"])
    return made


def _complete_target(source: str, target: JsonObject) -> None:
    """What the older form leaves to be understood: by what a target is measured."""
    if source == "object" and "averageValue" in target and target.get("value") == "0":
        del target["value"]  # which the older form cannot leave out
    by = "Value" if "value" in target and not (source == "object" and "averageValue" in target) else "AverageValue"
    target["type"] = "Utilization" if "averageUtilization" in target else by


def _cpu_use(metrics: Any, side: str) -> Any:
    for metric in metrics or ():
        found = metric.get("resource") or {}
        if metric.get("type") == "Resource" and found.get("name") == "cpu":
            use = value_at(found, (side, "averageUtilization"))
            if use is not None:
                return use
    return None


def _older_rules(rules: JsonObject | None) -> JsonObject | None:
    if rules is None:
        return None
    made = {name: rules.get(name[0].lower() + name[1:]) for name in _RULES}
    if made["Policies"] is not None:
        made["Policies"] = [{name: one[name[0].lower() + name[1:]] for name in _POLICY} for one in made["Policies"]]
    return made


def _newer_names(value: Any) -> Any:
    """The names of Go's fields as those of the API, without what is not set."""
    if isinstance(value, list):
        return [_newer_names(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key[:1].lower() + key[1:]: _newer_names(one) for key, one in value.items() if one is not None}


def _autoscaler_shown(obj: JsonObject) -> JsonObject:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    marks = {key: value for key, value in (obj["metadata"].get("annotations") or {}).items() if key not in _DROPPED}
    others = [_older_metric(one, _ASKED) for one in metrics if _cpu_use([one], "target") is None]
    behavior = spec.get("behavior")
    for mark, found in (
        (_METRICS, others),
        (_CURRENT, [_older_metric(one, _SEEN) for one in current]),
        (_BEHAVIOR, behavior and {name: _older_rules(behavior.get(name[0].lower() + name[1:])) for name in _SIDES}),
        (_CONDITIONS, [_in_order(one) for one in status.get("conditions") or ()]),
    ):
        if found:
            marks[mark] = encode_json_as_go(found).decode()
    metadata = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    made = {
        **obj,
        "apiVersion": "autoscaling/v1",
        "metadata": {**metadata, **({"annotations": marks} if marks else {})},
    }
    made["spec"] = {key: spec[key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in spec}
    made["status"] = {key: status[key] for key in _SAME_STATUS if key in status}
    for part, name, use in (
        ("spec", "targetCPUUtilizationPercentage", _cpu_use(metrics, "target")),
        ("status", "currentCPUUtilizationPercentage", _cpu_use(current, "current")),
    ):
        if use is not None:
            made[part][name] = use
    return schema.normalise(made, schema.kind("autoscaling", "v1", "HorizontalPodAutoscaler"))


def _autoscaler_stored(obj: JsonObject) -> JsonObject:
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    use, seen = spec.pop("targetCPUUtilizationPercentage", None), status.pop("currentCPUUtilizationPercentage", None)
    metadata = obj.get("metadata") or {}
    marks = metadata.get("annotations") or {}
    made = {**obj, "apiVersion": "autoscaling/v2", "spec": spec, "status": status}
    if use is not None:
        spec["metrics"] = [_of_cpu(target={"type": "Utilization", "averageUtilization": use})]
    if seen is not None:
        status["currentMetrics"] = [_of_cpu(current={"averageUtilization": seen})]
    if (found := _read(marks.get(_METRICS), list)) is not None:
        metrics = [_newer_metric(one, _ASKED) for one in found]
        made = _if_it_fits(made, "spec", metrics=[*metrics, *spec.get("metrics", ())])
    if (found := _read(marks.get(_CURRENT), list)) is not None:
        made = _if_it_fits(made, "status", currentMetrics=[_newer_metric(one, _SEEN) for one in found])
    if (found := _read(marks.get(_CONDITIONS), list)) is not None:
        made = _if_it_fits(made, "status", conditions=found)
    if behavior := _newer_names(_read(marks.get(_BEHAVIOR), dict)):
        made = _if_it_fits(made, "spec", behavior=behavior)
    if not _DROPPED.isdisjoint(marks):
        made["metadata"] = {**metadata, "annotations": {k: v for k, v in marks.items() if k not in _DROPPED}}
    return schema.normalise(made, schema.kind("autoscaling", "v2", "HorizontalPodAutoscaler"))


def _of_cpu(**measured: JsonObject) -> JsonObject:
    return {"type": "Resource", "resource": {"name": "cpu", **measured}}


def _read(text: Any, form: type) -> Any:
    """What an annotation holds; None where it cannot be read as that."""
    try:
        found: Any = decode_json(text.encode()) if isinstance(text, str) else None
    except JsonError:
        return None
    if not isinstance(found, form):
        return None
    parts: list[Any] = found if isinstance(found, list) else []
    fits = all(isinstance(one, dict) for one in parts)
    return found if fits else None


def _if_it_fits(obj: JsonObject, part: str, **fields: Any) -> JsonObject:
    changed = {**obj, part: {**obj[part], **fields}}
    return obj if schema.check(changed, schema.kind("autoscaling", "v2", "HorizontalPodAutoscaler")).error else changed


AUTOSCALER_VIEW = View("HorizontalPodAutoscaler", "autoscaling", shown=_autoscaler_shown, stored=_autoscaler_stored)
