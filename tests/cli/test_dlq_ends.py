"""`redelivery dlq` that is interrupted, or matches nothing: message and exit code."""

from __future__ import annotations

import errno
import io
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

import redelivery
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

URI = "memory://breaking"
FAST = ("--idle", "0.05")
COUNT = 200


@pytest.fixture(autouse=True)
def breaking() -> Iterator[MemoryBroker]:
    """Broker with 200 dead letters of two causes."""
    with MemoryBroker("breaking") as broker:
        for number in range(COUNT):
            headers = {"redeliveryCause": f"{'ValueError' if number % 4 else 'KeyError'}: {number}"}
            headers["redeliveryOriginalDestination"] = "queue://orders"
            broker.send("DLQ", f"{number}", headers=headers)
        yield broker


def at(count: int, end: Callable[[], None]) -> Callable[[Any, int], None]:
    """Return a progress callback that calls `end` once so many are done."""
    told: list[int] = []

    def tell(steps: Any, done: int) -> None:
        steps.done = done
        if done >= count and not told:
            told.append(done)
            end()

    return tell


def ctrl_c() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


def terminate() -> None:
    """Send SIGTERM to this process."""
    os.kill(os.getpid(), signal.SIGTERM)


def lose() -> None:
    """Lose the connection for good."""
    raise redelivery.TransportError("the broker is gone")


ENDS = [(ctrl_c, "interrupted"), (terminate, "terminated"), (lose, "the broker is gone")]


@pytest.mark.parametrize(("end", "why"), ENDS)
@pytest.mark.parametrize("command", ["redrive", "purge"])
def test_broken_off(
    cli: Any,
    breaking: MemoryBroker,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    end: Callable[[], None],
    why: str,
) -> None:
    """An interrupted run writes how many are done, ends with 3, and loses no dead letter; a second run finishes it."""
    monkeypatch.setattr("redelivery.cli.formatting.ProgressSteps.__call__", at(64, end))
    before = signal.getsignal(signal.SIGTERM)
    sure = ("--yes",) if command == "purge" else ()
    verb = "purged" if command == "purge" else "redriven"
    ended = cli("dlq", command, URI, *sure, *FAST)
    done = COUNT - breaking.depth("DLQ")
    assert ended.code == 3, ended.err
    assert ended.error == f"redelivery: {done} {verb}, then: {why}"
    assert 64 <= done < COUNT
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "400")
    assert cli("dlq", command, URI, *sure, *FAST).code == 0
    assert breaking.depth("orders") == (COUNT if command == "redrive" else 0)


@pytest.mark.parametrize(("end", "why"), ENDS[:2])
def test_broken_off_before_anything(
    cli: Any, breaking: MemoryBroker, monkeypatch: pytest.MonkeyPatch, end: Callable[[], None], why: str
) -> None:
    """A run that is interrupted before the first dead letter ends with 1."""

    def take(*_: object) -> None:
        end()

    monkeypatch.setattr("redelivery.dlq.dlq_connection.DeadLetterConsumer.take", take)
    ended = cli("dlq", "redrive", URI, *FAST)
    assert (ended.code, ended.error) == (1, f"redelivery: nothing redriven: {why}")
    assert breaking.depth("DLQ") == COUNT


def test_a_refused_copy_after_some(cli: Any, breaking: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redriven dead letters are counted before a refused copy; the others stay."""
    # The test needs the tries, not the seconds between them.
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.02)
    breaking.refuse_settlements(lambda message: message.body == b"150")
    ended = cli("dlq", "redrive", URI, *FAST)
    done = COUNT - breaking.depth("DLQ")
    assert ended.code == 3
    last = ended.err.splitlines()[-1]
    assert last.startswith(f"redelivery: {done} redriven, then: dead letter ")
    assert "cannot be sent to queue://orders: the broker refused" in last


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_full_disk(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """A full disk leaves the file as it was; the message has its name."""
    if kind == "parquet":
        need("pyarrow")
    file = tmp_path / f"dead.{kind}"
    file.write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ended = cli("dlq", "export", URI, "--file", file.name, "--force")
    assert ended.code == 1
    assert ended.error.startswith(f"redelivery: {file.name} was not written, after {COUNT} dead letters: ")
    assert "No space left on device" in ended.error
    assert ".part" not in ended.error
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"before", [file.name])


def test_a_file_that_cannot_be(cli: Any) -> None:
    """The message names the file as it was given, and no temporary one."""
    ended = cli("dlq", "export", URI, "--file", "absent/dead.jsonl")
    assert ended.code == 1
    assert "'absent/dead.jsonl'" in ended.error
    assert ".part" not in ended.error


def test_a_file_that_exists(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export replaces a file after a question; without a terminal only with --force, or --yes."""
    file = tmp_path / "dead.jsonl"
    file.write_text("before")
    ended = cli("dlq", "export", URI, "--file", file.name, stdin=b"")
    assert (ended.code, file.read_text()) == (2, "before")
    assert "dead.jsonl exists: add --force to replace it" in ended.error
    for answer, code, lines in (("n", 130, 0), ("y", 0, COUNT)):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        assert cli("dlq", "export", URI, "--file", file.name).code == code
        assert file.read_text().count("\n") == lines
    for sure in ("--force", "--yes"):
        file.write_text("before")
        assert cli("dlq", "export", URI, "--file", file.name, sure).code == 0
        assert file.read_text().count("\n") == COUNT


def test_a_question_without_stdin(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose stdin is closed asks no question, and says which option answers it."""
    (tmp_path / "dead.jsonl").write_text("before")
    monkeypatch.setattr("sys.stdin", None)
    for command, said in (
        (("export", URI, "--file", "dead.jsonl"), "add --force to replace it"),
        (("purge", URI), "add --yes"),
    ):
        ended = cli("dlq", *command)
        assert (ended.code, said in ended.error) == (2, True), ended.err
    ended = cli("send", URI, "orders")
    assert (ended.code, "no body" in ended.error) == (2, True), ended.err


@pytest.mark.parametrize(("end", "why"), ENDS)
def test_an_export_that_is_broken_off(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: Callable[[], None], why: str
) -> None:
    """An interrupted export leaves no file; to stdout it writes whole lines, and their number."""
    monkeypatch.setattr("redelivery.cli.formatting.ProgressSteps.__call__", at(50, end))
    ended = cli("dlq", "export", URI, "--file", "dead.jsonl")
    assert (ended.code, ended.error) == (
        1,
        f"redelivery: dead.jsonl was not written, after 50 dead letters: {why}",
    )
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr("redelivery.cli.formatting.ProgressSteps.__call__", at(50, end))
    ended = cli("dlq", "export", URI)
    assert (ended.code, ended.error) == (3, f"redelivery: 50 exported, then: {why}")
    assert ended.out.count("\n") == 50


@pytest.mark.parametrize(
    "command",
    [
        ("summary",), ("list",), ("redrive",), ("redrive", "--dry-run"), ("purge", "--yes"), ("purge", "--dry-run"),
        ("export",), ("summary", "--output", "json"), ("redrive", "--output", "json"), ("list", "--output", "jsonl"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_filters_that_mean_nothing(cli: Any, breaking: MemoryBroker, command: tuple[str, ...]) -> None:
    """Filters that match nothing are answered with the causes and origins on the queue; exit code 3."""
    for given in (("--cause", "NoSuch"), ("--destination", "queue://other"), ("--id", "none")):
        ended = cli("dlq", command[0], URI, *command[1:], *given, *FAST)
        assert ended.code == 3
        last = ended.err.splitlines()[-1]
        assert last == (
            f"redelivery: 0 of 200 matched {' '.join(given)}; causes in queue://DLQ: "
            "ValueError 150, KeyError 50; from: queue://orders 200"
        )
        assert breaking.depth("DLQ") == COUNT


def test_a_summary_without_a_match_says_one_thing(cli: Any, breaking: MemoryBroker) -> None:
    """A summary whose filters match nothing does not call the queue empty; of an empty one it says so once."""
    assert cli("dlq", "summary", URI, "--cause", "NoSuch", *FAST).err.startswith(
        "redelivery: 0 of 200 matched"
    )
    assert cli("dlq", "summary", URI, "no.such", "--cause", "x", *FAST).err.count("no dead letters in") == 1
    assert breaking.depth("DLQ") == COUNT


@pytest.mark.parametrize(
    "command", [("redrive",), ("purge", "--yes"), ("export",), ("list", "--cause", "x")], ids=" ".join
)
def test_an_empty_queue(cli: Any, command: tuple[str, ...]) -> None:
    """An empty queue is named, for it may be a typo: exit code 3; `summary` and `list` without filters end with 0."""
    ended = cli("dlq", command[0], URI, "no.such", *command[1:], *FAST)
    assert ended.code == 3
    said = "redelivery: no dead letters in queue://no.such: it is empty, or does not exist"
    assert ended.err.splitlines()[-1] == said
    for look in ("summary", "list"):
        ended = cli("dlq", look, URI, "no.such")
        assert (ended.code, f"redelivery: {ended.error}") == (0, said)


def test_many_causes_are_cut(cli: Any, breaking: MemoryBroker) -> None:
    """Five causes and origins are named, long ones are cut, and the others are a number."""
    for number in range(1500):
        breaking.send("DLQ", "x", headers={"redeliveryCause": f"{number} " + "x" * 500})
    ended = cli("dlq", "redrive", URI, "--cause", "NoSuch", *FAST)
    assert ended.code == 3
    assert len(ended.err.splitlines()[-1]) < 600
    assert "causes in queue://DLQ: others 502, ValueError 150, KeyError 50, " in ended.err
    assert "and 996 more" in ended.err


def test_what_the_broker_overruled(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redrive reports how many properties named another origin than the broker's record."""
    monkeypatch.setattr("redelivery.core.delivery.Delivery.origin", property(lambda _: "queue://bills"))
    ended = cli("dlq", "redrive", URI, *FAST)
    assert (ended.code, ended.out) == (0, f"{COUNT} redriven\n  {COUNT} to queue://bills\n")
    assert f"{COUNT} named another origin than the broker's record, which decides" in ended.err


def test_native_addresses(cli: Any, breaking: MemoryBroker) -> None:
    """Dead letters of native addresses stay without --native."""
    breaking.send("native", "x", headers={"redeliveryOriginalDestination": "native:///exchange/x"})
    assert cli("dlq", "redrive", URI, "native", *FAST).code == 3
    assert cli("dlq", "redrive", URI, "native", "--native", *FAST).code == 0
