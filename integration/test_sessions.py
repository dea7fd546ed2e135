"""The reference's own consumer scenarios, on a real ActiveMQ Classic, if they are possible there.

One of each kind; all of them in the full run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios import Stage, deviation, expected, play
from tests.tiers import chosen

import redelivery
from redelivery.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client
    from integration.proxy import LinkProxy

pytestmark = [
    pytest.mark.ci("the reference's consumer scenarios on Classic"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "tests" / "vectors" / "consumer_scenarios.json").read_text()
)["vectors"]
BROKERS_COUNT = ("tx_close_connection_without_commit_loop", "tx_abrupt_transport_drop_loop")
NO_COUNT = (
    "Classic tells a STOMP consumer no count, so none outlives a connection: the message comes without end"
)
NOT_COUNTED = (
    "over AMQP Classic counts lost connections only, and not what a link had unsettled that is detached"
)
FLAG_ONLY = "Classic tells a STOMP consumer that a message was delivered before, and not how often"


def played_over(scheme: str) -> list[dict[str, Any]]:
    """Return the scenarios for this protocol: one of each kind in ci, all each night."""
    found = [vector for vector in VECTORS if expressible(vector, scheme) is None]
    kinds = {
        (vector["scenario"], vector["ack_mode"], vector.get("preDispatchCheck")): vector
        for vector in found
        if vector["maximumRedeliveries"] < 3 or vector["scenario"].endswith("rollback")
    }
    return found if chosen() == "full" else list(kinds.values())


def expressible(vector: dict[str, Any], scheme: str) -> str | None:
    """Return why a scenario is not possible over this protocol, or None."""
    if scheme == "stomp" and vector["scenario"] in BROKERS_COUNT:
        return NO_COUNT
    if vector["scenario"] == "client_ack_close_connection_without_ack_loop":
        return FLAG_ONLY if scheme == "stomp" else NOT_COUNTED
    if vector["scenario"] == "tx_close_connection_without_commit_loop":
        return NOT_COUNTED
    return None


@pytest.mark.parametrize("scheme", ["stomp", "amqp"])
def test_the_references_scenarios_end_as_there(
    activemq: Broker,
    java_client: Callable[[Broker, str | None], Client],
    make_proxy: Callable[[int], LinkProxy],
    new_queue: Callable[[], str],
    scheme: str,
) -> None:
    """Deliveries, remaining messages and the dead letters of a Java client equal those of the reference."""
    java, proxy = java_client(activemq, None), make_proxy(activemq.ports[scheme])
    java.drain(activemq.dead_letter_queue)
    wrong: dict[str, Any] = {}
    played = played_over(scheme)
    for number, vector in enumerate(played):
        queue = new_queue()
        for body in vector["sent"]:
            java.send(queue, body.encode(), kind="text", persistent=vector["persistent"])

        def connect(policies: redelivery.RedeliveryPolicyMap, options: str) -> redelivery.Connection:
            uri = activemq.uri(protocol=scheme, port=proxy.port)
            return redelivery.connect(f"{uri}&{options}" if options else uri, policies=policies)

        def drop(connection: redelivery.Connection) -> None:
            proxy.refuse()  # no reconnect: its process is gone
            proxy.cut()
            connection.close()
            proxy.accept()

        deliveries, dead = expected(vector)
        seen = play(vector, Stage(queue, connect, drop, SystemClock(), quiet=0.5))
        wanted = deliveries, dead, [each["body"] for each in vector["left_on_queue"]]
        found = java.drain(activemq.dead_letter_queue, expected=len(dead))
        letters = sorted((letter.body or b"").decode() for letter in found)
        left = [(message.body or b"").decode() for message in java.drain(queue, expected=len(wanted[2]))]
        if (seen, letters, left) != wanted:
            wrong[f"{number} {vector['scenario']} {vector['maximumRedeliveries']}"] = (
                (seen, letters, left),
                wanted,
            )
    named = sum(deviation(vector) is not None for vector in played)
    print(
        f"\n{scheme}: {len(played)} of {len(VECTORS)} scenarios played, {named} with a deviation that has a reason"
    )
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())
