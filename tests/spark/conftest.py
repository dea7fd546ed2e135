"""A broker in virtual time and a query over it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from tests.needs import missing, skip_or_fail

from redelivery_memory import CAPABILITIES
from redelivery_memory.messages import MemoryDelivery

INSTALLED = missing("pyarrow", "pyspark") is None
if INSTALLED:
    from tests.spark.query import Query

    from redelivery_spark.wal.folder import Folder
    from redelivery_spark.wal.store_probe import why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from redelivery.testing import MemoryBroker
    from redelivery_spark.wal.wal_store import WalStore

AT_ONCE = "jms.redeliveryPolicy.maximumRedeliveries=0"
HOURS = "jms.redeliveryPolicy.redeliveryDelay=36000000&jms.redeliveryPolicy.initialRedeliveryDelay=36000000"
FAST = "jms.redeliveryPolicy.maximumRedeliveries=2&jms.redeliveryPolicy.redeliveryDelay=2000"


def pytest_pycollect_makemodule() -> None:
    """Skip all modules of this folder if they cannot be imported."""
    if reason := missing("pyarrow", "pyspark"):
        skip_or_fail(reason)


@pytest.fixture(autouse=True)
def at_ease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: no test cuts the power.

    A test tries once what a folder can hold, at the first start of a log there, and not at each of a hundred more.
    """
    if not INSTALLED:
        return
    monkeypatch.setattr(os, "fsync", lambda _: None)
    found: set[str] = set()

    def asked(store: WalStore) -> str | None:
        reason = None if store.url in found else why_not(store)
        if reason is None and isinstance(store, Folder):
            found.add(store.url)
        return reason

    monkeypatch.setattr("redelivery_spark.wal.store.why_not", asked)


@pytest.fixture
def make_query(redelivery_broker: MemoryBroker, tmp_path: Path) -> Iterator[Callable[..., Query]]:
    """Make queries over one log; two redeliveries, after 1 s and 2 s."""
    made: list[Query] = []

    def make(**options: object) -> Query:
        query = Query(redelivery_broker, tmp_path / "wal", **{"uri": FAST, **options})
        made.append(query)
        return query

    yield make
    for query in made:
        query.die()


@pytest.fixture
def own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give messages the ids of their producer, and no time stamp, as over AMQP and on RabbitMQ."""
    monkeypatch.setattr(
        MemoryDelivery, "identity", property(lambda d: d.headers.get("id") or str(d.kept.broker_id))
    )
    monkeypatch.setattr(MemoryDelivery, "timestamp", property(lambda _: None))
    monkeypatch.setattr(MemoryDelivery, "strong", property(lambda _: False))
    monkeypatch.setattr(MemoryDelivery, "key", property(lambda d: (d.destination, d.identity, None)))


@pytest.fixture
def segments_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Limit segments to so many rows: batches are made of whole segments."""
    return lambda rows: monkeypatch.setattr("redelivery_spark.stream.lane_reader.MOST_ROWS", rows)


@contextmanager
def no_marks() -> Iterator[None]:
    """Make the broker one that does not mark redeliveries, as Artemis."""
    with (
        patch("redelivery_memory.adapter.CAPABILITIES", replace(CAPABILITIES, marks=False)),
        patch.object(MemoryDelivery, "redelivered", property(lambda _: False)),
    ):
        yield


@pytest.fixture
def unmarked(own_ids: None) -> Iterator[None]:
    """Make the broker one that marks no redelivery, with the producer's ids."""
    del own_ids
    with no_marks():
        yield
