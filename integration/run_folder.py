"""Folder of one run of pytest, which all its processes see: groups of tests, failures, the log of its programs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["RUN", "begin", "is_worker", "run_folder"]

RUN = "REDELIVERY_TEST_RUN"
"""Variable with the folder's path. The processes of a parallel run, and all programs of the tests, inherit it."""


def is_worker(config: pytest.Config) -> bool:
    """True in a process that another one, which runs no test, has started to run tests."""
    return hasattr(config, "workerinput")


def begin(config: pytest.Config) -> Path:
    """Return the folder; the process that begins the run makes it, and removes it at its end."""
    if not is_worker(config):
        folder = tempfile.TemporaryDirectory(prefix="redelivery-run-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ[RUN] = folder.name
    return run_folder()


def run_folder() -> Path:
    """Return the folder of this run, of which there is one since `begin`."""
    return Path(os.environ[RUN])
