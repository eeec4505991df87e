"""Patches and server-side apply recorded from real Kubernetes, as far as pure functions decide them.

What a server does after the patch is replayed over HTTP: validation, defaulting, generations, and keeping the half of
an object that an endpoint does not write. Here such parts are left out by these rules:

* a refusal that names the object (`Pod "x" is invalid: …`, `the name of the object …`) or the options of the request
  comes after the patch: the patch itself must succeed;
* `metadata.generation` and `metadata.namespace` are the server's; on a main resource so is `status`, on `/status` all
  but `status`; `status.qosClass` is kept from before;
* a field of the recorded result that we lack must be one that defaulting fills in.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeqos.apiserver.patch import PatchError, Writer, apply_configuration, apply_patch, track
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.model import schema
from kubeqos.model.schema import TypeSchema

from .differences import DIFFERENCES
from .recorded import cases

LATER = re.compile(r'[A-Z]\w* "[^"]*" is invalid: |the name of the object |PatchOptions\.meta\.k8s\.io ')
DEFAULTED = {
    "apiVersion", "defaultRequest", "dnsPolicy", "enableServiceLinks", "imagePullPolicy", "kubernetes.io/metadata.name",
    "podCIDRs", "preemptionPolicy", "priority", "protocol", "restartPolicy", "schedulerName", "securityContext",
    "terminationGracePeriodSeconds", "terminationMessagePath", "terminationMessagePolicy", "tolerations",
}  # fmt: skip
KINDS = {"configmaps": "ConfigMap", "pods": "Pod", "resourcequotas": "ResourceQuota", "limitranges": "LimitRange"}
SINGLE = [case for case in cases("patch") if case["kind"] != "apply-script"]
SCRIPTS = [case for case in cases("patch") if case["kind"] == "apply-script"]


def readable(case: JsonObject) -> JsonObject:
    """The case with a real time where the recording has a placeholder."""
    text = encode_json(case).replace(b"<time>", b"2024-05-06T07:08:09Z")
    return decode_json(text)


def extra(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two results differ, but for fields of theirs that defaulting fills in."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        out = [f"{path}.{key} is ours only" for key in ours.keys() - theirs.keys()]
        out += [f"{path}.{key} is theirs only" for key in theirs.keys() - ours.keys() - DEFAULTED]
        return out + [line for k in ours.keys() & theirs.keys() for line in extra(ours[k], theirs[k], f"{path}.{k}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for i, (a, b) in pairs for line in extra(a, b, f"{path}[{i}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} is not {theirs!r}"]


def written(result: JsonObject, endpoint: str) -> JsonObject:
    """The part of an object that an endpoint writes."""
    if endpoint.endswith("/status"):
        status = {k: v for k, v in result.get("status", {}).items() if k != "qosClass"}
        return {"status": status, "metadata": own_metadata(result)}
    kept = {k: v for k, v in result.items() if k != "status"}
    if endpoint == "namespaces":
        del kept["spec"]  # finalizers of a namespace are written by /finalize alone
    return {**kept, "metadata": own_metadata(result)}


def own_metadata(result: JsonObject) -> JsonObject:
    metadata = {k: v for k, v in result["metadata"].items() if k not in ("generation", "namespace", "managedFields")}
    labels = {k: v for k, v in metadata.pop("labels", {}).items() if k != "kubernetes.io/metadata.name"}
    return {**metadata, "labels": labels} if labels else metadata


def check_refusal(error: PatchError, answer: JsonObject) -> None:
    wanted = answer["message"]
    if answer["code"] == 500:
        assert error.code == 400, DIFFERENCES["patch", "code 500"]
    else:
        assert (error.code, error.reason) == (answer["code"], answer["reason"])
    assert hide_object(error.what, wanted) == wanted
    for ours, theirs in zip(error.causes, answer.get("causes") or [], strict=True):
        assert (ours["reason"], ours["field"]) == (theirs["reason"], theirs["field"])
        assert hide_object(ours["message"], theirs["message"]) == theirs["message"]


def hide_object(text: str, wanted: str) -> str:
    if '"<object>"' not in wanted:
        return text
    return re.sub(r'"\{.*\}"', '"<object>"', text, flags=re.DOTALL)


@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case["path"].rsplit("/", 2)[-1] + "-" + case["type"])
def test_patch(case: JsonObject) -> None:
    case = readable(case)
    kind = schema.kind("", "v1", case["base"]["kind"])
    refused = case["code"] >= 400 and not LATER.match(case["message"])
    if refused:
        with pytest.raises(PatchError) as caught:
            apply_patch(case["type"], case["base"], case["patch"], kind)
        check_refusal(caught.value, case)
        return
    patched = apply_patch(case["type"], case["base"], case["patch"], kind)
    if case["code"] == 200:
        wanted = case["base"] if case.get("unchanged") else case["result"]
        assert extra(written(patched.object, case["kind"]), written(wanted, case["kind"])) == []
    assert patched.warnings == [line[7:-1].replace('\\"', '"') for line in case.get("warnings") or []]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script["steps"][0]["path"].split("?")[0].split("/")[-1])
def test_apply(script: JsonObject) -> None:
    live: JsonObject | None = None
    for number, step in enumerate(readable(script)["steps"]):
        resource = step["path"].split("?")[0].split("/")[5]
        kind = schema.kind("", "v1", KINDS[resource])
        if step["code"] >= 400:
            if not LATER.match(step["message"]):
                with pytest.raises(PatchError) as caught:
                    write(live, step, kind, number)
                check_refusal(caught.value, step)
            continue
        live = write(live, step, kind, number)
        managers = [[m["manager"], m["operation"], m["fieldsV1"]] for m in live["metadata"]["managedFields"]]
        assert sorted(managers, key=str) == sorted(step["managers"], key=str)
        assert extra(written(live, resource), written(step["result"], resource)) == []


def write(live: JsonObject | None, step: JsonObject, kind: TypeSchema, number: int) -> JsonObject:
    query = dict(pair.split("=") for pair in step["path"].partition("?")[2].split("&") if pair)
    ignored = {"f:status": {}} if "status" in kind.fields else {}
    writer = Writer(query.get("fieldManager", ""), "v1", f"2024-01-01T00:00:{number:02}Z", ignored=ignored)
    if step["contentType"] == "application/apply-patch+yaml":
        applied = apply_configuration(live, step["body"], kind, writer, force=query.get("force") == "true")
        written_object, managed = applied.object, applied.managed_fields
    else:
        body = step["body"]
        patched = schema.normalise(body, kind) if live is None else apply_patch("merge", live, body, kind).object
        written_object, managed = patched, track(live, patched, kind, writer)
    return {**written_object, "metadata": {**written_object["metadata"], "managedFields": managed}}


def test_the_difference_is_still_there() -> None:
    assert any(answer["code"] == 500 for case in cases("patch") for answer in case.get("steps", [case]))
