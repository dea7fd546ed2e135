"""`redelivery demo`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redelivery.cli import demo
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    import pytest


def test_demo(cli: Any) -> None:
    """The demo shows attempts, report, dead letter, checks and next commands, and ends with 0."""
    ended = cli("demo", "--delay", "5")
    assert (ended.code, ended.err) == (0, "")
    assert "Report: accepted 2, redelivered 5, poisoned 1" in ended.out
    assert "order-3  queue://orders         4  ValueError: no item" in ended.out
    assert ended.out.count("✓") == 9
    assert "redelivery policy explain" in ended.out
    assert "\x1b" not in ended.out
    assert max(len(line) for line in ended.out.splitlines()[:14]) <= 80


def test_json(cli: Any) -> None:
    """Measured delays are never below those of the policy; one object and lines have the same facts."""
    data = json.loads(cli("demo", "--delay", "4", "--output", "json").out)
    again = [attempt for attempt in data["attempts"] if attempt["delivery"] > 1]
    assert sorted(attempt["asked_ms"] for attempt in again) == [4, 4, 8, 8, 16]
    assert all(attempt["waited_ms"] >= attempt["asked_ms"] - 0.001 for attempt in again)
    assert data["ok"] is True
    lines = [json.loads(line) for line in cli("demo", "--delay", "4", "--output", "jsonl").out.splitlines()]
    assert [line["type"] for line in lines].count("attempt") == len(data["attempts"]) == 8
    assert lines[-1]["poisoned"] == data["report"]["poisoned"] == 1


def test_broken_promise(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo reports a promise that is not kept: here the broker loses dead letters."""
    monkeypatch.setattr(MemoryBroker, "dead_letters", lambda _: [])
    ended = cli("demo", "--delay", "2")
    assert ended.code == 1
    assert "✗ order-3 alone is in the dead-letter queue" in ended.out
    assert "did not happen as promised: order-3 alone" in ended.error


def test_early_redelivery_is_noticed(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redelivery before its due time is a broken promise."""
    waited = demo.Demo._note  # pyright: ignore[reportPrivateUsage]

    def hurried(self: Any, identity: str | None, *args: Any) -> None:
        if identity in self._failed:
            at, asked = self._failed[identity]
            self._failed[identity] = at + 1, asked
        waited(self, identity, *args)

    monkeypatch.setattr(demo.Demo, "_note", hurried)
    ended = cli("demo", "--delay", "2")
    assert ended.code == 1
    assert "each redelivery came after the delay asked for" in ended.error
