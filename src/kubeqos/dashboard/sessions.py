"""One-time links and the sessions that they open. Kept in memory: who restarts the server logs in again. Pure.

A link's code and a session's token are 256 random bits each; only their hashes are kept, so that a dump of the memory
opens nothing. The code travels in the fragment of the address, which browsers send to nobody; the page exchanges it for
a cookie and takes it out of the address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from kubeqos.web.identity import Identity

LINK_SECONDS = 15 * 60.0
IDLE_SECONDS = 2 * 3600.0
SESSION_SECONDS = 12 * 3600.0
MOST_LINKS = MOST_SESSIONS = 256


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has logged in."""

    identity: Identity
    opened: float
    seen: float

    def expires(self) -> float:
        """When it ends if nothing more is asked."""
        return min(self.opened + SESSION_SECONDS, self.seen + IDLE_SECONDS)


class Sessions:
    """Open links and sessions. `secret` draws a new random text; times are seconds since the epoch."""

    def __init__(self, secret: Callable[[], str]) -> None:
        self._secret = secret
        self._links: dict[bytes, tuple[Identity, float]] = {}
        self._sessions: dict[bytes, Session] = {}

    def link(self, identity: Identity, now: float) -> str:
        """A code that logs this identity in, once, within a quarter of an hour. The oldest make room for new ones."""
        self._links = {key: kept for key, kept in self._links.items() if kept[1] > now}
        while len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        code = self._secret()
        self._links[_hashed(code)] = identity, now + LINK_SECONDS
        return code

    def open(self, code: str, now: float) -> tuple[str, Session] | None:
        """The token of a new session; None for a code that is wrong, used or too old."""
        identity, until = self._links.pop(_hashed(code), (None, 0.0))
        if identity is None or until <= now:
            return None
        self._sessions = {key: kept for key, kept in self._sessions.items() if kept.expires() > now}
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].seen)]
        token, session = self._secret(), Session(identity, now, now)
        self._sessions[_hashed(token)] = session
        return token, session

    def peek(self, token: str, now: float) -> Session | None:
        """The session of a token. Looking does not keep it open: a page that only follows is left alone by its user."""
        session = self._sessions.get(_hashed(token))
        if session is not None and session.expires() <= now:
            self.close(token)
            return None
        return session

    def find(self, token: str, now: float) -> Session | None:
        """The session of a token, which is used by that."""
        session = self.peek(token, now)
        if session is not None:
            self._sessions[_hashed(token)] = session = replace(session, seen=now)
        return session

    def close(self, token: str) -> None:
        """Log out."""
        self._sessions.pop(_hashed(token), None)


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
