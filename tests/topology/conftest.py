"""Settings of the property tests in this room: a busy machine must not fail them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("topology", deadline=None)
settings.load_profile("topology")
