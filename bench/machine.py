"""What the figures were measured on, printed beside them."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def describe() -> str:
    """CPU model, number of CPUs this process may use, and the Python version, in one line."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = model[1] if model else platform.processor() or platform.machine()
    cpus = len(os.sched_getaffinity(0))
    return f"{name}, {cpus} CPUs, Python {platform.python_version()}"
