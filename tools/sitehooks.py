"""What mkdocs does to our pages: the words behind a fence's language are for the test that runs the commands
(tests/docs/pages.py), and to Markdown such a block would be no block at all."""

from __future__ import annotations

import re
from typing import Any

_MARKED = re.compile(r"^(```+console) [a-z]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_context: Any) -> str:
    """Called by mkdocs for every page before it is rendered."""
    return _MARKED.sub(r"\1", markdown)
