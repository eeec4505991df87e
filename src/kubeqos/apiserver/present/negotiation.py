"""Which form an answer takes: plain JSON, YAML, protobuf, a Table, or metadata only, from the Accept header.

Who takes JSON gets JSON, whatever else it takes: objects are stored so. Protobuf is for who takes nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from kubeqos.apiserver.protobuf import encode_body, has_protobuf_form
from kubeqos.apiserver.requests import Request
from kubeqos.codec import decode_json
from kubeqos.model.kinds import ApiResource
from kubeqos.model.remember import LONGEST, remembered
from kubeqos.web.messages import JSON, Response
from kubeqos.web.status import ApiError

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
SERVED = f"{JSON}, {YAML}, {PROTOBUF}"
_STREAMS = f", {JSON};stream=watch, {PROTOBUF};stream=watch"
_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True, slots=True)
class Form:
    """The negotiated form: media type, and for metadata and tables which one and in which version."""

    media: str = JSON
    transform: str = ""
    version: str = "v1"

    @property
    def plain(self) -> bool:
        """JSON as it is stored, from which `binary` makes protobuf at the very end."""
        return not self.transform and self.media != YAML


PLAIN = Form()


def form_of(request: Request, kind: ApiResource | None = None, *, collection: bool = False) -> Form:
    """The form that a request's answer takes; raises 406. Protobuf is only for kinds that have such a form."""
    accept = request.accept
    choose = negotiate if len(accept) <= LONGEST else negotiate.__wrapped__
    form = choose(accept, collection=collection)
    if isinstance(form, ApiError):
        raise form
    if form.media == PROTOBUF and (kind is None or not _has_protobuf(kind, form)):
        raise not_accepted()
    return form


def binary(response: Response, accept: str) -> Response:
    """An answer as protobuf, where the client takes nothing else and it is an object that has such a form."""
    choose = negotiate if len(accept) <= LONGEST else negotiate.__wrapped__
    form = choose(accept)
    if not isinstance(form, Form) or form.media != PROTOBUF or response.content_type != JSON or response.stream:
        return response
    obj = decode_json(response.body)
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    if form.transform and obj.get("kind") == "Status":
        return response  # as in Kubernetes: a refusal is neither a table nor metadata alone, so it is in JSON
    if group != "meta.k8s.io" and not has_protobuf_form(group, version, str(obj.get("kind", ""))):
        return response
    return replace(response, body=encode_body(obj), content_type=PROTOBUF)


def takes(accept: str, media: str) -> bool:
    """Whether a client takes this media type, be it as one of all."""
    return not accept or any(found in (media, "application/*", "*/*") for found, _ in _clauses(accept))


def _has_protobuf(kind: ApiResource, form: Form) -> bool:
    return bool(form.transform) or has_protobuf_form(kind.group, kind.version, kind.kind)


@lru_cache(maxsize=256)
def negotiate(accept: str, *, collection: bool = False) -> Form | ApiError:
    """The best form that the client takes and we serve, or the 406 to raise."""
    if accept in ("", JSON, "*/*"):
        return PLAIN
    understood = False
    binary: Form | None = None
    for media, parameters in _clauses(accept):
        if media in ("*/*", "application/*"):
            return PLAIN
        if media == PROTOBUF:
            understood = True
            if binary is None:
                binary = _binary(parameters)
            continue
        if media not in (JSON, YAML):
            continue
        understood = True
        wanted = parameters.get("as", "")
        if not wanted:
            return Form(media)
        known = parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1")
        if wanted in _TRANSFORMS and known:
            return Form(media, wanted, parameters["v"])
    if binary is not None:
        return binary
    if understood:
        return not_accepted()
    return not_available(SERVED + (_STREAMS if collection else ""))


def not_accepted() -> ApiError:
    """The 406 of who wants a form in which this cannot be had."""
    return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {SERVED}")


def not_available(representations: str) -> ApiError:
    """The 406 of who wants a form of which nothing is understood here."""
    message = f"406: Not Acceptable\n\nAvailable representations: {representations}"
    return ApiError(406, "NotAcceptable", message, details={})


def _binary(parameters: dict[str, str]) -> Form | None:
    """Objects and metadata have a protobuf form, tables have none."""
    wanted = parameters.get("as", "")
    known = parameters.get("g") == "meta.k8s.io" and parameters.get("v") == "v1"
    if not wanted:
        return Form(PROTOBUF)
    return Form(PROTOBUF, wanted) if known and wanted.startswith("PartialObjectMetadata") else None


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The clauses by falling quality, otherwise in the order given."""
    found: list[tuple[float, int, str, dict[str, str]]] = []
    for index, clause in enumerate(accept.split(",")):
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        found.append((-quality, index, media.lower(), parameters))
    return [(media, parameters) for _, _, media, parameters in sorted(found, key=lambda item: item[:2])]


@remembered(64)
def media_type(content_type: str) -> str:
    """A Content-Type without its parameters."""
    return content_type.partition(";")[0].strip().lower()
