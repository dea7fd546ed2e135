"""Segment of a drain: the bytes of messages as they arrived, and the deliveries that are restored from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.driver.port import restorer
from redelivery_spark.wal.segment_schema import STORED, SegmentFacts, facts_of, stored_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from redelivery.core.delivery import Delivery

__all__ = ["END", "DrainedSegment", "segment_of"]

END = STORED.empty_table()
"""Last segment of a drain: no rows."""


def segment_of(deliveries: Sequence[Delivery], wire: Mapping[str, str], arrived: float, run: str) -> pa.Table:
    """Return messages of one connection as the rows of a segment.

    Args:
        deliveries: The messages. They still have their bodies.
        wire: Data that restores deliveries of their connection.
        arrived: Time of their arrival, in seconds since the Unix epoch.
        run: Name of the drain.
    """
    stored = [delivery.stored() for delivery in deliveries]
    facts = SegmentFacts(arrived, run, (wire,))
    return stored_table([head for head, _ in stored], [body for _, body in stored], facts)


class DrainedSegment:
    """Rows of a segment. A row is restored to a delivery when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        """Raises RedeliveryError: the table is not a segment."""
        self._table = table
        if table.num_rows:
            facts = facts_of(table.schema)
            self._arrived = facts.at
            self._restore = restorer(facts.wires[0])

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def deliveries(self, first: int = 0, count: int | None = None) -> list[Delivery]:
        """Return the deliveries of some rows, or of all from `first` on."""
        some = self._table.slice(first, count)
        if not some.num_rows:
            return []
        rows = zip(some.column("head").to_pylist(), some.column("body").to_pylist(), strict=True)
        return [self._restore(head, body, self._arrived) for head, body in rows]
