"""Messages that the broker has, and whose rows are done with: they are accepted when they come again.

With `ack=commit` a row can be done with before its message is here: a restarted query replays a batch, and has groups
and rows that wait processed, while the broker still sends again what is before them. Until they come they are known by
what is written here: their batches are removed, and the query may be started again often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.message_history import RETURN
from redelivery_spark.stream.rows import digest_of, key_of, keys_of, places_of
from redelivery_spark.wal.wal_state import Awaited

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery_spark.stream.rows import LoggedDelivery
    from redelivery_spark.stream.unacked_messages import UnackedMessages
    from redelivery_spark.wal.wal_state import Place, State

__all__ = ["ExpectedMessages"]

PATIENCE = (
    # Seconds for which a message is expected: it may have expired, or another consumer may have it.
    86400.0
)
# They are in each state that is written; beyond it the oldest are not expected any longer.
MOST = 10_000


class ExpectedMessages:
    """What is still to be accepted of what the log is done with. One thread."""

    def __init__(self, state: State, originals: UnackedMessages, clock: Clock) -> None:
        self._awaited = state.awaited
        self._originals = originals
        self._clock = clock
        # With what its copies have in common, and what tells bodies apart: of a row that is accepted the body is gone.
        self._waited: dict[Place, tuple[LoggedDelivery, Hashable, bytes]] = {}

    def __iter__(self) -> Iterator[tuple[Place, Hashable, bytes]]:
        """Return of each its row's place, what its copies have in common, and what tells bodies apart."""
        for place, (_, key, digest) in self._awaited.items():
            yield place, key, digest

    def __contains__(self, place: Place) -> bool:
        """Whether the message of this row is expected."""
        return place in self._awaited

    def waiting(self, rows: Iterable[LoggedDelivery]) -> None:
        """Learn which rows wait, before that is written: those that have waited, and do not any more, are done with."""
        waiting = {
            row.place: self._waited.get(row.place) or (row, key_of(row), digest_of(row.body)) for row in rows
        }
        for place, (row, key, digest) in self._waited.items():
            if place not in waiting and row.original and not self._originals.had(place):
                self._add(place, key, digest)
        self._originals.ended.intersection_update(waiting)
        self._waited = waiting
        self._prune()

    def settled(self, number: int, table: pa.Table) -> bool:
        """Learn that a batch is done with; return whether messages of rows that were new in it are not here."""
        kept = table.column("_kept").to_pylist()
        if True not in kept:
            return False
        before = set(places_of(table).values())
        missing = [
            at
            for at in range(table.num_rows)
            if kept[at] and at not in before and not self._originals.had((number, at))
        ]
        if missing:
            keys, bodies = keys_of(table), table.column("body")
            for at in missing:
                self._add((number, at), keys[at], digest_of(bodies[at].as_py()))
        return bool(missing)

    def came(self, place: Place) -> None:
        """Learn that a message is accepted. That may be lost with the connection: it is known for a while more."""
        awaited = self._awaited.get(place)
        if awaited is not None:
            self._awaited[place] = awaited._replace(until=self._clock.time() + RETURN)

    def _prune(self) -> None:
        """Expect no longer what has come, what does not come, and what waits after all."""
        awaited, now = self._awaited, self._clock.time()
        for place in [place for place, each in awaited.items() if each.until < now or place in self._waited]:
            del awaited[place]
        for place in list(awaited)[: max(0, len(awaited) - MOST)]:
            del awaited[place]

    def _add(self, place: Place, key: Hashable, digest: bytes) -> None:
        self._awaited[place] = Awaited(self._clock.time() + PATIENCE, key, digest)
