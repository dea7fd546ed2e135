"""Conversion of rows between the log's files and the engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.spark.stored import sent, stored_row

from redelivery_spark.stream.engine_driver import LoggedDelivery, restored
from redelivery_spark.stream.journal import redelivered_table, rows_in, waiting_table
from redelivery_spark.wal.places import place
from redelivery_spark.wal.segment_files import SegmentFacts, facts_of, stored_table

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker


def test_rows_of_a_segment_are_those_that_came(redelivery_broker: MemoryBroker) -> None:
    """Each row of a segment has its place and arrival; only requested rows are made, in that order."""
    deliveries, wire = sent(redelivery_broker, "a", "b", "c")
    stored = [each.stored() for each in deliveries]
    table = stored_table(
        [head for head, _ in stored], [body for _, body in stored], SegmentFacts(9.0, "log", (wire,))
    )

    rows = rows_in(table, 3, 5, 7, [2, 0])

    assert [row.place for row in rows] == [place(3, 5, 7, 2), place(3, 5, 7, 0)]
    assert [(row.arrived, row.count) for row in rows] == [(9.0, 1)] * 2
    assert [(restored(row).body, restored(row).digest()) for row in rows] == [
        (deliveries[at].body, deliveries[at].digest()) for at in (2, 0)
    ]


def test_redelivered_rows_keep_what_they_came_with(redelivery_broker: MemoryBroker) -> None:
    """Redelivered rows keep their first place, arrival and wire, and have the count of this delivery."""
    one = stored_row(redelivery_broker, "one")
    two = replace(stored_row(redelivery_broker, "two", row=1), arrived=6.0)

    table = redelivered_table([(one, 2), (two, 3)], at=20.0, log="log", alone=True, group="3 0 ")

    assert rows_in(table, 0, 0, 4, [0, 1]) == [replace(one, count=2), replace(two, count=3)]
    facts = facts_of(table.schema)
    assert (facts.at, facts.alone, facts.connection, len(facts.wires)) == (20.0, True, "3 0 ", 1)


def test_rows_that_came_over_other_wires_share_a_segment(redelivery_broker: MemoryBroker) -> None:
    """Rows of several wires share a segment, and each has its own."""
    one = stored_row(redelivery_broker, "one")
    other = replace(one, wire=json.dumps(json.loads(one.wire) | {"more": "x"}, sort_keys=True))

    table = redelivered_table([(one, 2), (other, 2), (one, 2)], at=1.0, log="log")

    assert [row.wire for row in rows_in(table, 0, 0, 1, range(3))] == [one.wire, other.wire, one.wire]


def test_rows_that_begin_to_wait_are_read_as_those_of_lane_0(redelivery_broker: MemoryBroker) -> None:
    """Rows that begin to wait are stored as those of lane 0, and a start reads its waiting rows from them."""
    row = stored_row(redelivery_broker, "x")
    table = waiting_table([LoggedDelivery(row)], at=1.0, log="log")

    assert rows_in(table, 0, 0, 0, [0]) == [row]
