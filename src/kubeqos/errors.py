"""The one error hierarchy.

An error says what went wrong, where, and what to do about it. Each surface has one funnel that renders it: the API
server as a `Status`, gRPC services as a status code, the CLI as lines on stderr. Library exceptions are chained as
causes and never shown to a user.
"""

from __future__ import annotations


class KubeqosError(Exception):
    """Root of every error that kubeqos raises on purpose."""

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def lines(self) -> list[str]:
        """The error as a user reads it: what, then where, then what to do."""
        out = [self.what]
        if self.where:
            out.append(f"  at  {self.where}")
        if self.remedy:
            out.append(f"  {self.remedy}")
        return out


class InputError(KubeqosError):
    """Something a user wrote cannot be read: a manifest, a flag, a quantity, a CPU list."""


class ConfigurationError(KubeqosError):
    """A component's settings are wrong or contradict each other; it refuses to start."""


class StateError(KubeqosError):
    """Stored state (database, checkpoint) cannot be used as it is."""


class RemoteError(KubeqosError):
    """A peer (runtime, plugin, driver, API server) failed, refused or did not answer in time."""
