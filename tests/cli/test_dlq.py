"""`redelivery dlq`."""

from __future__ import annotations

import io
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import rich.console

import redelivery
import redelivery_memory.adapter
from redelivery.cli import formatting
from redelivery.core.ledger_entry import Buried
from redelivery.driver.connection.failover import FailoverAddresses
from redelivery.settings import Endpoint
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URI = "memory://morgue"
FAST = ("--idle", "0.05")


@pytest.fixture(autouse=True)
def morgue() -> Iterator[MemoryBroker]:
    """Broker with three dead letters."""
    with MemoryBroker("morgue") as broker:
        for number, cause in enumerate(("ValueError: 1", "ValueError: \x1b[2J", "crash")):
            headers = {"redeliveryCause": cause, "redeliveryOriginalDestination": "queue://orders"}
            headers |= {
                "redeliveryOriginalId": f"id-{number}",
                "redeliveryLastFailure": "2026-11-22T10:00:00Z",
            }
            broker.send(
                "DLQ", json.dumps({"order": number}), headers=headers, content_type="application/json"
            )
        yield broker


def test_summary(cli: Any) -> None:
    """A summary is a table or JSON; the total goes to stderr."""
    ended = cli("dlq", "summary", URI)
    assert ended.code == 0
    assert [line.split() for line in ended.out.splitlines()] == [
        ["count", "from", "cause", "day"],
        ["2", "queue://orders", "ValueError", "2026-11-22"],
        ["1", "queue://orders", "crash", "2026-11-22"],
    ]
    assert ended.error == "3 dead letters in queue://DLQ"
    assert json.loads(cli("dlq", "summary", URI, "--output", "json").out)["count"] == 3
    assert cli("dlq", "summary", URI, "empty").error == (
        "no dead letters in queue://empty: it is empty, or does not exist"
    )


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_narrow_terminal(
    cli: Any, morgue: MemoryBroker, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """On a narrow terminal ids and causes are whole, in a line each; a long cause does not make the summary wide."""
    monkeypatch.setenv("COLUMNS", columns)
    headers = {"redeliveryCause": "y" * 1000, "redeliveryOriginalDestination": "queue://orders"}
    identity = morgue.send("DLQ", "a", headers=headers | {"redeliveryOriginalId": "f" * 36})
    lines = cli("dlq", "list", URI).out.splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["id", "from", "cause", "died", "(UTC)", "redrives", "bytes"]
    assert identity in lines[4]
    assert "y" * 59 + "…" in lines[4]
    assert "y" * 61 not in cli("dlq", "summary", URI).out


def test_a_closed_stdout(cli: Any, morgue: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose stdout is closed does its work."""
    monkeypatch.setattr("sys.stdout", None)
    assert cli("dlq", "redrive", URI, *FAST).code == 0
    sys.stdout.close()
    assert morgue.depth("orders") == 3


def test_nothing_to_purge_is_no_question(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge that matches nothing says what is there, and asks nothing."""
    monkeypatch.setattr("redelivery.cli.dlq.answers", lambda: True)
    ended = cli("dlq", "purge", URI, "--cause", "NoSuch", stdin=b"y\n")
    assert (ended.code, ended.error.partition(";")[0]) == (3, "redelivery: 0 of 3 matched --cause NoSuch")
    assert cli("dlq", "purge", URI, "empty", stdin=b"y\n").error == (
        "redelivery: no dead letters in queue://empty: it is empty, or does not exist"
    )


def test_list_and_show(cli: Any, morgue: MemoryBroker) -> None:
    """Listing takes nothing, sends no control character to the terminal, and indents a JSON body."""
    ended = cli("dlq", "list", URI, "--limit", "2")
    assert ended.out.count("\n") == 3
    assert "\x1b" not in ended.out
    lines = cli("dlq", "list", URI, "--output", "jsonl", "--cause", "crash").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["original_id"] for row in rows] == ["id-2"]
    shown = cli("dlq", "show", URI, "id-2").out
    assert "cause: crash\n" in shown
    assert '  "order": 2\n' in shown
    assert json.loads(cli("dlq", "show", URI, "id-2", "--output", "json").out)["body"] == '{"order": 2}'
    assert morgue.depth("DLQ") == 3


def test_the_id_that_send_printed(cli: Any) -> None:
    """`show` and `--id` find a dead letter by the id that `send` printed; one dead letter is counted as one."""
    identity = cli("send", URI, "sent", "1").out.strip()
    cli("consume", URI, "sent", "--exec", "exit 65", "--poison-on", "65", "--count", "1")
    assert f"header redeliveryId: {identity}\n" in cli("dlq", "show", URI, identity).out
    assert cli("dlq", "list", URI, "--id", identity).out.count("\n") == 2
    assert cli("dlq", "summary", URI, "--id", identity).error == "1 dead letter in queue://DLQ"
    assert cli("dlq", "show", URI, "x").error == (
        "redelivery: there is no dead letter 'x' in queue://DLQ; dlq list shows the ids"
    )


def test_a_body_that_is_no_text(cli: Any, morgue: MemoryBroker) -> None:
    """A body that is no text is shown in hexadecimal, cut."""
    morgue.send("DLQ", b"\x00\xff" * 300, headers={"redeliveryOriginalId": "raw"})
    shown = cli("dlq", "show", URI, "raw").out
    assert "000000  00 ff 00 ff" in shown
    assert shown.endswith("…\n")


def test_redrive(cli: Any, morgue: MemoryBroker) -> None:
    """A dry run sends nothing; a redrive sends what matches, says so, and the rest stays."""
    dry = cli("dlq", "redrive", URI, "--cause", "ValueError", "--dry-run")
    assert (dry.code, dry.out) == (0, "2 would be redriven\n  2 to queue://orders\n")
    assert dry.error == "2 matched, 1 did not match your filters and stay"
    ended = cli("dlq", "redrive", URI, "--cause", "ValueError", "--output", "json", *FAST)
    assert (ended.code, json.loads(ended.out)["redriven"]) == (0, 2)
    assert (morgue.depth("orders"), morgue.depth("DLQ")) == (2, 1)


def test_partly(cli: Any, morgue: MemoryBroker) -> None:
    """A dead letter that matches and stays is exit code 3; an error after some were redriven is, too."""
    morgue.send("DLQ", "lost")
    ended = cli("dlq", "redrive", URI, *FAST)
    assert (ended.code, ended.out.splitlines()[0]) == (3, "3 redriven")
    assert "1 stay: their origin is not known (give --to)" in ended.err
    morgue.send("DLQ", "a", headers={"redeliveryOriginalDestination": "queue://a"})
    morgue.send("DLQ", "b", headers={"redeliveryOriginalDestination": "queue://b.>"})
    morgue.send("DLQ", "topic", headers={"redeliveryOriginalDestination": "topic://t"})
    assert "they came from a topic" in cli("dlq", "redrive", URI, "--destination", "topic://t", *FAST).err


def test_purge_and_export(cli: Any, morgue: MemoryBroker, tmp_path: Any) -> None:
    """A purge needs --yes without a terminal; an export leaves the dead letters on the queue."""
    ended = cli("dlq", "export", URI, "--file", "out.jsonl")
    assert (ended.code, ended.error) == (0, "3 exported")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    assert cli("dlq", "export", URI).out.count("\n") == 3
    refused = cli("dlq", "purge", URI, stdin=b"")
    assert (refused.code, "--yes" in refused.error) == (2, True)
    assert cli("dlq", "purge", URI, "--dry-run").out == "3 would be dropped\n"
    assert morgue.depth("DLQ") == 3
    assert cli("dlq", "purge", URI, "--yes", *FAST).out == "3 dropped\n"
    assert morgue.depth("DLQ") == 0


def test_mistakes(cli: Any) -> None:
    """A mistake is one sentence, with the exit code of its kind."""
    for arguments, code, text in (
        (["list", URI, "--reason", "x"], 2, "no option '--reason'"),
        (["list", URI, "--caus", "x"], 2, "did you mean '--cause'"),
        (["redirve", URI], 2, "did you mean 'redrive'"),
        (["redrive", URI, "--to", "DLQ"], 78, "to=DLQ is the dead-letter queue itself"),
        (["redrive", URI, "--to", "topic://t"], 2, "every subscriber"),
        (["redrive", URI, "--rate", "0"], 2, "--rate must be"),
        (["list", URI, "--older-than", "x"], 2, "--older-than must be a duration, 0 or more: 30s, 15m"),
        (["list", URI, "a", "b"], 2, "at most one dead-letter queue"),
        (["show", URI], 2, "id of a dead letter"),
        (["show", URI, "none"], 1, "there is no dead letter 'none' in queue://DLQ"),
        (["show", URI, "none", "DLQ"], 1, "in queue://none; the order is QUEUE ID"),
        (["show", URI, "ID:h-1-2:3", "DLQ"], 2, "comes before the id: redelivery dlq show DLQ ID:h-1-2:3"),
        (["list", URI, "--since", "2h"], 2, "did you mean '--younger-than'"),
        (["redrive", URI, "--rate", "x"], 2, "--rate must be a number of messages a second"),
        (["export", URI, "--format", "parquet"], 2, "--format parquet needs --file"),
        (["summary", "stomp://127.0.0.1:1"], 69, "127.0.0.1:1"),
        (["summary", "memory://x?redelivery.nonsense=1"], 78, "redelivery.nonsense"),
    ):
        ended = cli("dlq", *arguments)
        assert (ended.code, text in ended.error) == (code, True), ended.err


def test_a_ledger_on_the_command_line(cli: Any, morgue: MemoryBroker, tmp_path: Path) -> None:
    """A ledger gives causes to every command that reads; a missing file is refused, and not created."""
    identity = morgue.send("DLQ", "native")
    ledger = redelivery.SqliteLedger(tmp_path / "a.db")
    ledger.open(print)
    ledger.bury(b"k" * 16, Buried("queue://bills", identity, "OSError: disk", 3, 0.0))
    ledger.close(print)
    url = ("--ledger", f"sqlite:///{tmp_path}/a.db")
    assert "OSError" in cli("dlq", "summary", URI, *url).out
    assert "OSError: disk" in cli("dlq", "list", URI, "--destination", "bills", *url).out
    assert "charged failures: 3\n" in cli("dlq", "show", URI, identity, *url).out
    assert '"OSError: disk"' in cli("dlq", "export", URI, *url).out
    ended = cli("dlq", "redrive", URI, "--cause", "OSError", "--output", "json", *url, *FAST)
    assert json.loads(ended.out)["destinations"] == {"queue://bills": 1}
    missing = cli("dlq", "summary", URI, "--ledger", f"sqlite:///{tmp_path}/none.db")
    assert (missing.code, missing.error) == (1, f"redelivery: the ledger {tmp_path}/none.db does not exist")
    assert not (tmp_path / "none.db").exists()
    wrong = cli("dlq", "summary", URI, "--ledger", "a.db")
    assert wrong.code == 78
    assert "a ledger is sqlite:///relative/path" in wrong.error


def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal progress is a line every ten seconds on stderr."""
    at = iter([0.0, 1.0, 10.0, 11.0, 20.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(at))
    steps = formatting.ProgressSteps("redriven", live=False)
    with steps.shown():
        for done in (10, 20, 30):
            steps(done)
        steps.expect(100)
        steps(40)
    assert capsys.readouterr() == ("", "20 redriven ...\n40 of 100 redriven ...\n")
    assert steps.done == 40


def test_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal progress is one line of 80 columns with total, rate, and the time left."""
    screen = io.StringIO()
    monkeypatch.setenv("COLUMNS", "80")
    made = rich.console.Console(file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(formatting, "console", lambda *, err: made)
    steps = formatting.ProgressSteps("redriven", live=True)
    with steps.shown():
        steps.expect(50000)
        steps(12345)
    assert "12345 of 50000 redriven" in screen.getvalue()


@pytest.mark.parametrize(("broker", "noted"), [("artemis", True), ("activemq", True), ("rabbitmq", False)])
def test_one_node_of_several_is_named(
    cli: Any, monkeypatch: pytest.MonkeyPatch, broker: str, *, noted: bool
) -> None:
    """Where each node of a cluster has dead letters of its own, the node that was looked at is named."""
    able = replace(redelivery_memory.adapter.CAPABILITIES, broker=broker)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    with MemoryBroker("morgue-2"):
        ended = cli("dlq", "summary", "failover:(memory://morgue,memory://morgue-2)?randomize=false")
    assert (
        "of memory://morgue alone: in a cluster each node keeps dead letters of its own" in ended.err
    ) is noted
    assert "alone" not in cli("dlq", "summary", URI).error
    found = [Endpoint("memory", "morgue", 0, ip) for ip in ("10.0.0.4", "10.0.0.5")]
    monkeypatch.setattr(FailoverAddresses, "_addresses_of", lambda *_: found)
    assert ("of memory://morgue (10.0.0.4) alone:" in cli("dlq", "summary", URI).err) is noted
