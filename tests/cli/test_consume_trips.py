"""`redelivery consume` with `--trip` and `--trip-on`: a service that is down uses up no redelivery."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.fast_clock import fast

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery_memory import MemoryBroker

__all__ = ["fast"]

HANDLERS = """
class Down(Exception):
    pass

class Busy(Exception):
    pass

left = [Down(), Busy(), Down(), Busy()]

def handle(message):
    if left:
        raise left.pop()

async def handle_async(message):
    handle(message)

number = 7
"""


@pytest.fixture(autouse=True)
def handlers(tmp_path: Path) -> None:
    """A module of handlers in the current directory."""
    (tmp_path / "handlers.py").write_text(HANDLERS)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("handler", ["handle", "handle_async"])
def test_exceptions_that_trip(cli: Any, shop: MemoryBroker, uri: str, handler: str) -> None:
    """Failures with the exceptions of --trip are not charged: no message is dead-lettered, whatever the policy."""
    once = uri.replace("maximumRedeliveries=2", "maximumRedeliveries=0")
    named = ("--trip", "handlers:Down", "--trip", "handlers:Busy")
    ended = cli("consume", once, "orders", "--handler", f"handlers:{handler}", "--count", "3", *named,
                "--output", "json")  # fmt: skip
    report = json.loads(ended.out)
    assert (ended.code, report["accepted"], report["spared"], report["poisoned"]) == (0, 3, 4, 0)
    assert shop.dead_letters() == []


@pytest.mark.usefixtures("fast")
def test_exit_statuses_that_trip(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """An exit status of --trip-on is not charged, any other one is."""
    once = uri.replace("maximumRedeliveries=2", "maximumRedeliveries=0")
    down = 'echo x >> tries; test $(wc -l < tries) -gt 3 || exit 75; test "$REDELIVERY_HEADER_number" = 2 && exit 1'
    ended = cli("consume", once, "orders", "--exec", f"{down}; exit 0", "--count", "3", "--trip-on", "75,69",
                "--output", "json")  # fmt: skip
    report = json.loads(ended.out)
    assert (ended.code, report["accepted"], report["spared"], report["poisoned"]) == (0, 2, 3, 1)
    assert [letter.cause for letter in shop.dead_letters()] == ["CommandFailed: exit status 1"]


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (["--trip", "handlers:Down"], 2, "--trip is about what a function raises: it needs --handler"),
        (["--exec", "cat", "--trip", "handlers:Down"], 2, "--trip is about what a function raises"),
        (["--trip-on", "75"], 2, "--trip-on is about the exit status of a command: it needs --exec"),
        (["--handler", "handlers:handle", "--trip-on", "75"], 2, "--trip-on is about the exit status"),
        (["--exec", "cat", "--trip-on", "75", "--poison-on", "65,75"], 2, "both name exit status 75"),
        (
            ["--handler", "handlers:handle", "--trip", "Down"],
            78,
            "--trip is written module:exception, not 'Down'",
        ),
        (["--handler", "handlers:handle", "--trip", "handlers:Dow"], 78, "handlers has no 'Dow'"),
        (
            ["--handler", "handlers:handle", "--trip", "nothing:Down"],
            78,
            "--trip nothing:Down: cannot import",
        ),
        (["--handler", "handlers:handle", "--trip", "handlers:number"], 78, "not an exception; name a class"),
        (
            ["--handler", "handlers:handle", "--trip", "builtins:SystemExit"],
            78,
            "not an exception; name a class",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Any, uri: str, given: list[str], code: int, text: str) -> None:
    """Options that make no sense together are refused in one line, before a connection."""
    ended = cli("consume", uri, "orders", *given)
    assert (ended.code, ended.out) == (code, "")
    assert text in ended.error
