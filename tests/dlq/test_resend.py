"""Sending the dead letters of an export again: what arrives, what a second run leaves out, and lines that are bad."""

from __future__ import annotations

import io
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.dlq import export
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery import DeadLetterQueue
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.port import PendingSend

ROW: dict[str, Any] = {"original_destination": "queue://orders", "body": "x", "headers": {}}

BAD: list[tuple[dict[str, Any] | str | bytes, str]] = [
    ("{", "it is no JSON"),
    (b"\xff", "it is no JSON"),
    ("[" * 3000, "it is no JSON"),
    ("9" * 4999, "it is no JSON"),
    ("7", "it is no JSON object"),
    ('"' + "x" * 20000 + '"', "it is longer than 5,000 bytes"),
    ({"body": None}, "it must have one of body and body_base64"),
    ({"body_base64": "eA=="}, "it must have one of body and body_base64"),
    ({"body": None, "body_base64": "#"}, "body_base64 is no base64"),
    ({"body": "\ud800"}, "body has a lone surrogate"),
    ({"body_kind": "map"}, "body_kind must be text or bytes, not 'map'"),
    ({"body_kind": "partial"}, "its body was not whole"),
    ({"whole": False}, "its body was not whole"),
    (
        {"lossy": "a body that is a JMS Map"},
        "the line does not have a body that is a JMS Map: redrive the dead letter",
    ),
    ({"headers": {"a\nb": "x"}}, "header name 'a\\nb' has characters"),
    ({"headers": {"a:b": "x"}}, "header name 'a:b' has characters"),
    ({"headers": {"a": "x\0"}}, "header 'a' has a NUL"),
    ({"headers": {"a": [1]}}, "header 'a' must be text, a boolean"),
    ({"headers": {"a": 2**70}}, "header 'a' must be text, a boolean"),
    ({"headers": []}, "headers must be an object, not []"),
    ({"priority": 12}, "priority must be"),
    ({"priority": True}, "priority must be a whole number, not True"),
    ({"content_type": "a\nb"}, "content_type must be a MIME type"),
    ({"type": "a\0"}, "header 'type' has a NUL"),
    ({"died_at": "soon"}, "died_at must be an ISO 8601 time, not 'soon'"),
    ({"reply_to": "queue://a\nb"}, "contains a control character"),
    ({"original_destination": None}, "its origin is not known"),
    ({"original_destination": "queue://a,b"}, "its origin is not known"),
    ({"original_destination": "queue://a\nb"}, "its origin is not known"),
    ({"queue": "queue://orders"}, "its origin is not known"),
    ({"original_destination": "topic://news"}, "it came from topic://news"),
    ({"original_destination": "native://x"}, "its origin native://x cannot be checked"),
]


def written(path: Path, *rows: dict[str, Any] | str | bytes) -> Path:
    """Write an export with these lines: rows as they are changed from `ROW`, or any text."""
    lines = [
        row
        if isinstance(row, bytes)
        else row.encode()
        if isinstance(row, str)
        else json.dumps(ROW | row).encode()
        for row in rows
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Name of an export."""
    return tmp_path / "dead.jsonl"


def test_it_is_the_message_that_a_redrive_would_send(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path
) -> None:
    """Body, type, content type, ids, priority, group and properties arrive; nothing of the death, no broker's mark."""
    headers = {
        "tenant": "t", "n": 7, "redeliveryId": "first", "redeliveryCause": "ValueError: x", "redeliveryCount": "3",
        "redeliveryOriginalDestination": "queue://orders", "redeliveryOriginalId": "id-1", "_AMQ_DUPL_ID": "d",
        "_AMQ_ORIG_ADDRESS": "orders", "x-first-death-queue": "orders", "AMQ_SCHEDULED_DELAY": "9",
    }  # fmt: skip
    kept = {
        "content_type": "application/json", "correlation_id": "c", "priority": 7, "group": "g",
        "message_type": "order", "reply_to": "queue://answers",
    }  # fmt: skip
    broker.send("DLQ", '{"a": 1}', headers=headers, **kept)
    broker.send("DLQ", b"\xff\0", headers=headers)
    broker.send("DLQ", b"plain", headers=headers)
    assert tools.export(file) == 3
    done = tools.resend(file)
    assert (done.resent, done.destinations, done.complete) == (3, {"queue://orders": 3}, True)
    with redelivery.dead_letters(broker.uri, "orders") as there:
        sent = list(there)
    assert [(one.body, one.body_kind) for one in sent] == [
        (b'{"a": 1}', "text"), (b"\xff\0", "bytes"), (b"plain", "bytes"),
    ]  # fmt: skip
    assert {name: getattr(sent[0], name) for name in kept} == kept
    run = sent[0].headers["redeliveryRedriveRun"]
    assert sent[0].headers == {
        "tenant": "t", "n": 7, "redeliveryId": "first", "redeliveryOriginalId": "id-1", "redeliveryRedrives": "1",
        "redeliveryRedriveRun": run,
    }  # fmt: skip
    assert broker.depth("DLQ") == 3


def test_a_named_place_a_filter_and_a_dry_run(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path
) -> None:
    """`to` takes all lines, also those without an origin; filters choose lines; a dry run sends and writes nothing."""
    written(
        file,
        {"cause": "ValueError: 1"},
        {"original_destination": None, "cause": "KeyError: 2"},
        {"cause": "x"},
    )
    planned = tools.resend(file, to="later", cause=["ValueError", "KeyError"], dry_run=True)
    assert (planned.resent, planned.skipped, planned.dry_run) == (2, 1, True)
    assert (broker.depth("later"), sorted(os.listdir(file.parent))) == (0, ["dead.jsonl"])
    seen: list[int] = []
    done = tools.resend(file, to="later", cause=["ValueError", "KeyError"], progress=seen.append)
    assert (done.resent, broker.depth("later"), seen) == (2, 2, [1, 2])
    # A line is left: it is known which were sent.
    again = tools.resend(file, to="later")
    assert (again.resent, again.before) == (1, 2)
    assert sorted(os.listdir(file.parent)) == ["dead.jsonl"]


def test_a_second_run_leaves_out_what_was_confirmed(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path
) -> None:
    """After an interruption nothing is sent twice, also if lines were corrected, added or removed meanwhile."""
    written(file, *({"body": str(number)} for number in range(6)), {"body": "0"})

    def interrupt(count: int) -> None:
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tools.resend(file, progress=interrupt)
    progress = file.with_name("dead.jsonl.sent")
    assert stat.S_IMODE(progress.stat().st_mode) == 0o600
    planned = tools.resend(file, dry_run=True)
    assert (planned.before, planned.resent) == (3, 4)
    written(
        file,
        {"body": "new"},
        {"body": "2, corrected"},
        *({"body": str(number)} for number in (1, 3, 4, 5, 0, 0)),
    )
    done = tools.resend(file)
    assert (done.before, done.resent, done.complete) == (2, 6, True)
    bodies = [one.body.decode() for one in broker.messages("orders")]
    assert bodies == ["0", "1", "2", "new", "2, corrected", "3", "4", "5", "0"]
    assert not progress.exists(), "all were sent: the next run begins anew"
    assert tools.resend(file).resent == 8


def test_a_line_of_progress_that_a_kill_has_cut_off(tools: DeadLetterQueue, file: Path) -> None:
    """Only its own message is sent again: the lines after it are known to the next run."""
    written(file, *({"body": str(number)} for number in range(4)))

    def interrupt(count: int) -> None:
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tools.resend(file, progress=interrupt)
    progress = file.with_name("dead.jsonl.sent")
    progress.write_bytes(progress.read_bytes()[:-5])
    with pytest.raises(KeyboardInterrupt):
        tools.resend(file, progress=interrupt)
    planned = tools.resend(file, dry_run=True)
    assert (planned.before, planned.resent) == (3, 1)


def test_bad_lines_are_named_and_nothing_else_is_lost(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bad line has its number and one reason; all others are sent, and a second run sends what was corrected."""
    monkeypatch.setattr(export, "LONGEST", 5000)
    rows: list[dict[str, Any] | str | bytes] = []
    for line, _ in BAD:
        rows += [line, {}]
    written(file, *rows)
    done = tools.resend(file)
    assert (done.resent, done.refused, done.complete) == (len(BAD), len(BAD), False)
    assert [one.line for one in done.problems] == [2 * number + 1 for number in range(len(BAD))]
    for (_, reason), found in zip(BAD, done.problems, strict=True):
        assert reason in found.text
        assert "\n" not in found.text
    rows[0] = {"body": "corrected"}
    again = tools.resend(written(file, *rows))
    assert (again.resent, again.before, again.refused) == (1, len(BAD), len(BAD) - 1)


def test_topics_and_native_addresses_when_asked(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path
) -> None:
    """`topics` and `native` send what a redrive would send with them."""
    written(file, {"original_destination": "topic://news"}, {"original_destination": "native://orders"})
    done = tools.resend(file, topics=True, native=True)
    assert done.destinations == {"topic://news": 1, "native://orders": 1}


def test_what_the_broker_refuses(broker: MemoryBroker, tools: DeadLetterQueue, file: Path) -> None:
    """A line that the broker refuses is named, and the next is sent; after ten in a row the run ends, and goes on."""
    written(file, *({"body": str(number)} for number in range(14)))
    broker.refuse_sends(1)
    done = tools.resend(file)
    assert ([one.line for one in done.problems], done.resent) == ([1], 13)
    file.with_name("dead.jsonl.sent").unlink()
    broker.refuse_sends(20)
    with pytest.raises(redelivery.AdapterError, match="10 lines in a row were refused, the last: "):
        tools.resend(file)
    broker.refuse_sends(0)
    assert tools.resend(file).resent == 14


def test_an_open_file_has_no_progress(broker: MemoryBroker, tools: DeadLetterQueue, tmp_path: Path) -> None:
    """A binary file is read to its end; an empty one, or blank lines, are nothing."""
    assert tools.resend(io.BytesIO(json.dumps(ROW).encode())).resent == 1
    assert tools.resend(io.BytesIO(b"\n \n\r\n")).matched == 0
    assert os.listdir(tmp_path) == []


def test_the_progress_of_another_user_or_run_is_refused(
    tools: DeadLetterQueue, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is sent: a link, a file of another user, and an export that another run is sending."""
    written(file, {})
    progress = file.with_name("dead.jsonl.sent")
    progress.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="no progress can be kept"):
        tools.resend(file)
    progress.unlink()
    fcntl = pytest.importorskip("fcntl")
    with progress.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another run is sending this export"):
            tools.resend(file)
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    with pytest.raises(PermissionError, match="another user's"):
        tools.resend(file)


@pytest.mark.parametrize("place", ["z.>", "z.*", "temp-queue://x", "b,c", "z?consumer.exclusive=true"])
def test_a_place_that_is_no_one_place_is_refused_at_once(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path, place: str
) -> None:
    """A wildcard, a temporary queue or several queues are refused before anything is sent, in a dry run, too."""
    for dry in (True, False):
        for call in (
            lambda: tools.resend(file, to=place, dry_run=dry),  # noqa: B023 - called at once
            lambda: tools.redrive(to=place, dry_run=dry),  # noqa: B023
            lambda: tools.redrive(quarantine=place, dry_run=dry),  # noqa: B023
        ):
            with pytest.raises(
                redelivery.ConfigurationError, match="must be one queue, topic or native address"
            ):
                call()


def test_its_rate_and_its_arguments(file: Path) -> None:
    """A rate spreads the messages; an argument that makes no sense is refused by its name."""
    written(file, *({"body": str(number)} for number in range(5)))
    clock = ManualClock(auto_advance=True)
    wrong: list[dict[str, Any]] = [{"rate": 0}, {"in_flight": 0}, {"to": "queue://a\n"}, {"cause": 7}]
    with MemoryBroker("paced", clock=clock) as broker, redelivery.dead_letters(broker.uri) as tools:
        began = clock.monotonic()
        assert tools.resend(file, rate=2).resent == 5
        assert clock.monotonic() - began == pytest.approx(2.0)
        for arguments in wrong:
            with pytest.raises((redelivery.ConfigurationError, TypeError)):
                tools.resend(file, **arguments)
        with pytest.raises(FileNotFoundError):
            tools.resend(file.with_name("absent"))


def test_many_in_flight(broker: MemoryBroker, tools: DeadLetterQueue, file: Path) -> None:
    """With several unconfirmed at once all are sent once, in order."""
    written(file, *({"body": str(number)} for number in range(100)))
    assert tools.resend(file, in_flight=7).resent == 100
    assert [one.body for one in broker.messages("orders")] == [b"%d" % number for number in range(100)]


def test_what_is_confirmed_is_written_down_at_once(
    broker: MemoryBroker, tools: DeadLetterQueue, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for more in flight a confirmed line does not wait for others: a kill would double its message."""
    written(file, *({"body": str(number)} for number in range(4)))
    send, seen = DeadLetterConnection.send, list[tuple[int, int]]()

    def confirmed(self: DeadLetterConnection, message: Outgoing) -> PendingSend:
        pending = send(self, message)
        pending.wait()
        return pending

    monkeypatch.setattr(DeadLetterConnection, "send", confirmed)
    tools.resend(file, in_flight=50, progress=lambda count: seen.append((count, broker.depth("orders"))))
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]
