"""The documentation's site in a real browser: on a telephone and on a screen, light and dark, without network."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.site import site

from integration.browser import Browser, need_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.ci("the site in a browser")

__all__ = ["site"]

TELEPHONE, SCREEN = 390, 1280
START, HOW_TO, API = "index.html", "dependency-down.html", "api/connect.html"
# Sum of the red, green and blue of the page's background.
BACKGROUND = (
    "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
)


class _Files(SimpleHTTPRequestHandler):
    """Serves the site; logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
        """Leave the log empty."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for the tests of this file."""
    with Browser(need_chromium()) as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [TELEPHONE, SCREEN])
@pytest.mark.parametrize("page", [START, HOW_TO, API])
def test_page(browser: Browser, address: str, page: str, width: int, scheme: str) -> None:
    """A page has title and heading, fits the width, follows the colour scheme, and causes no error."""
    browser.resize(width, scheme=scheme)
    browser.open(f"{address}/{page}")
    heading = browser.value("document.querySelector('h1').innerText")
    assert heading.strip("#\n ")
    assert "redelivery" in browser.value("document.title")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert (browser.value(BACKGROUND) > 380) is (scheme == "light")
    assert browser.value("performance.getEntriesByType('resource').length") > 0
    assert browser.failures == []


def test_every_page_fits_a_telephone(browser: Browser, address: str, site: Path) -> None:
    """No page of the site is wider than a telephone, and none causes an error."""
    browser.resize(TELEPHONE)
    wrong: dict[str, object] = {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        browser.open(f"{address}/{name}")
        found = browser.value("document.documentElement.scrollWidth"), [*browser.failures]
        if found[0] > TELEPHONE or found[1]:
            wrong[name] = found
    assert wrong == {}


@pytest.mark.parametrize("width", [TELEPHONE, SCREEN])
def test_search(browser: Browser, address: str, width: int) -> None:
    """A search for "ledger" finds the page of the ledger, without network."""
    browser.resize(width)
    browser.open(f"{address}/search.html?q=ledger")
    found = browser.wait_for(
        "document.querySelector('.search-summary, #search-results p')?.innerText.match(/[1-9]/) && "
        "[...document.querySelectorAll('#search-results li a')].map(a => a.pathname)"
    )
    assert "/ledger.html" in found
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.failures == []


def test_copy_button(browser: Browser, address: str) -> None:
    """Each block of code has a button that copies it."""
    browser.resize(SCREEN)
    browser.open(f"{address}/{START}")
    blocks = browser.value("document.querySelectorAll('div.highlight').length")
    browser.wait_for("document.querySelectorAll('button.copybtn').length > 0")
    assert browser.value("document.querySelectorAll('button.copybtn').length") == blocks
    browser.value("document.querySelector('button.copybtn').click()")
    assert browser.wait_for("document.querySelector('button.copybtn').classList.contains('success')")
    assert browser.failures == []


def test_navigation_on_a_telephone(browser: Browser, address: str) -> None:
    """The menu of a telephone opens, and leads to another page."""
    browser.resize(TELEPHONE)
    browser.open(f"{address}/{START}")
    browser.value("document.querySelector('label.nav-overlay-icon, label[for=__navigation]').click()")
    assert browser.wait_for("document.querySelector('#__navigation').checked")
    links = browser.value("[...document.querySelectorAll('.sidebar-tree a')].map(a => a.pathname)")
    assert f"/{HOW_TO}" in links
    assert browser.failures == []


def test_no_other_host_is_reached(browser: Browser, address: str) -> None:
    """Each resource of each page comes from the site; a request to another host would be a failure."""
    browser.resize(SCREEN)
    browser.open(f"{address}/{START}")
    loaded = browser.value("performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith((address, "data:"))] == []
    browser.value("fetch('http://elsewhere.example/').catch(() => 0)")
    assert any("ERR_NAME_NOT_RESOLVED" in each for each in browser.failures)
