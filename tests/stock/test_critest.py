"""What critest says of containerd is what it says of containerd behind the relay.

The short form takes the cases in which the relay has a hand: what it changes on the way (pods and containers made,
started, updated, looked at), and a stream. All of them: `make test-stock-all`, and the page that lists them:
`python -m tests.stock.critest`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cri.containerd import missing
from tests.stock.containerd2 import PROGRAMS
from tests.stock.critest import PAGE, REASONS, RUNTIMES, Outcome, compared, page
from tests.stock.needs import needs_stock

pytestmark = [
    *needs_stock("critest", *PROGRAMS, root=True),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
SHORT = "|".join([
    "should support stopping container .Conformance", "should support execSync .Conformance",
    "preserving (PodSandbox|container) attributes", "exec with tty=false and stdin=false",
])  # fmt: skip


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_relay_changes_no_answer_that_matters(name: str) -> None:
    straight, through = compared(name, SHORT)
    assert through == straight
    assert {one.state for one in straight.values()} <= {"passed", "skipped"}
    assert Counter(one.state for one in straight.values())["passed"] == 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RUNTIMES)
def test_all_cases_end_alike(name: str) -> None:
    straight, through = compared(name)
    assert through == straight
    failed = {case for case, one in straight.items() if one.state == "failed"}
    assert failed <= set(REASONS)


def test_the_page_says_what_became_of_each_case() -> None:
    one = {"a | b": Outcome("passed"), "c": Outcome("skipped", "nothing to look at")}
    text = page({"runtime": one, "and relay": one}, "v1")
    assert "| passed | 1 | 1 |" in text
    assert "| a / b | yes | yes |  |" in text
    assert "| c | – | – | nothing to look at |" in text
    assert PAGE.exists()
