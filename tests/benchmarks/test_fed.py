"""The benchmark that feeds recordings to the library: it measures only what has been done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks import consume_fed, fed
from benchmarks.checkouts import HERE, alternating
from benchmarks.consume_fed import consume
from benchmarks.replay import PROTOCOLS
from tests.needs import need

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_round_handles_and_acknowledges_all(protocol: str) -> None:
    """A round gives each recorded message to the handler, and ends when each is acknowledged."""
    if protocol == "amqp":
        need("proton")
    messages, cpu_us = consume(protocol, MESSAGES)
    assert messages == MESSAGES
    assert cpu_us > 0


def test_a_missing_acknowledgement_fails_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round in which the library handles messages, but acknowledges none, has no result."""
    monkeypatch.setattr(consume_fed, "PATIENCE", 0.05)
    monkeypatch.setattr("redelivery_stomp.adapter.StompAdapter._accept", lambda *_: None)
    with pytest.raises(RuntimeError, match=f"0 acknowledgements were written, for {MESSAGES} messages"):
        consume("stomp", MESSAGES)


def test_a_message_without_a_handler_fails_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round in which the library acknowledges messages that no handler got has no result."""
    monkeypatch.setattr(consume_fed, "PATIENCE", 0.05)
    monkeypatch.setattr(consume_fed.Feed, "handle", lambda *_: None)
    with pytest.raises(RuntimeError, match=f"0 messages were handled, of {MESSAGES}"):
        consume("stomp", MESSAGES)


def test_checkouts_run_in_alternating_order() -> None:
    """Each checkout runs once a round, and the one that begins changes each time."""
    assert list(alternating(("now", "before"), range(3))) == [
        (0, "before"), (0, "now"), (1, "now"), (1, "before"), (2, "before"), (2, "now"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        (["--before", str(HERE / "tests")], "is no checkout of this library"),
        (["--rounds", "0"], "0 is no number of rounds: use 1 or more"),
        (["--rounds", "many"], "many is no number of rounds: use 1 or more"),
        (["--protocol", "mqtt"], "invalid choice: 'mqtt'"),
    ],
)
def test_bad_input_is_one_sentence(argv: list[str], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument that cannot be used ends the program before it measures, with one sentence that says why."""
    with pytest.raises(SystemExit) as ended:
        fed.main(argv)
    assert ended.value.code == 2
    assert wrong in capsys.readouterr().err.splitlines()[-1]


def test_a_missing_recording_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a recording, the program names the command that makes it."""
    monkeypatch.setattr(fed, "recording", lambda protocol: tmp_path / protocol)
    with pytest.raises(SystemExit):
        fed.main(["--protocol", "stomp"])
    assert "no recording of stomp: make it with python -m benchmarks.record" in capsys.readouterr().err
