"""The documentation's site as its tests see it: built once for a run, in a folder of its own."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.needs import missing, skip_or_fail

__all__ = ["MISSING", "ROOT", "build", "site"]

ROOT = Path(__file__).parents[2]
MISSING = missing("sphinx", "furo", "myst_parser", "sphinx_copybutton")


def build(folder: Path) -> str:
    """Build the site as CI does, without network; return what Sphinx wrote to stderr, or nothing.

    Raises:
        AssertionError: Sphinx ended with an error, or with a warning.
    """
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html", "docs"]
    # No proxy answers: a build that needed the network would fail.
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    ended = subprocess.run(
        [*command, str(folder)],
        cwd=ROOT,
        env={**os.environ, **offline, "PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site: REDELIVERY_SITE, or one that is built once for all processes of the run."""
    if built := os.environ.get("REDELIVERY_SITE"):
        return Path(built)
    if MISSING:
        skip_or_fail(MISSING)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "site"
    with (shared / "site.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").exists():
            build(folder)
    return folder
