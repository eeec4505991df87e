"""What runs around an agent: values only. `configured` makes them, `node.run` runs what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kubeqos.node.pressure.imagegc import ImageGcSettings


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What runs around an agent. Without a socket there is no Pod Resources API."""

    housekeeping_seconds: float = 10.0
    pod_resources_socket: Path | None = None
    address: str = "127.0.0.1"
    port: int = 0
    client_authority: Path | None = None
    """Whose certificates the HTTPS endpoint accepts; without it there is none."""
    images: ImageGcSettings = field(default_factory=ImageGcSettings)
