"""`spark.read`, mode=drain: messages are durable before they are accepted, and every action has the same rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.query import Killed
from tests.spark.tables import bodies, fill, planned, read, rows

from redelivery.dlq.dead_letter import read_letter
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.errors import AdapterError, ConfigurationError, TransportError
from redelivery_spark.batch import drain as module
from redelivery_spark.batch.drain import DrainedQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import MemoryBroker


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Options of a drain."""
    return {"mode": "drain", "destination": "orders", "walDir": str(tmp_path / "wal")}


def test_a_drain_takes_all_and_shows_it_to_every_action(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues are empty; a second action, and a new read of the run, have the same rows; later messages stay."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10) + fill(redelivery_broker, 3, "more")
    given["destination"] = "orders,more"
    reader = planned(redelivery_broker, **given)
    assert bodies(rows(reader)) == sent
    assert redelivery_broker.depth("orders") == redelivery_broker.depth("more") == 0
    later = fill(redelivery_broker, 2)
    assert bodies(rows(reader)) == sent
    assert bodies(read(redelivery_broker, **given)) == sent
    assert bodies(read(redelivery_broker, **given, run="second")) == later


def test_a_drain_is_read_as_one_likes(redelivery_broker: MemoryBroker, given: dict[str, str]) -> None:
    """One drain can be read decoded, with death columns and without, and takes no more messages."""
    redelivery_broker.send("orders", b"\xff", headers={"redeliveryCause": "ValueError: 7"})
    (plain,) = read(redelivery_broker, **given)
    assert "cause" not in plain
    (row,) = read(redelivery_broker, **given, decode="text", onDecodeError="permissive", deadLetters="true")
    assert (row["body"], row["text"], row["cause"]) == (b"\xff", None, "ValueError: 7")


def test_a_drain_ends_at_its_limit(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MaxMessages of each queue are taken; the others stay."""
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    assert bodies(read(redelivery_broker, **given, maxMessages=6)) == sent[:6]
    assert redelivery_broker.depth("orders") == 4
    assert bodies(read(redelivery_broker, **given)) == sent[:6]
    assert bodies(read(redelivery_broker, **given, run="rest")) == sent[6:]


POINTS: list[tuple[type[Any], str]] = [
    (DrainedQueue, "publish"),
    (DrainedQueue, "end"),
    (DeadLetterConnection, "taker"),
]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name"), POINTS, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("at", [1, 3])
def test_a_death_loses_nothing(
    redelivery_broker: MemoryBroker,
    given: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    owner: type[Any],
    name: str,
    after: bool,
    at: int,
) -> None:
    """An attempt that dies before or after it publishes, or while it takes, is repeated: each message is there once."""
    monkeypatch.setattr(module, "ROWS", 3)
    sent = fill(redelivery_broker, 11)
    calls = 0
    original: Callable[..., Any] = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        done = original(*arguments, **named) if after or calls < at else None
        if calls >= at:
            raise Killed
        return done

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        try:
            read(redelivery_broker, **given)
        except Killed:
            pass
        else:
            assert calls < at
    assert Counter(bodies(read(redelivery_broker, **given))) == Counter(sent)
    assert redelivery_broker.depth("orders") == 0


def test_two_attempts_at_once(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that finds its segment published releases its messages, and both attempts have the same rows, each
    once.
    """
    monkeypatch.setattr(module, "ROWS", 4)
    sent = fill(redelivery_broker, 10)
    other: list[list[str]] = []
    original = DrainedQueue.publish

    def racing(self: DrainedQueue, number: int, table: Any) -> bool:
        if not other and number == 1:
            other.append([])
            other[0] = bodies(read(redelivery_broker, **given))
        return original(self, number, table)

    monkeypatch.setattr(DrainedQueue, "publish", racing)
    first = bodies(read(redelivery_broker, **given))
    assert first == other[0]
    left = [message.body.decode() for message in redelivery_broker.messages("orders")]
    assert Counter(first) + Counter(left) == Counter(sent)
    assert len(left) <= 4


def test_equal_messages_are_all_taken(redelivery_broker: MemoryBroker, given: dict[str, str]) -> None:
    """Messages with the same content are different rows."""
    for _ in range(5):
        redelivery_broker.send("orders", "same")
    assert bodies(read(redelivery_broker, **given)) == ["same"] * 5


def test_a_message_that_is_not_whole_stays(
    redelivery_broker: MemoryBroker, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is not whole ends the drain and is not accepted; incomplete=accept leaves it on the broker."""
    sent = fill(redelivery_broker, 3)
    original = read_letter

    def partial(delivery: Any, *arguments: Any, **named: Any) -> Any:
        from dataclasses import replace  # noqa: PLC0415

        letter = original(delivery, *arguments, **named)
        return replace(letter, whole=delivery.body != b"orders-1")

    monkeypatch.setattr("redelivery_spark.batch.drain.read_letter", partial)
    with pytest.raises(AdapterError, match=r"does not arrive whole .* AMQP.*incomplete=accept"):
        read(redelivery_broker, **given)
    assert redelivery_broker.depth("orders") == 3
    assert bodies(read(redelivery_broker, **given, incomplete="accept")) == [sent[0], sent[2]]
    assert redelivery_broker.depth("orders") == 1


def test_a_run_is_of_one_broker(redelivery_broker: MemoryBroker, given: dict[str, str]) -> None:
    """A folder with a drain of another broker, or another selector, is refused by the name of the run."""
    from redelivery.testing import MemoryBroker as Another  # noqa: PLC0415

    sent = fill(redelivery_broker, 1)
    assert bodies(read(redelivery_broker, **given)) == sent
    with (
        Another() as broker,
        pytest.raises(ConfigurationError, match=r"run=drain: .*has a drain of this name from memory://"),
    ):
        read(broker, **given)
    with pytest.raises(ConfigurationError, match="use another run"):
        read(redelivery_broker, **given, selector="a = 1")


def test_nobody_there(redelivery_broker: MemoryBroker, given: dict[str, str]) -> None:
    """A broker that cannot be reached fails the task, and the next task drains."""
    sent = fill(redelivery_broker, 2)
    redelivery_broker.refuse_connections()
    with pytest.raises(TransportError):
        read(redelivery_broker, **given)
    redelivery_broker.accept_connections()
    assert bodies(read(redelivery_broker, **given)) == sent
