"""Exported dead letters sent again on real brokers: all arrive, a second time too, each as one message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.test_dead_letters import NO_RETRY, address, pairs, poison, received, tools

if TYPE_CHECKING:
    from pathlib import Path

    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("exports sent again on each broker"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

__all__ = ["address"]  # the fixture


def failed(address: str, queue: str) -> list[tuple[Any, ...]]:
    """Receive all messages and dead-letter them; return what arrived."""
    seen: list[tuple[Any, ...]] = []
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        with connection.consumer(queue) as consumer:
            while (message := consumer.receive(timeout=20 if len(seen) < 3 else 1)) is not None:
                own = {name: value for name, value in message.headers.items() if name in ("tenant", "evil")}
                seen.append(
                    (message.text, message.content_type, message.correlation_id, message.priority, own)
                )
                message.poison("again")
        connection.drain(timeout=20)
    return sorted(seen)


@pairs
def test_what_was_corrected_arrives_each_time(
    peer: tuple[Broker, str], address: str, unique_queue: str, tmp_path: Path
) -> None:
    """Dead letters are exported, corrected and sent again, twice: each arrives, with its properties, and once."""
    file, evil = tmp_path / "dead.jsonl", "a\nSEND\ndestination:/queue/x\n\nb:\\c"
    headers = {"tenant": "t", "evil": evil}
    with redelivery.connect(address) as connection:
        for number in range(3):
            connection.send(
                unique_queue, f"{number},50", content_type="application/json", correlation_id=f"c{number}",
                priority=7, headers=headers,
            )  # fmt: skip
    expected = [(f"{n},50", "application/json", f"c{n}", 7, headers) for n in range(3)]
    assert failed(address, unique_queue) == expected
    for sign in (";", "."):
        with tools(address, peer) as dead:
            assert dead.export(file) == 3
            assert dead.purge().purged == 3
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            for row in rows:
                row["body"] = row["body"][0] + sign + "50"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            done = dead.resend(file)
        assert (done.resent, done.complete, done.destinations) == (3, True, {f"queue://{unique_queue}": 3})
        expected = [(f"{n}{sign}50", "application/json", f"c{n}", 7, headers) for n in range(3)]
        assert failed(address, unique_queue) == expected


@pairs
def test_a_run_that_ends_early_goes_on(
    peer: tuple[Broker, str], address: str, unique_queue: str, tmp_path: Path
) -> None:
    """A run that was interrupted leaves out in its second part what the broker has confirmed."""
    file = tmp_path / "dead.jsonl"
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 6)
        with tools(address, peer) as dead:
            assert dead.export(file) == 6

            def interrupt(count: int) -> None:
                if count == 4:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                dead.resend(file, progress=interrupt)
        with tools(address, peer) as dead:
            done = dead.resend(file)
            assert (done.before, done.resent) == (4, 2)
        bodies = [message.text for message in received(connection, unique_queue, 6)]
        assert sorted(bodies) == [f"body {number}" for number in range(6)]


@pairs
def test_a_handler_sends_several_messages_with_the_properties_of_a_redriven_one(
    peer: tuple[Broker, str], address: str, unique_queue: str
) -> None:
    """All of them arrive: none has the duplicate id of the copy, with which Artemis drops all but the first."""
    items = f"{unique_queue}.items"
    with redelivery.connect(address + "&redelivery.deadLetter=forward", policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 1)
        with tools(address, peer) as dead:
            assert dead.redrive().redriven == 1
        with connection.consumer(unique_queue) as consumer:
            message = consumer.receive(timeout=20)
            assert message is not None
            for number in range(3):
                connection.send(items, f"item {number}", headers=message.headers)
            message.accept()
        bodies = [each.text for each in received(connection, items, 3)]
    assert sorted(bodies) == ["item 0", "item 1", "item 2"]
