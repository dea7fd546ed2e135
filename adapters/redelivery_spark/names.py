"""What rows are called by who judges them: a message's own id, where nothing else in the log has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from redelivery.core.delivery import Delivery

__all__ = ["named"]


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
