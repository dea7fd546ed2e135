"""`redelivery consume`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import click
import pytest
from tests.cli.test_command_run import an_hour_after
from tests.eventually import eventually
from tests.idle_time import IDLE, idle_once

import redelivery
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from pathlib import Path

HANDLERS = """
import os, signal, threading

hold = threading.Event()
seen = []

def handle(message):
    seen.append(message.text)
    if message.text == "order 2":
        raise ValueError("bad order")

async def handle_async(message):
    handle(message)

class Handler:
    async def __call__(self, message):
        handle(message)

handler = Handler()

def ends(message):
    os.kill(os.getpid(), signal.SIGTERM)

def hangs(message):
    os.kill(os.getpid(), signal.SIGINT)
    hold.wait(60)
"""


@pytest.fixture
def handlers(tmp_path: Path) -> None:
    """A module of handlers in the current directory."""
    (tmp_path / "handlers.py").write_text(HANDLERS)


@pytest.mark.parametrize("name", ["handle", "handle_async", "handler"])
@pytest.mark.usefixtures("handlers")
def test_handler(cli: Any, shop: MemoryBroker, uri: str, name: str) -> None:
    """A return accepts, an exception goes to the policy: for plain functions, async functions and async objects."""
    ended = cli("consume", uri, "orders", "--handler", f"handlers:{name}", "--count", "3", "--workers", "2")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines()[-1].startswith("report: accepted 2, redelivered 2, poisoned 1")
    assert "delivery 1 of 3 failed (ValueError: bad order); redelivery in 0.005 s" in ended.err
    assert "Traceback" not in ended.err
    assert [(letter.text, letter.cause) for letter in shop.dead_letters()] == [
        ("order 2", "ValueError: bad order")
    ]
    assert shop.depth("orders") == 0


@pytest.mark.usefixtures("handlers")
def test_report_as_json(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """With --output json the report is JSON on stdout; with -v stderr has each failure with its traceback."""
    ended = cli(
        "consume", uri, "orders", "--handler", "handlers:handle", "--count", "3", "--output", "json", "-v"
    )
    report = json.loads(ended.out)
    assert (report["accepted"], report["redelivered"], report["poisoned"]) == (2, 2, 1)
    assert "warning: queue://orders: " in ended.err
    assert "Traceback" in ended.err


def test_command(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A command has the body on stdin and the properties in its environment; its stderr becomes the cause."""
    script = (
        'read -r body; echo "$body|$REDELIVERY_DESTINATION|$REDELIVERY_DELIVERY_COUNT|$REDELIVERY_HEADER_number|'
        '$(env | grep -c ^[^=]*odd)"; test "$REDELIVERY_HEADER_number" != 2 || { echo no such item >&2; exit 7; }'
    )
    ended = cli("consume", uri, "orders", "--exec", script, "--count", "3")
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == [
        "order 1|queue://orders|1|1|0",
        "order 2|queue://orders|1|2|0",
        "order 2|queue://orders|2|2|0",
        "order 2|queue://orders|3|2|0",
        "order 3|queue://orders|1|3|0",
    ]
    assert "no such item\n" in ended.err
    assert [letter.cause for letter in shop.dead_letters()] == ["CommandFailed: exit status 7: no such item"]


def test_command_that_reads_nothing(cli: Any, uri: str) -> None:
    """A command may leave a large body unread; properties that no environment can carry are left out."""
    with MemoryBroker("shop") as shop:
        shop.send(
            "orders",
            b"x" * 1_000_000,
            headers={"nul": "a\0b", "long": "x" * 100_000, "LD PRELOAD": "x", "n": 5},
        )
        script = 'test -z "$REDELIVERY_HEADER_nul$REDELIVERY_HEADER_long" && test "$REDELIVERY_HEADER_n" = 5'
        assert cli("consume", uri, "orders", "--exec", script, "--count", "1").code == 0
        assert shop.depth("orders") == 0


def test_killed_command(cli: Any, uri: str) -> None:
    """A command that a signal killed has failed, and the cause names the signal."""
    with MemoryBroker("shop") as shop:
        shop.send("orders", "x")
        assert cli("consume", uri, "orders", "--exec", "kill -9 $$", "--count", "1").code == 0
        assert [letter.cause for letter in shop.dead_letters()] == ["CommandFailed: killed by SIGKILL"]


@pytest.mark.usefixtures("handlers")
def test_sigterm_drains(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """SIGTERM lets the running handler finish, releases the other messages, and ends with 0."""
    ended = cli("consume", uri, "orders", "--handler", "handlers:ends")
    assert ended.code == 0
    assert ended.err.startswith("report: accepted ")


@pytest.mark.usefixtures("handlers")
def test_handler_still_running(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A handler that runs past the deadline is exit code 3; its message is released."""
    ended = cli("consume", uri, "orders", "--handler", "handlers:hangs", "--drain-timeout", "0.05")
    sys.modules["handlers"].hold.set()
    assert ended.code == 3
    assert "running 1" in ended.err
    assert shop.depth("orders") == 3


def test_command_is_killed_at_the_deadline(cli: Any, shop: MemoryBroker, uri: str, tmp_path: Path) -> None:
    """A command that runs past the deadline is killed; its message is released."""
    script = f"echo $$ > {tmp_path}/pid; kill -INT {os.getpid()}; exec tail -f /dev/null"
    ended = cli("consume", uri, "orders", "--exec", script, "--drain-timeout", "0.1")
    assert ended.code == 3
    assert shop.depth("orders") == 3
    pid = int((tmp_path / "pid").read_text())

    def reaped() -> bool:
        """True if the worker that waits for the command has seen its end."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(reaped)


def test_count_takes_no_more(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """--count 2 prints and accepts two messages, and leaves the third alone, whichever it is: workers race."""
    ended = cli("consume", uri, "orders", "--count", "2", "--output", "jsonl", "--workers", "3")
    printed = [json.loads(line)["body"] for line in ended.out.splitlines()]
    left = [(held.text, held.broker_count) for held in shop.messages("orders")]
    assert [count for _, count in left] == [0]
    assert sorted([*printed, *(body for body, _ in left)]) == ["order 1", "order 2", "order 3"]


def test_count_counts_messages_of_one_id(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """--count 2 takes two messages, also if a producer gives one id to all."""
    for number in range(3):
        shop.send("twins", f"twin {number}", headers={"redeliveryId": "one"})
    ended = cli("consume", uri, "twins", "--count", "2", "--output", "jsonl", "--workers", "3")
    assert len(ended.out.splitlines()) == 2


def test_count_does_not_tell_of_what_it_put_off(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A surplus message, which --count defers and releases at the end, is no deferral in the report."""
    ended = cli("consume", uri, "orders", "--count", "2", "--credit", "3", "--workers", "3")
    assert "report: accepted 2, released 1\n" in ended.err


def test_idle(cli: Any, shop: MemoryBroker, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--idle ends when the queue is empty; the URI may come from the environment."""
    monkeypatch.setenv("REDELIVERY_URL", uri)
    idle_once(monkeypatch, lambda: shop.depth("orders") == 0)
    ended = cli("consume", "orders", "--idle", str(IDLE), "--output", "json")
    data = json.loads(ended.out)
    assert [message["body"] for message in data["messages"]] == ["order 1", "order 2", "order 3"]
    assert data["report"]["accepted"] == 3
    assert shop.depth("orders") == 0
    assert json.loads(cli("consume", "orders", "--idle", str(IDLE), "--output", "json").out)["messages"] == []


def test_idle_waits_for_redeliveries(
    cli: Any, shop: MemoryBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A parked message keeps `--idle` from ending."""
    # From the first failure on, each look finds that the time of `--idle` is over.
    idle_once(monkeypatch, lambda: "redelivery in 0.1 s" in caplog.text)
    uri = "memory://shop?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=100"
    ended = cli("consume", uri, "orders", "--idle", str(IDLE), "--exec", "exit 1", "--output", "json")
    assert json.loads(ended.out)["poisoned"] == 3


def test_nothing_a_terminal_obeys(cli: Any, uri: str) -> None:
    """Escapes in a message are shown, not sent to the terminal; a body that is no text is base64."""
    with MemoryBroker("shop") as shop:
        shop.send("orders", "\x1b[31mred\x9b\u202e\n")
        shop.send("orders", b"\xff\x00")
        table = cli("consume", uri, "orders", "--count", "1").out
        assert "\\x1b[31mred\\x9b\\u202e\\n" in table
        message = json.loads(cli("consume", uri, "orders", "--count", "1", "--output", "jsonl").out)
        assert message["body_base64"] == "/wA="


def test_reader_goes_away(cli: Any, shop: MemoryBroker, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that could not be written is released, and consuming ends quietly."""

    def refused(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", lambda text, err=False: None if err else refused(text))
    ended = cli("consume", uri, "orders", "--output", "json")
    assert (ended.code, ended.out) == (0, "")
    assert [held.broker_count for held in shop.messages("orders")] == [0, 0, 0]


def test_broker_ends_the_consumer(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A connection that cannot be restored is exit code 69, with the report."""
    pulled = f"failover:({uri.replace('?', ')?')}&maxReconnectAttempts=1"
    over = threading.Event()

    def cut() -> None:
        while sum(step.action == "accepted" for step in shop.history()) < 3 and not over.wait(0.002):
            pass
        shop.refuse_connections()
        shop.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    ended = cli("consume", pulled, "orders")
    over.set()
    thread.join()
    assert ended.code == 69
    assert "report: accepted 3" in ended.err
    assert ended.err.splitlines()[-1].startswith("redelivery: gave up reconnecting")


def test_signals_are_put_back(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """The handlers of SIGTERM and SIGINT are the same after a run as before."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    cli("consume", uri, "orders", "--count", "1")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_exit_statuses_that_steer(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A command can poison or discard its message by its exit status; any other one fails it."""
    command = 'case "$REDELIVERY_HEADER_number" in 1) echo bad >&2; exit 65;; 2) exit 3;; *) exit 0;; esac'
    ended = cli("consume", uri, "orders", "--exec", command, "--count", "3", "--poison-on", "64,65",
                "--discard-on", "3", "--output", "json")  # fmt: skip
    assert ended.code == 0
    report = json.loads(ended.out)
    assert {name: report[name] for name in ("accepted", "poisoned", "discarded", "redelivered")} == {
        "accepted": 1, "poisoned": 1, "discarded": 1, "redelivered": 0,
    }  # fmt: skip
    (letter,) = shop.dead_letters()
    assert (letter.cause, letter.count) == ("Poison: exit status 65: bad", 1)


def test_command_that_takes_too_long(
    cli: Any, shop: MemoryBroker, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that takes too long is killed, with its children, and has failed."""
    an_hour_after(monkeypatch, tmp_path / "pipe")
    script = 'test "$REDELIVERY_HEADER_number" = 2 || exit 0; cat; mkfifo pipe; read -r never < pipe'
    once = uri.replace("maximumRedeliveries=2", "maximumRedeliveries=0")
    ended = cli("consume", once, "orders", "--exec", script, "--count", "3", "--timeout", "10")
    assert ended.code == 0
    assert [letter.cause for letter in shop.dead_letters()] == [
        "CommandFailed: killed after 10 s (--timeout)"
    ]


def test_a_timeout_needs_something_to_run(cli: Any, uri: str) -> None:
    """A time-out is refused where messages are only printed."""
    assert "--timeout needs --handler or --exec" in cli("consume", uri, "orders", "--timeout", "1").error


def test_a_count_is_refused_where_the_broker_schedules(cli: Any, shop: MemoryBroker, uri: str) -> None:
    """A count is refused where the broker schedules: a redelivery is another message there."""
    shop.send("orders", "order 1")
    before = shop.depth("orders")
    ended = cli("consume", f"{uri}&redelivery.scheduler=broker", "orders", "--count", "1")
    assert ended.code == 78
    assert "--count needs redelivery.scheduler=client" in ended.err
    assert shop.depth("orders") == before


@pytest.mark.parametrize("handler", ["work:handle", "work:handle_async"])
def test_a_refused_log_in_has_its_own_exit_code(
    cli: Any, shop: MemoryBroker, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    """A refused log-in has an exit code of its own: a supervisor need not restart the command."""
    (tmp_path / "work.py").write_text(
        "def handle(m): ...\nasync def handle_async(m): ...\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    shop.refuse_connections(lambda: redelivery.AdapterError("not authorized"))
    ended = cli("consume", uri, "orders", "--handler", handler)
    assert (ended.code, ended.err) == (77, "redelivery: not authorized\n")
