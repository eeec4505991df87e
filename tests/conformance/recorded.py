"""Answers recorded from real Kubernetes, one list of cases per file.

The cases live in data/ beside this module, or in the folder that $KUBEQOS_ORACLE names.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from kubeqos.codec import decode_json

DATA = Path(__file__).parent / "data"


def cases(name: str) -> list[dict[str, Any]]:
    """All recorded cases of `name`, in file order."""
    folder = Path(os.environ.get("KUBEQOS_ORACLE") or DATA)
    plain = folder / f"{name}.jsonl"
    data = (
        plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes())
    )
    return [decode_json(line) for line in data.splitlines() if line.strip()]
