"""What kits for authors share (`qrm.kit`, `cri.providers.kit`): demands on a program that is asked over its socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kubeqos.errors import RemoteError

Step = Callable[[], Awaitable[str | None]]
"""None is good, a text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    """One demand on a program: met, not met, or not applicable (`passed` None)."""

    name: str
    passed: bool | None
    detail: str = ""


class NotApplicable(Exception):
    """The program has nothing that this could be tried on."""


async def checked(name: str, step: Step) -> Check:
    """What came of one demand; a call that fails is a demand not met."""
    try:
        wrong = await step()
        return Check(name, wrong is None, wrong or "")
    except NotApplicable as reason:
        return Check(name, None, str(reason))
    except RemoteError as error:
        return Check(name, False, error.what)
