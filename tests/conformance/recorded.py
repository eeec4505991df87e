"""Answers recorded from real Kubernetes, one JSON object per line.

The copies in `data/` make a fresh clone complete; `$KUBEQOS_ORACLE` names another folder with files of the
same form (`NAME.jsonl`, or gzipped) to replay instead.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from kubeqos.codec import decode_json

DATA = Path(__file__).parent / "data"


def cases(name: str) -> list[dict[str, Any]]:
    """Every recorded line of one file, in order."""
    return [decode_json(line) for line in _read(name).splitlines() if line]


def _read(name: str) -> bytes:
    folder = os.environ.get("KUBEQOS_ORACLE")
    if folder:
        plain = Path(folder) / f"{name}.jsonl"
        if plain.exists():
            return plain.read_bytes()
        packed = Path(folder) / f"{name}.jsonl.gz"
        if packed.exists():
            return gzip.decompress(packed.read_bytes())
    return gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes())
