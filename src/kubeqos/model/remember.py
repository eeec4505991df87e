"""Remembering answers about short texts that come again and again, and never about long ones.

A text from a client may have megabytes: a cache of a thousand of those would be a way to fill the memory of a server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

Answer = TypeVar("Answer")
LONGEST = 512


def remembered(maxsize: int) -> Callable[[Callable[[str], Answer]], Callable[[str], Answer]]:
    """Cache a function of one text, for texts of ordinary length."""

    def decorate(function: Callable[[str], Answer]) -> Callable[[str], Answer]:
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def answer(text: str) -> Answer:
            return cached(text) if len(text) <= LONGEST else function(text)

        return answer

    return decorate
