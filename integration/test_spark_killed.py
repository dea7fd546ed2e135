"""Processes of a query are killed at random moments, one after another, while messages arrive: each is there once.

Victims are the Python driver, Spark's JVM, the process that runs the source, workers, and all of them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import some
from tests.tiers import amount

from integration.need import need_spark

need_spark()

from integration.spark_campaign import ALL_VICTIMS, Campaign
from integration.spark_run import SparkRun

if TYPE_CHECKING:
    from pathlib import Path

    from integration.conftest import Session

pytestmark = [
    pytest.mark.full("Spark: kills of a query's processes: two minutes"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

KILLS = amount("REDELIVERY_SPARK_KILLS", quick=1, ci=3, full=20)
SEED = amount("REDELIVERY_SEED", quick=0, ci=0, full=0)  # .ci/full kills at other moments each night
PAIRS = [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp"), ("rabbitmq", "amqp")]
POLICY: dict[str, Any] = {
    "jms__redeliveryPolicy__maximumRedeliveries": 2,
    "jms__redeliveryPolicy__initialRedeliveryDelay": 500,
    "jms__redeliveryPolicy__redeliveryDelay": 500,
}


@pytest.mark.parametrize("peer", some(PAIRS, PAIRS[3:], ci=()), ids="-".join)
def test_processes_are_killed(
    session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """Each message is in the output once, or a dead letter if it is bad, and a batch never changes its rows."""
    broker, dead = session.broker(peer[0]), f"{unique_queue}.dead"
    run = SparkRun(
        tmp_path, broker, peer[1], unique_queue, sink="once" if peer[1] == "stomp" else "ids",
        options={"maxRowsPerTrigger": "10000"}, uri={**POLICY, "redelivery__deadLetterDestination": dead},
    )  # fmt: skip
    at = PAIRS.index(peer)
    campaign = Campaign(run, ALL_VICTIMS[at:] + ALL_VICTIMS[:at], KILLS, seed=SEED + at)
    campaign.fight()
    client = session.client(broker, peer[1])
    # Only Artemis drops a dead letter that a driver sends again because it died before it knew of the confirmation.
    letters = client.drain(dead, expected=campaign.bad)
    campaign.check([letter.body for letter in letters], once=peer[0] == "artemis")
    assert client.drain(unique_queue) == []
