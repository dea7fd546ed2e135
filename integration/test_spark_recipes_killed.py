"""Spark's recipes for each row once, over kills at random moments: its file sink, write_once, a table of batch ids.

The driver, its JVM, or all at once die while messages arrive.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import some

from integration import postgres
from integration.need import need_spark

need_spark()

from integration.spark_campaign import Campaign
from integration.spark_run import SparkRun
from integration.spark_sinks import CREATE
from integration.test_spark_killed import KILLS, POLICY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.conftest import Session

pytestmark = [
    pytest.mark.full("Spark: recipes and kills: minutes"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

MOST = 10  # kills


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Postgres | None]:
    """Yield a server, or None if none is installed."""
    with contextlib.ExitStack() as stack:
        yield None if postgres.missing() else stack.enter_context(postgres.Postgres())


@pytest.mark.parametrize("sink", some(["files", "once", "table"], ["table"], ci=()))
def test_a_recipe_survives_kills(
    session: Session, server: postgres.Postgres | None, unique_queue: str, tmp_path: Path, sink: str
) -> None:
    """Each message is there once by the sink's own log, although a second sink fails in between."""
    broker, dead = session.broker("artemis"), f"{unique_queue}.dead"
    more: dict[str, Any] = {} if sink == "files" else {"second": 5}
    if sink == "table":
        more["out"] = str(tmp_path / "table") if server is None else server.empty(*CREATE)
    run = SparkRun(
        tmp_path, broker, "stomp", unique_queue, sink=sink, more=more,
        uri={**POLICY, "redelivery__deadLetterDestination": dead},
    )  # fmt: skip
    campaign = Campaign(run, ("driver", "all", "jvm"), min(KILLS, MOST), rate=1000.0, seed=len(sink))
    campaign.fight()
    client = session.client(broker, "stomp")
    letters = client.drain(dead, expected=campaign.bad)
    campaign.check([letter.body for letter in letters], once=True)
    assert client.drain(unique_queue) == []
    assert len(campaign.stream.sent) >= 5000
