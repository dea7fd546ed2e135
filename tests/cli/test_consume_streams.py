"""Streams and environment of `redelivery consume` and of its commands."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.cli import consume
from redelivery.cli.formatting import note
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker("streams") as broker:
        broker.send("orders", "one")
        yield broker


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_stdout_is_for_data(cli: Any, broker: MemoryBroker, output: str) -> None:
    """With JSON on stdout, the output of a command goes to stderr."""
    ended = cli("consume", broker.uri, "orders", "--exec", "echo hello", "--count", "1", "--output", output)
    assert json.loads(ended.out)["accepted"] == 1
    assert "hello" in ended.err


def test_a_command_does_not_see_our_uri(
    cli: Any, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command does not get REDELIVERY_URL, which can hold a password."""
    monkeypatch.setenv("REDELIVERY_URL", broker.uri)
    script = 'test -z "$REDELIVERY_URL" && echo "${REDELIVERY_URL-unset}"'
    assert cli("consume", "orders", "--exec", script, "--count", "1").out == "unset\n"


@pytest.mark.parametrize("word", ["", "async "])
def test_draining_is_told(
    cli: Any, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str
) -> None:
    """A signal during a slow handler writes how many handlers run, and how to end at once."""
    monkeypatch.setattr(consume, "SOON", 0.01)
    told = threading.Event()

    def noted(text: str) -> None:
        note(text)
        told.set()

    monkeypatch.setattr(consume, "note", noted)
    monkeypatch.setattr(os, "told", told, raising=False)
    (tmp_path / "slow.py").write_text(
        f"import asyncio, os\n{word}def handle(message):\n    os.kill(os.getpid(), {int(signal.SIGTERM)})\n"
        + ("    await asyncio.to_thread(os.told.wait, 60)\n" if word else "    os.told.wait(60)\n")
    )
    monkeypatch.delitem(__import__("sys").modules, "slow", raising=False)
    ended = cli("consume", broker.uri, "orders", "--handler", "slow:handle")
    assert ended.code == 0
    assert "draining: 1 handler still runs (at most 30 s); again to end at once" in ended.err


def test_no_report_where_nothing_ran(cli: Any, broker: MemoryBroker) -> None:
    """A consumer that never began writes one line to stderr, and no report of zeros."""
    for output in ("table", "json"):
        ended = cli("consume", broker.uri, "DLQ", "--exec", "cat", "--output", output)
        assert (ended.code, ended.out) == (78, "")
        assert "dead-letter" in ended.error


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_broker_is_away(
    cli: Any, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, number: int
) -> None:
    """A signal while the broker is away ends with 0, as a drain, without waiting for the broker."""

    def go() -> None:
        broker.refuse_connections()
        broker.cut()
        os.kill(os.getpid(), number)

    monkeypatch.setattr(consume, "go", go, raising=False)
    (tmp_path / "away.py").write_text(
        f"from redelivery.cli import consume\n{kind} handle(message):\n    consume.go()\n"
    )
    ended = cli("consume", f"failover:({broker.uri})", "orders", "--handler", "away:handle")
    assert ended.code == 0
    assert ended.err.splitlines()[-1].startswith("report: ")
