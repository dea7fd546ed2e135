"""A segment of a drain: the bytes of messages as they came, and the deliveries that are made of them again."""

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
"""The last segment of a drain: no rows."""


def segment_of(deliveries: Sequence[Delivery], wire: Mapping[str, str], arrived: float, run: str) -> pa.Table:
    """Return messages of one connection as the rows of a segment.

    Args:
        deliveries: they still have their bodies.
        wire: what restores deliveries of their connection.
        arrived: when they arrived, in seconds since the Unix epoch.
        run: name of the drain.
    """
    stored = [delivery.stored() for delivery in deliveries]
    facts = SegmentFacts(arrived, run, (wire,))
    return stored_table([head for head, _ in stored], [body for _, body in stored], facts)


class DrainedSegment:
    """The rows of a segment. A row is made into a delivery when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        """Raises RedeliveryError: these are not the rows of a segment."""
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
