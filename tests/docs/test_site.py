"""The built site in Chromium: nothing is cut off or wider than the screen, on a desk and on a telephone, light or dark.

`KUBEQOS_LOOK=/folder pytest tests/docs/test_site.py` also leaves a picture of each page there, for somebody to look at.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browser import CHROMIUM, chromium

ROOT = Path(__file__).parents[2]
LOOK = os.environ.get("KUBEQOS_LOOK", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; Debian's package is called chromium"),
]
WRONG = """() => {
  const wide = document.documentElement.scrollWidth - window.innerWidth;
  const pictures = [...document.querySelectorAll('article img')];
  const scrolls = (one) => one.closest('pre, .md-typeset__scrollwrap, .md-typeset__table, .highlight');
  const cut = [...document.querySelectorAll('article *')].filter((one) => !scrolls(one)
    && one.getBoundingClientRect().right > window.innerWidth + 1 && getComputedStyle(one).position !== 'absolute');
  return [
    ...(wide > 0 ? [`the page is ${wide} px wider than the screen`] : []),
    ...pictures.filter((one) => !one.complete || !one.naturalWidth).map((one) => `no picture at ${one.src}`),
    ...[...document.querySelectorAll('article p')].filter((one) => one.textContent.includes('```'))
      .map((one) => `a block that is none: ${one.textContent.slice(0, 60)}`),
    ...cut.slice(0, 3).map((one) => `cut off: ${one.tagName} ${one.textContent.slice(0, 60)}`),
  ];
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off(site: Path, browser: Browser, width: int, theme: str) -> None:
    pages = sorted(page for page in site.rglob("index.html"))
    assert len(pages) > 30
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    shown = context.new_page()
    wrong = []
    for page in pages:
        shown.goto(page.as_uri())
        name = str(page.parent.relative_to(site))
        wrong += [f"{name}: {one}" for one in shown.evaluate(WRONG)]
        if LOOK:
            shown.screenshot(path=f"{LOOK}/{name.replace('/', '-')}-{width}-{theme}.png", full_page=False)
    context.close()
    assert wrong == []
