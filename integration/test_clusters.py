"""Clusters: nodes are killed, stopped, frozen and separated while messages are sent and handled; the books are right.

The rows are data: `integration/clusters/rows.py`. One of them by hand: `python -m integration.clusters term_one`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

from integration.availability import had
from integration.brokers.toolchain import BrokerError, progress
from integration.clusters import SETUPS
from integration.clusters.rows import ROWS
from integration.clusters.run import Extent, run
from integration.clusters.table import details
from integration.eventually import SLACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integration.clusters.cluster import Cluster
    from integration.clusters.rows import Row
    from integration.clusters.run import Outcome

pytestmark = [pytest.mark.ci("a cluster of three nodes"), pytest.mark.timeout(900)]

MESSAGES = amount("REDELIVERY_CLUSTER_MESSAGES", quick=300, ci=600, full=2000)
SEED = amount("REDELIVERY_CLUSTER_SEED", quick=1, ci=1, full=1)
# Seconds, of `maxReconnectDelay` in each run.
PAUSE = 5.0
OFTEN = [row for row in ROWS if row.fault == "term_one" and row.queues == "classic"]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[str], Cluster]]:
    """`clusters(name)`: a running cluster, which replaces the one before it: one at a time has the machine."""
    with ExitStack() as stack:
        running: dict[str, Cluster] = {}

        def get(name: str) -> Cluster:
            if name not in running:
                stack.close()
                running.clear()
                kind = SETUPS[name]
                running[name] = had(kind.broker.name, f"the cluster {name}", lambda: _started(kind))
                stack.callback(running[name].close)
            return running[name]

        yield get


def _started(kind: type[Cluster]) -> Cluster:
    kind.obtain()
    cluster = kind()
    try:
        return cluster.start()
    except BaseException as error:
        cluster.close()
        if isinstance(error, AssertionError):  # a node has not answered in time
            raise BrokerError(f"it does not serve: {error}") from error
        raise


def ran(cluster: Cluster, row: Row) -> Outcome:
    """Run a row, and show what it has found."""
    outcome = run(cluster, row, Extent(MESSAGES, SEED), progress)
    print("\n".join([row.name, *details(outcome)]))
    return outcome


@pytest.mark.parametrize("row", OFTEN, ids=[row.name for row in OFTEN])
def test_a_node_that_restarts_stops_nothing(clusters: Callable[[str], Cluster], row: Row) -> None:
    """When the node of a classic queue restarts, consuming goes on within a pause, and each message is handled once."""
    outcome = ran(clusters(row.setup), row)
    assert not outcome.wrong
    up = next(what for _, what in outcome.marks if what.endswith("is up"))
    back = outcome.verdict.back[up]
    assert back is not None
    assert back <= PAUSE + SLACK, "seconds from the moment when the node serves again"


REST = [row for row in ROWS if row not in OFTEN]


@pytest.mark.full("a cluster, and minutes for each row")
@pytest.mark.parametrize("row", REST, ids=[row.name for row in REST])
def test_the_books_are_right(clusters: Callable[[str], Cluster], row: Row) -> None:
    """Whatever is done to a cluster, the consumer goes on, and no message is lost, early, or wrongly dead."""
    assert not ran(clusters(row.setup), row).wrong
