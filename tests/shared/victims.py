"""Processes that tests kill, forked from one that has already imported what they run: dying must be cheap."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkServerContext

PRELOADED = ["tests.store.crash_writer", "tests.apiserver.crash_server", "tests.node.crash_agent"]


def nursery() -> ForkServerContext:
    """Where victims come from; there is one per test run, so whoever asks first decides what it imports for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def kills(local: int) -> int:
    """How often a crash loop kills: KUBEQOS_CRASHES, else 200 in CI, else as many as a developer waits for."""
    in_ci = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    return int(os.environ.get("KUBEQOS_CRASHES") or (200 if in_ci else local))
