"""Dead-letter places of an imported `broker.xml`, on the broker that has its settings."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.test_dead_letter_strategies import ONCE, fail, own, settled
from integration.test_operators_settings import ACK, failed
from integration.test_places_looked_at import without
from integration.work import Running
from redelivery.importers import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.conftest import Client

pytestmark = pytest.mark.ci("what an import makes of an operator's settings")

# The broker has these for all addresses below `ind.`.
SETTINGS = """<core xmlns="urn:activemq:core"><address-settings><address-setting match="{}">
<dead-letter-address>DLQ</dead-letter-address>
<auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>
</address-setting></address-settings></core>"""


@pytest.mark.parametrize("peer", [("artemis", "stomp"), ("artemis", "amqp")], ids="-".join, indirect=True)
@pytest.mark.parametrize("made", [True, False], ids=["made before", "not made"])
@pytest.mark.own_broker("reads its dead-letter queue")
def test_the_brokers_queue_of_one_address(
    peer: tuple[Broker, str],
    client_for: Callable[[Broker, str], Client],
    unique_queue: str,
    tmp_path: Path,
    made: bool,
) -> None:
    """A letter is in the queue that Artemis makes for its address, also where the broker has made it before."""
    broker, protocol = peer
    client, run, queue = client_for(broker, "amqp"), uuid.uuid4().hex, f"ind.{unique_queue}"
    (tmp_path / "broker.xml").write_text(SETTINGS.format(queue))
    places = read(tmp_path / "broker.xml").dead_letter_map
    if made:
        failed(broker, "amqp", queue, "another", **ACK)
    with redelivery.connect(broker.uri(protocol=protocol, **ONCE), dead_letters=places) as connection:
        connection.listen(queue, fail)
        with Running(connection):
            connection.send(queue, "body", headers={"run": run})
            settled(connection, 1)
    (letter,) = own(client, f"DLQ::DLQ.{queue}", run, 1)
    assert letter.properties["redeliveryCause"] == "ValueError: no body"
    assert own(client, "DLQ", run) == []
    # The broker's own letter of this address comes to the same queue.
    failed(broker, "amqp", queue, f"{run}-own", **ACK)
    assert len(own(client, f"DLQ::DLQ.{queue}", f"{run}-own", 1)) == 1
    without(broker, f"DLQ.{queue}")
