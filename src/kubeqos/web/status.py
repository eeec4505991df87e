"""The error funnel's vocabulary: every refusal a client can see is one `ApiError` carrying a Kubernetes `Status`.

Handlers raise these; the ASGI shell turns them into responses and nothing else formats an error body. Wording is
Kubernetes' own (client code matches on reasons, people search for the texts).
"""

from __future__ import annotations

from typing import Any

from kubeqos.codec import JsonObject
from kubeqos.errors import KubeqosError


class ApiError(KubeqosError):
    """A request that is answered with a failure `Status`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        metadata: JsonObject | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.metadata = metadata

    def body(self) -> JsonObject:
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata or {},
            "status": "Failure",
        }
        status["message"] = self.what
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @property
    def retry_after(self) -> int | None:
        seconds = (self.details or {}).get("retryAfterSeconds")
        return seconds if isinstance(seconds, int) else None


def success(code: int | None = None, details: JsonObject | None = None) -> JsonObject:
    """A `Status` that says it worked."""
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return status


def qualified(resource: str, group: str) -> str:
    """`pods`, `deployments.apps`: how a resource is named in messages."""
    return f"{resource}.{group}" if group else resource


def about(resource: str, group: str, name: str = "", **more: Any) -> JsonObject:
    """The `details` of a message about one object."""
    details: JsonObject = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = resource
    details.update(more)
    return details


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, group: str, name: str, why: str, **more: Any) -> ApiError:
    subject = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details=about(resource, group, name, **more))


def not_found(resource: str, group: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, details=about(resource, group, name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def already_exists(resource: str, group: str, name: str, *, terminating: bool = False) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" already exists'
    if terminating:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, details=about(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=about(resource, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str, continuation: str | None = None) -> ApiError:
    return ApiError(410, "Expired", message, metadata={"continue": continuation} if continuation else None)


def too_large_version(requested: int, current: int) -> ApiError:
    """A version from the future: 504 is what client-go's reflector waits and retries on."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def invalid(kind: str, group: str, name: str, causes: list[JsonObject]) -> ApiError:
    """422 from causes `{reason, message, field}`, joined as Kubernetes joins them."""
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: JsonObject = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = causes
    return ApiError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {joined}', details=details)


def cause(field: str, reason: str, message: str) -> JsonObject:
    """One cause of a 422; `message` includes its prefix (`Forbidden: …`)."""
    return {"reason": reason, "message": message, "field": field}


def too_many_requests(message: str, retry_after: int, causes: list[JsonObject] | None = None) -> ApiError:
    details: JsonObject = {"causes": causes} if causes else {}
    details["retryAfterSeconds"] = retry_after
    return ApiError(429, "TooManyRequests", message, details=details)
