"""Settings of all property tests: a busy machine must not fail them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kubeqos", deadline=None)
settings.load_profile("kubeqos")
