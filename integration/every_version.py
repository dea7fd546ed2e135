"""REDELIVERY_VERSIONS=all: the same tests with the oldest, the present and the newest version of each broker."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from integration.brokers.versions import chosen

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_cmdline_main"]

RUNS = ("oldest", "present", "newest")


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run pytest once for each choice of versions, if all are requested; return the worst exit code."""
    if chosen() != "all" or hasattr(config, "workerinput"):
        return None
    worst = 0
    for run in RUNS:
        print(f"== REDELIVERY_VERSIONS={run}", flush=True)
        argv = [sys.executable, "-m", "pytest", *config.invocation_params.args]
        environment = {**os.environ, "REDELIVERY_VERSIONS": run}
        worst = max(worst, subprocess.run(argv, env=environment, check=False).returncode)
    return worst
