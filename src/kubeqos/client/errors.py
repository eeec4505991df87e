"""What can go wrong when talking to an API server: it refuses, or it cannot be reached."""

from __future__ import annotations

from typing import Any

from kubeqos.codec import JsonError, JsonObject, decode_json
from kubeqos.errors import RemoteError

_WRONG_BY_ITSELF = frozenset({400, 405, 406, 413, 415, 422})


class ApiError(RemoteError):
    """The API server answered with a failure `Status`."""

    def __init__(self, status: int, reason: str, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}

    @classmethod
    def of(cls, status: int, body: bytes) -> ApiError:
        """From a response; a proxy's page in place of a `Status` becomes its first line."""
        try:
            found: Any = decode_json(body)
        except (JsonError, UnicodeDecodeError):
            found = None
        if isinstance(found, dict) and found.get("kind") == "Status":
            code = found.get("code") or status
            return cls(code, found.get("reason") or "", found.get("message") or "", found.get("details"))
        text = body.decode(errors="replace").strip().partition("\n")[0][:200]
        return cls(status, "", text or f"the server answered with status {status}")

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def not_served(self) -> bool:
        """Not this object is missing, but the whole kind: the server does not know it, or not in this version."""
        return self.not_found and not self.details.get("name")

    @property
    def already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """Somebody else changed the object: read it again, then try again."""
        return self.status == 409 and not self.already_exists

    @property
    def for_good(self) -> bool:
        """What was sent is wrong by itself, so the same will be refused again, whoever sends it and whenever."""
        return self.status in _WRONG_BY_ITSELF

    @property
    def is_passing(self) -> bool:
        """The server has no time, or trouble of its own: the same request may be taken in a moment."""
        return self.status in (408, 429) or self.status >= 500

    @property
    def expired(self) -> bool:
        """The history that a watch or a page asked for is gone: list again."""
        return self.status == 410

    @property
    def ahead(self) -> bool:
        """We know a revision that the server does not: it lost its memory, or restored an older one. List again."""
        causes = self.details.get("causes") or ()
        return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server wants to be asked again."""
        seconds = self.details.get("retryAfterSeconds")
        return float(seconds) if isinstance(seconds, int | float) else None


class Unreachable(RemoteError):
    """No answer. `applied` says whether the request may have been carried out all the same."""

    def __init__(self, what: str, *, where: str, applied: bool) -> None:
        remedy = "check that the server runs and that the address and certificates in the kubeconfig are its own"
        super().__init__(what, where=where, remedy=remedy)
        self.applied = applied
