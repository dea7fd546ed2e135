"""Conversion of rows between the log's files and the engine: from segments, and into the lane of redeliveries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery_spark.stream.logged_delivery import StoredRow
from redelivery_spark.wal import segment_schema
from redelivery_spark.wal.lane import REDELIVERIES
from redelivery_spark.wal.places import place
from redelivery_spark.wal.segment_schema import SegmentFacts, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redelivery_spark.stream.logged_delivery import LoggedDelivery
    from redelivery_spark.wal.places import Place

__all__ = ["redelivered_table", "rows_in", "waiting_table"]


def rows_in(table: pa.Table, lane: int, tag: int, number: int, rows: Iterable[int]) -> list[StoredRow]:
    """Return some rows of a segment; number 0: of a file of waiting rows, which has the form of lane 0."""
    wanted = list(rows)
    facts = facts_of(table.schema)
    wires: list[str] = [json.dumps(dict(wire), sort_keys=True) for wire in facts.wires]
    some = table.take(pa.array(wanted, pa.int64()))
    heads, bodies = some.column("head").to_pylist(), some.column("body").to_pylist()
    if lane != REDELIVERIES:
        return [
            StoredRow(place(lane, tag, number, row), head, body, wires[0], facts.at)
            for row, head, body in zip(wanted, heads, bodies, strict=True)
        ]
    origins: list[Place] = some.column("origin").to_pylist()
    numbers: list[int] = some.column("wire").to_pylist()
    arrived: list[float] = some.column("arrived").to_pylist()
    counts: list[int] = some.column("count").to_pylist()
    return [
        StoredRow(origins[at], heads[at], bodies[at], wires[numbers[at]], arrived[at], counts[at])
        for at in range(len(wanted))
    ]


def redelivered_table(
    rows: Sequence[tuple[StoredRow, int]], *, at: float, log: str, alone: bool = False, group: str = ""
) -> pa.Table:
    """Return rows as a segment of lane 0, each with the count of this delivery. `group`: see `GivenUpBatch`."""
    wires: dict[str, int] = {}
    numbers = [wires.setdefault(row.wire, len(wires)) for row, _ in rows]
    return segment_schema.redelivered_table(
        [row.head for row, _ in rows],
        [row.body for row, _ in rows],
        [row.place for row, _ in rows],
        [count for _, count in rows],
        numbers,
        [row.arrived for row, _ in rows],
        SegmentFacts(at, log, tuple(map(json.loads, wires)), alone=alone, connection=group),
    )


def waiting_table(rows: Sequence[LoggedDelivery], *, at: float, log: str) -> pa.Table:
    """Return rows that begin to wait as a file of waiting rows."""
    return redelivered_table([(each.row, each.row.count) for each in rows], at=at, log=log)
