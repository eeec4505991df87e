"""Which form an answer takes: plain JSON, YAML, a Table, or metadata only, from the Accept header."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kubeqos.apiserver.requests import Request
from kubeqos.model.remember import LONGEST, remembered
from kubeqos.web.messages import JSON
from kubeqos.web.status import ApiError

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_SERVED = f"{JSON}, {YAML}, {PROTOBUF}"
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
        return not self.transform and self.media == JSON


PLAIN = Form()


def form_of(request: Request, *, collection: bool = False) -> Form:
    """The form that a request's answer takes; raises 406."""
    accept = request.accept
    choose = negotiate if len(accept) <= LONGEST else negotiate.__wrapped__
    form = choose(accept, collection=collection)
    if isinstance(form, ApiError):
        raise form
    return form


@lru_cache(maxsize=256)
def negotiate(accept: str, *, collection: bool = False) -> Form | ApiError:
    """The best form that the client takes and we serve, or the 406 to raise."""
    if accept in ("", JSON, "*/*"):
        return PLAIN
    understood = False
    for media, parameters in _clauses(accept):
        if media in ("*/*", "application/*"):
            return PLAIN
        if media == PROTOBUF:
            understood = True
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
    if understood:
        return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {_SERVED}")
    available = _SERVED + (_STREAMS if collection else "")
    message = f"406: Not Acceptable\n\nAvailable representations: {available}"
    return ApiError(406, "NotAcceptable", message, details={})


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
