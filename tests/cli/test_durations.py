"""Durations, log-ins that are refused, and `python -m redelivery` on the command line."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import redelivery
from redelivery.cli.app import WrongValue
from redelivery.cli.common_options import milliseconds, rate, seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("90", 90.0), ("0", 0.0), ("1.5", 1.5), ("30s", 30.0), ("15m", 900.0), ("15min", 900.0), ("2h", 7200.0),
        ("30d", 2592000.0), ("1w", 604800.0), ("500ms", 0.5), ("1h30m", 5400.0), ("1.5h", 5400.0), ("30 s", 30.0),
        ("2H", 7200.0), ("1e3", 1000.0),
    ],
)  # fmt: skip
def test_a_duration_is_read(text: str, found: float) -> None:
    """A number alone is seconds; units may follow each other."""
    assert seconds()(text) == found


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "5y", "5s5", "s", "1h-30m", "1e999", "1e999d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """The error names units that are taken."""
    with pytest.raises(WrongValue, match="30s, 15m, 2h, 30d or a number of seconds"):
        seconds()(text)


def test_zero_is_refused_where_a_duration_must_be_more() -> None:
    """`positive` refuses 0 in every unit."""
    for text in ("0", "0s", "0ms"):
        with pytest.raises(WrongValue, match="more than 0"):
            seconds(positive=True)(text)


def test_milliseconds_are_whole() -> None:
    """A number alone is milliseconds; a part of one, or less than allowed, is refused."""
    assert [milliseconds(1)(text) for text in ("60000", "60s", "1m", "0.5s")] == [60000, 60000, 60000, 500]
    for text in ("0", "1.5", "0.5ms", "x", "-1"):
        with pytest.raises(WrongValue, match="1 ms or more"):
            milliseconds(1)(text)


def test_a_rate_has_no_unit() -> None:
    """A rate is a number of messages a second of more than 0."""
    assert rate("2.5") == 2.5
    for text in ("0", "5s", "x", "nan", "1e999"):
        with pytest.raises(WrongValue, match="messages a second"):
            rate(text)


@pytest.mark.parametrize(
    "command",
    [("dlq", "summary"), ("dlq", "purge", "--yes"), ("send", "q", "x"), ("consume", "q")],
    ids=" ".join,
)
def test_a_refused_log_in_is_77(cli: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    """Every command that connects ends with 77 where the broker refuses the log-in, and not with 1 or 69."""

    def refuse(*_: object) -> None:
        raise redelivery.AdapterError("the broker refused the log-in: no")

    monkeypatch.setattr("redelivery_memory.adapter.MemoryAdapter.open", refuse)
    monkeypatch.setenv("REDELIVERY_URL", "memory://locked")
    ended = cli(*command)
    assert ended.code == 77
    assert ended.err.splitlines()[-1] == "redelivery: the broker refused the log-in: no"


def test_the_package_is_the_command() -> None:
    """`python -m redelivery` runs the command `redelivery`."""
    ended = subprocess.run(
        [sys.executable, "-m", "redelivery", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"redelivery {redelivery.__version__}\n"
