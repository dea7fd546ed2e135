"""The archive of Spark's classes: without it Spark starts more slowly, and no test fails."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from integration.need import need_spark

need_spark()

from integration import spark_jvm
from integration.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ci("Spark's archive: processes that hang for a second")

# A program and its child, which goes on for longer than the test.
HANGS = """#!/bin/sh
sleep 600 &
echo $! > "$PIDS/child"
wait
"""
FAILS = """#!/bin/sh
exit 3
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that are said of the archive."""
    lines: list[str] = []
    monkeypatch.setattr(spark_jvm, "progress", lines.append)
    return lines


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the program writes the id of its child; it is the cache, too."""
    monkeypatch.setattr(spark_jvm, "cache_root", lambda: tmp_path)
    monkeypatch.setattr("integration.brokers.toolchain.cache_root", lambda: tmp_path)
    monkeypatch.setattr(spark_jvm, "LONGEST", 1.0)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "program"))
    monkeypatch.setenv("PIDS", str(tmp_path))
    return tmp_path


def program(folder: Path, text: str) -> None:
    """Write the program that is to make the archive."""
    path = folder / "program"
    path.write_text(text)
    path.chmod(0o755)


def gone(process: int) -> bool:
    """Return True if a process has ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_archive_that_is_late_is_left_out(pids: Path, said: list[str]) -> None:
    """An archive that is not ready in time is done without, in one line; all processes that made it are ended."""
    program(pids, HANGS)
    spark_jvm.make_archive()
    assert not spark_jvm._archive().exists()
    child = int((pids / "child").read_text())
    eventually(lambda: gone(child))
    assert said[1:] == [
        "the archive of Spark's classes is not ready after 1 s; Spark starts without it, more slowly"
    ]


def test_an_archive_that_failed_is_left_out(pids: Path, said: list[str]) -> None:
    """A failure is one line."""
    program(pids, FAILS)
    spark_jvm.make_archive()
    assert not spark_jvm._archive().exists()
    assert "was not made (exit status 3); Spark starts without it" in said[-1]
