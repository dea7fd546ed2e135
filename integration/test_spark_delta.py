"""Delta Lake's recipe for each row once, `txnAppId` and `txnVersion` by batch id, over failures of a sink and kills."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from integration import delta_lake
from integration.need import need_delta_lake, need_spark

need_spark()
need_delta_lake()

from integration.peers import fill
from integration.spark_campaign import Campaign
from integration.spark_recipe import POLICY
from integration.spark_run import SparkRun
from integration.test_spark_killed import KILLS

if TYPE_CHECKING:
    from pathlib import Path

    from integration.conftest import Session

pytestmark = [
    pytest.mark.full("Spark: Delta Lake"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

MOST = 10  # kills


def a_run(session: Session, queue: str, folder: Path, second: int) -> SparkRun:
    """Return a query into a Delta table, and into another sink that fails so often."""
    return SparkRun(
        folder, session.broker("artemis"), "stomp", queue, sink="delta",
        uri={**POLICY, "redelivery__deadLetterDestination": f"{queue}.dead"},
        more={"second": second, "spark": delta_lake.settings(), "noted": True},
    )  # fmt: skip


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_second_sink_fails(session: Session, unique_queue: str, tmp_path: Path, times: int) -> None:
    """Each row is in the table once, one that fails once in a later batch; one that always fails is a dead letter."""
    run = a_run(session, unique_queue, tmp_path, times)
    kinds = {10: "bad", 20: "once", 30: "flaky"}
    sent = [f"{kinds.get(number, 'good')}-{number}" for number in range(1000)]
    fill(run.broker, "stomp", unique_queue, [body.encode() for body in sent])
    run.run()
    assert run.bodies() == Counter(sent) - Counter(["bad-10"])
    letters = session.client(run.broker, "stomp").drain(f"{unique_queue}.dead", expected=1)
    assert [letter.body for letter in letters] == [b"bad-10"]
    assert len(run.told()[-1]["starts"]) == times + 1


def test_processes_are_killed(session: Session, unique_queue: str, tmp_path: Path) -> None:
    """Each row is in the table once, although a second sink fails in between."""
    run = a_run(session, unique_queue, tmp_path, 5)
    campaign = Campaign(run, ("driver", "all", "jvm"), min(KILLS, MOST), rate=1000.0, seed=3)
    campaign.fight()
    client = session.client(run.broker, "stomp")
    letters = client.drain(f"{unique_queue}.dead", expected=campaign.bad)
    campaign.check([letter.body for letter in letters], once=True)
    assert client.drain(unique_queue) == []
