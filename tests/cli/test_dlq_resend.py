"""`redelivery dlq resend`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.cli.formatting import ProgressSteps
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

URI = "memory://resend"


@pytest.fixture(autouse=True)
def broker() -> Iterator[MemoryBroker]:
    """Broker with three dead letters, whose export is `dead.jsonl`."""
    with MemoryBroker("resend") as broker:
        for number in range(3):
            headers = {"redeliveryCause": f"E{number}: x", "redeliveryOriginalDestination": "queue://orders"}
            broker.send("DLQ", str(number), headers=headers)
        yield broker


def test_an_export_is_sent_again(cli: Any, broker: MemoryBroker) -> None:
    """A dry run sends nothing; a run says what went where; --to and the filters work; the dead letters stay."""
    assert cli("dlq", "export", URI, "--file", "dead.jsonl").code == 0
    dry = cli("dlq", "resend", URI, "dead.jsonl", "--dry-run")
    assert (dry.code, dry.out, broker.depth("orders")) == (0, "3 would be resent\n  3 to queue://orders\n", 0)
    ended = cli("dlq", "resend", URI, "dead.jsonl")
    assert (ended.code, ended.out, ended.err) == (0, "3 resent\n  3 to queue://orders\n", "")
    some = cli("dlq", "resend", URI, "dead.jsonl", "--cause", "E1", "--to", "x", "--output", "json")
    assert json.loads(some.out)["destinations"] == {"queue://x": 1}
    assert some.error == "2 did not match your filters"
    rest = cli("dlq", "resend", URI, "dead.jsonl", "--to", "x")
    assert (rest.code, rest.out.splitlines()[0]) == (0, "2 resent")
    assert rest.error == "1 were sent before, as dead.jsonl.sent says; remove that file to send them again"
    assert (broker.depth("orders"), broker.depth("x"), broker.depth("DLQ")) == (3, 3, 3)


def test_bad_lines_have_a_sentence_each(cli: Any, broker: MemoryBroker) -> None:
    """A bad line is named by its number, once; exit code 3; the others are sent; no escape reaches the terminal."""
    cli("dlq", "export", URI, "--file", "dead.jsonl")
    good = Path("dead.jsonl").read_text()
    bad = '{"headers": {"\\u001b[2J": "x"}, "body": "x", "original_destination": "queue://orders"}\n'
    Path("dead.jsonl").write_text(f"oops\n{good}{bad}")
    ended = cli("dlq", "resend", URI, "dead.jsonl")
    assert (ended.code, ended.out) == (3, "3 resent\n  3 to queue://orders\n")
    first, second, last = ended.err.splitlines()
    assert first == "dead.jsonl, line 1: it is no JSON; dlq export writes one object in each line"
    assert second.startswith("dead.jsonl, line 5: header name ")
    assert "\x1b" not in ended.err
    assert last == "redelivery: 2 lines were not sent; correct them and run it again"
    Path("dead.jsonl").write_text("x\n" * 30)
    many = cli("dlq", "resend", URI, "dead.jsonl").err.splitlines()
    assert len(many) == 21
    assert many[-1] == (
        "redelivery: 30 lines were not sent; the first 20 are named above; correct them and run it again"
    )
    Path("dead.jsonl").write_text("")
    assert cli("dlq", "resend", URI, "dead.jsonl").error == "redelivery: dead.jsonl has no dead letters"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "give one file that dlq export wrote"),
        (("a", "b"), 2, "give one file that dlq export wrote"),
        (("a.parquet",), 2, "resend reads JSON Lines: export again without --format parquet"),
        (("absent.jsonl",), 1, "absent.jsonl"),
        (("a", "--to", "topic://t"), 2, "--to topic://t is a topic"),
        (("a", "--to", "bogus://t"), 78, "the destination 'bogus://t' must start with"),
    ],
)
def test_wrong_usage(cli: Any, words: tuple[str, ...], code: int, says: str) -> None:
    """A mistake is one sentence."""
    ended = cli("dlq", "resend", URI, *words)
    assert ended.code == code
    assert says in ended.err


def test_an_interruption_says_how_many_and_the_same_command_goes_on(
    cli: Any, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after some is exit code 3; nothing is sent twice."""
    cli("dlq", "export", URI, "--file", "dead.jsonl")

    def interrupt(self: ProgressSteps, done: int) -> None:
        self.done = done
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgressSteps, "__call__", interrupt)
        ended = cli("dlq", "resend", URI, "dead.jsonl")
    assert (ended.code, ended.error) == (3, "redelivery: 1 resent, then: interrupted")
    assert cli("dlq", "resend", URI, "dead.jsonl").out.splitlines()[0] == "2 resent"
    assert broker.depth("orders") == 3
