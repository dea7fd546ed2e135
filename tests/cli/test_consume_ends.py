"""Ends of `redelivery consume` without success: exit code and message."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.fast_clock import fast
from tests.idle_time import IDLE, idle_once

import redelivery_memory.adapter
from redelivery.driver.connection import connection_end

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery_memory import MemoryBroker

__all__ = ["fast"]

HANDLERS = """
import asyncio
import threading

hold = threading.Event()

def hangs(message):
    hold.wait(60)

def leaves(message):
    raise SystemExit(0)

async def leaves_async(message):
    raise SystemExit(0)

async def cancels_itself(message):
    asyncio.current_task().cancel()
    await asyncio.sleep(60)

class Down(Exception):
    pass

async def down_async(message):
    raise Down

def cancelled(message):
    raise asyncio.CancelledError

async def cancelled_async(message):
    raise asyncio.CancelledError
"""


@pytest.fixture
def handlers(tmp_path: Path) -> None:
    """A module of handlers in the current directory."""
    (tmp_path / "enders.py").write_text(HANDLERS)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("leaves", "SystemExit: 0"),
        ("leaves_async", "SystemExit: 0"),
        ("cancels_itself", "CancelledError"),
    ],
)
@pytest.mark.usefixtures("handlers")
def test_handler_ends_the_program(cli: Any, shop: MemoryBroker, uri: str, name: str, error: str) -> None:
    """A handler that calls sys.exit, or cancels itself, has not succeeded: exit code 1, one line, nothing is lost."""
    ended = cli("consume", uri, "orders", "--handler", f"enders:{name}")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == f"redelivery: the handler ended the program: {error}"
    assert "Traceback" not in ended.err
    assert shop.depth("orders") == 3


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("name", ["cancelled", "cancelled_async"])
def test_a_handler_that_awaits_something_cancelled_has_failed(
    cli: Any, shop: MemoryBroker, uri: str, name: str
) -> None:
    """A cancellation that was not the worker's is a failure: the policy decides, and consuming goes on."""
    ended = cli("consume", uri, "orders", "--handler", f"enders:{name}", "--count", "3")
    assert ended.code == 0
    assert [letter.cause for letter in shop.dead_letters()] == ["CancelledError"] * 3


@pytest.mark.usefixtures("handlers")
def test_a_stuck_handler_is_shown_by_its_own_frames(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A stuck handler is exit code 70; the warning has its frames, each on a line, and no frame of the library."""
    ended = cli("consume", uri, "orders", "--handler", "enders:hangs", "--timeout", "0.05")
    sys.modules["enders"].hold.set()
    assert ended.code == 70
    first, frame, code, *_ = ended.err.splitlines()
    assert first.endswith("its timeout; nothing can stop a thread")
    assert frame.endswith(", in hangs")
    assert code.strip() == "hold.wait(60)"
    assert "redelivery/" not in ended.err.partition("error:")[0]
    assert shop.depth("orders") == 3


def test_a_message_that_is_set_aside_is_told(
    cli: Any, shop: MemoryBroker, uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that is set aside is exit code 3: it cannot be copied and is still on the queue."""
    able = replace(redelivery_memory.CAPABILITIES, poison_persistent=False, release=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    idle_once(monkeypatch, lambda: "set aside" in caplog.text)
    shop.send("letters", "part", body_kind="partial")
    ended = cli("consume", uri, "letters", "--exec", "false", "--idle", str(IDLE))
    assert ended.code == 3
    assert ended.err.splitlines()[-1] == "report: accepted 0, redelivered 2, set_aside 1"
    assert [held.text for held in shop.messages("letters")] == ["part"]


@pytest.mark.usefixtures("handlers", "fast")
@pytest.mark.parametrize(
    "end", [("--count", "1"), ("--idle", "0.02"), ("--count", "9", "--idle", "0.02")], ids=str
)
@pytest.mark.parametrize(
    "work",
    [("--exec", "exit 75", "--trip-on", "75"), ("--handler", "enders:down_async", "--trip", "enders:Down")],
    ids=str,
)
def test_a_run_that_ends_by_itself_does_not_wait_for_a_service_for_ever(
    cli: Any,
    shop: MemoryBroker,
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
    end: tuple[str, ...],
    work: tuple[str, ...],
) -> None:
    """With --count or --idle a breaker that stays open is exit code 75; nothing is charged, nothing is lost."""
    monkeypatch.setattr(connection_end, "OPEN", 0.1)
    ended = cli("consume", uri, "orders", *work, *end)
    assert ended.code == 75
    assert re.match(r"redelivery: no message has succeeded for \d+ s: ", ended.err.splitlines()[-1])
    assert ended.err.splitlines()[-1].endswith("; a run that ends by itself does not wait longer")
    assert shop.dead_letters() == []
    assert shop.depth("orders") == 3
