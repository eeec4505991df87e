"""Links and sessions: once, for a while, and no longer."""

from __future__ import annotations

import itertools

import pytest

from kubeqos.dashboard.sessions import IDLE_SECONDS, LINK_SECONDS, MOST_LINKS, MOST_SESSIONS, SESSION_SECONDS, Sessions
from kubeqos.web.identity import Identity

ALICE = Identity.authenticated("alice")


@pytest.fixture
def sessions() -> Sessions:
    numbers = itertools.count()
    return Sessions(lambda: f"secret-{next(numbers)}")


def test_a_link_logs_in_once(sessions: Sessions) -> None:
    code = sessions.link(ALICE, now=0)
    opened = sessions.open(code, now=1)
    assert opened is not None
    assert opened[1].identity == ALICE
    assert sessions.open(code, now=2) is None


def test_an_old_or_invented_link_logs_nobody_in(sessions: Sessions) -> None:
    code = sessions.link(ALICE, now=0)
    assert sessions.open("invented", now=1) is None
    assert sessions.open(code, now=LINK_SECONDS) is None


def test_a_session_ends_when_it_is_not_used(sessions: Sessions) -> None:
    token, _ = sessions.open(sessions.link(ALICE, 0), 0) or ("", None)
    assert sessions.find(token, IDLE_SECONDS - 1) is not None
    assert sessions.peek(token, 2 * IDLE_SECONDS - 2) is not None  # looking keeps nothing open
    assert sessions.find(token, 2 * IDLE_SECONDS - 1) is None
    assert sessions.find(token, 0) is None


def test_a_session_ends_however_much_it_is_used(sessions: Sessions) -> None:
    token, _ = sessions.open(sessions.link(ALICE, 0), 0) or ("", None)
    for now in range(0, int(SESSION_SECONDS), 600):
        assert sessions.find(token, now) is not None
    assert sessions.find(token, SESSION_SECONDS) is None


def test_logging_out_ends_it(sessions: Sessions) -> None:
    token, _ = sessions.open(sessions.link(ALICE, 0), 0) or ("", None)
    sessions.close(token)
    assert sessions.find(token, 1) is None


def test_neither_links_nor_sessions_fill_the_memory(sessions: Sessions) -> None:
    codes = [sessions.link(ALICE, 0) for _ in range(MOST_LINKS + 1)]
    assert sessions.open(codes[0], 1) is None
    tokens = [sessions.open(sessions.link(ALICE, 2), now) for now in range(3, MOST_SESSIONS + 4)]
    assert sessions.find(tokens[0][0] if tokens[0] else "", 300) is None  # the one that was unused for longest
    assert sessions.find(tokens[-1][0] if tokens[-1] else "", 300) is not None
