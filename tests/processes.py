"""Processes of a run: a run of whole folders takes two or more, a run of a part of them takes none beside its own."""

from __future__ import annotations

import os
from typing import Any

import pytest

UNIT = 2
"""Processes for the unit tests: they compute all the time, and collect in each process."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose processes for a run of the unit tests, unless `-n` does; with `--pdb` or `-s` there is one."""
    if hasattr(config, "workerinput"):
        return  # xdist calls this hook in each process that it has started: they would start others without end
    option: Any = config.option
    whole = {os.path.normpath(each) for each in config.args} == {"tests"}
    alone = option.usepdb or option.capture == "no" or option.collectonly
    if whole and not alone and getattr(option, "numprocesses", 0) is None:
        option.numprocesses, option.dist = UNIT, "worksteal"
