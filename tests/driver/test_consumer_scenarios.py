"""Consumer scenarios of the ActiveMQ Java client on the embedded broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.for_each import for_each
from tests.scenarios import Stage, deviation, expected, play

import redelivery
from redelivery.testing import ManualClock, MemoryBroker

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "consumer_scenarios.json").read_text()
)["vectors"]


@for_each(VECTORS)
def test_each_scenario_ends_as_the_references(vector: dict[str, Any]) -> None:
    """Deliveries, left messages and dead letters are those of the Java client, or the deviation is named."""
    clock = ManualClock(auto_advance=True)
    with MemoryBroker(clock=clock) as broker:
        for body in vector["sent"]:
            broker.send("q", body, persistent=vector["persistent"])

        def connect(policies: redelivery.RedeliveryPolicyMap, options: str) -> redelivery.Connection:
            return redelivery.connect(f"{broker.uri}?{options}", policies=policies, clock=clock)

        def drop(connection: redelivery.Connection) -> None:
            broker.refuse_connections()  # no reconnect: its process has ended
            broker.cut()
            connection.close()
            broker.accept_connections()

        deliveries, dead = expected(vector)
        assert play(vector, Stage("q", connect, drop, clock)) == deliveries
        left = [message.body.decode() for message in broker.messages("q")]
        assert left == [each["body"] for each in vector["left_on_queue"]]
        assert sorted(letter.body.decode() for letter in broker.dead_letters()) == dead


def test_the_deviations_are_few_and_have_reasons() -> None:
    """Only the named scenarios end otherwise."""
    found = {(vector["scenario"], vector["maximumRedeliveries"]) for vector in VECTORS if deviation(vector)}
    assert found == {
        ("client_ack_close_connection_without_ack_loop", 0),
        ("client_ack_close_connection_without_ack_loop", 1),
        ("client_ack_close_connection_without_ack_loop", 3),
        ("tx_abrupt_transport_drop_loop", 0),
        ("tx_abrupt_transport_drop_loop", 3),
        ("tx_first_rolled_back_alone_then_batch_with_fresh_last", 2),
        ("tx_nonpersistent_poisoned", 0),
    }
