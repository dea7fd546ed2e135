"""What rows are called by who judges them: a message's own id, where nothing else in the log has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery_spark.stream.rows import places_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from redelivery.core.delivery import Delivery

__all__ = ["named", "renamed"]


def named(
    deliveries: Sequence[Delivery], taken: AbstractSet[str], batch: str
) -> tuple[list[str], list[str | None] | None]:
    """Return the ids that messages have as rows, and the broker's where those are others (None: nowhere).

    The ids of the rows that a batch has, and of those that wait, differ: verdicts go by them. So a message whose id is
    in `taken`, or comes again, is called `id#batch/0`, `id#batch/1`, …, and one without an id `batch/0`, ….
    """
    ids = [delivery.identity for delivery in deliveries]
    found = set(ids)
    if len(found) == len(ids) and None not in found and found.isdisjoint(taken):
        return [each or "" for each in ids], None
    names: list[str] = []
    others: list[str | None] = []
    used = set(taken)
    for number, identity in enumerate(ids):
        name = f"{batch}/{number}" if identity is None else identity
        while name in used:
            name = f"{name}#{batch}/{number}"
        used.add(name)
        names.append(name)
        others.append(None if identity is None or name == identity else identity)
    return names, others


def renamed(table: pa.Table, taken: AbstractSet[str], batch: str) -> pa.Table:
    """Return the rows of a batch whose tasks have consumed each for itself, so that their names differ.

    `taken` is what rows that wait are called. Rows of the batch that have waited before keep their names.
    """
    before = set(places_of(table).values())
    names: list[str] = table.column("message_id").to_pylist()
    others: list[str | None] = table.column("_identity").to_pylist()
    used = {*taken, *(names[at] for at in before)}
    told = list(names)
    for at, name in enumerate(names):
        if at in before:
            continue
        while told[at] in used:
            told[at] = f"{told[at]}#{batch}/{at}"
            others[at] = others[at] or name
        used.add(told[at])
    if told == names:
        return table
    for column, values in (("message_id", told), ("_identity", others)):
        place = table.schema.get_field_index(column)
        table = table.set_column(place, table.schema.field(column), pa.array(values, pa.string()))
    return table
