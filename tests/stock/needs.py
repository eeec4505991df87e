"""Which tests need which real programs, and what is said where these are missing."""

from __future__ import annotations

import os
import sys

import pytest
from tools.stock import find


def needs_stock(*programs: str, root: bool = False) -> list[pytest.MarkDecorator]:
    """Marks for tests that run these programs of tools/stock, as root if need be."""
    missing = [program for program in programs if find(program) is None]
    if sys.platform != "linux":
        reason = "needs Linux"
    elif missing:
        reason = f"not built: {', '.join(missing)}; `make stock` builds them where Go is"
    else:
        reason = "needs root" if root and os.geteuid() != 0 else ""
    return [pytest.mark.stock, pytest.mark.skipif(bool(reason), reason=reason)]
