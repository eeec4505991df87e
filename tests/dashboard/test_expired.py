"""Links and sessions that are too old, in a real browser on a server whose clock the test turns on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from kubeqos.dashboard.server import Dashboard
from kubeqos.dashboard.sessions import IDLE_SECONDS, LINK_SECONDS
from tests.dashboard.browser import CHROMIUM, Visit, chromium
from tests.dashboard.conftest import ADMIN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; Debian's package is called chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def later(dashboard: Dashboard, seconds: float) -> None:
    """What the dashboard holds to be now."""
    dashboard.clock = lambda: time.time() + seconds


@pytest.fixture
def visit(browser: Browser, dashboard: Dashboard) -> Iterator[Visit]:
    found = Visit(browser)
    yield found
    found.close()
    later(dashboard, 0)


def test_a_link_that_is_too_old_opens_nothing_and_says_what_to_do(visit: Visit, dashboard: Dashboard) -> None:
    link = dashboard.link(ADMIN)
    later(dashboard, LINK_SECONDS + 1)
    visit.page.goto(link)
    said = visit.page.get_by_role("alert")
    said.wait_for()
    assert "older than a quarter of an hour" in said.inner_text()
    assert visit.page.context.cookies() == []
    assert "login/" not in visit.page.url
    visit.page.get_by_label("Or paste the link here").fill(dashboard.link(ADMIN))
    visit.page.get_by_role("button", name="Log in").click()
    visit.page.get_by_role("heading", name="Cluster").wait_for()


def test_a_session_that_was_left_alone_ends_and_asks_to_log_in(visit: Visit, dashboard: Dashboard) -> None:
    visit.log_in(dashboard.link(ADMIN))
    later(dashboard, IDLE_SECONDS + 1)
    visit.page.evaluate("location.hash = '#/pods'")
    visit.page.get_by_role("heading", name="Log in").wait_for()
    assert visit.page.get_by_role("heading", name="Pods", exact=True).count() == 0
