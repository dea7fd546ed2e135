"""Reader of the messages on a queue, which stay there: for `list`, `summary`, `export`, and Spark's browse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import is_pattern
from redelivery.dlq.dead_letter import DeadLetter, read_letter
from redelivery.driver.port import single

if TYPE_CHECKING:
    from collections.abc import Generator

    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dlq_connection import DeadLetterConnection
    from redelivery.dlq.ledger_causes import LedgerCauses
    from redelivery.dlq.selection import Selection

__all__ = ["IDLE", "QueueBrowser"]

IDLE = 2.0
"""Seconds without a message after which a queue counts as empty, where the broker does not report its end."""


class QueueBrowser:
    """Shows the messages of a queue, which stay there.

    With `take` it receives and releases them, until no message has arrived for `idle` seconds.
    """

    def __init__(
        self,
        connection: DeadLetterConnection,
        queue: str | None,
        causes: LedgerCauses,
        *,
        take: bool = False,
        idle: float = IDLE,
    ) -> None:
        self._connection = connection
        self._given = None if queue is None else str(single(queue))
        self._causes = causes
        self._take = take
        self._idle = idle
        self._limit: str | None = None

    @property
    def queue(self) -> str:
        """Queue, qualified; where none was given, the dead-letter queue of the URI or the broker's own."""
        own = self._given or self._connection.settings.dead_letters.default.destination
        return own or self._connection.capabilities.dead_letter_destination

    @property
    def takes_nothing(self) -> bool:
        """True if the broker shows messages without giving them. Only when connected."""
        return self._connection.capabilities.browse and not self._take

    @property
    def limit(self) -> str | None:
        """Reason why the last look may not have shown everything; None: it has."""
        return self._limit

    def look(self, selection: Selection, *, take: bool = False) -> Generator[tuple[Delivery, DeadLetter]]:
        """Yield the messages that match, in the broker's order. `take`: receive them where they cannot be shown.

        Raises:
            ConfigurationError: The broker cannot show a queue without taking from it, and `take` was not given.
            AdapterError: The broker refuses the queue.
            TransportError: The connection was lost.
        """
        connection, queue, now = self._connection, self.queue, self._connection.clock.time()
        self._limit, count = None, 0
        if selection.nothing:
            return
        self._causes.refresh()
        takes_nothing = self.takes_nothing
        takes = self._take or (take and not takes_nothing)
        shown = connection.taken(queue, self._idle) if takes else connection.shown(queue)
        for count, delivery in enumerate(shown, 1):  # noqa: B007 - the last one counts
            letter = self.read(delivery)
            if selection.matches(letter, now):
                yield delivery, letter
        self._note_limit(count, takes_nothing=takes_nothing)

    def read(self, delivery: Delivery) -> DeadLetter:
        """Return a message as a dead letter, with cause and origin as far as they are known."""
        vouched = self._connection.settings.empty_body == "forward"
        # Of a pattern the message's own queue.
        queue = delivery.destination if is_pattern(Destination.parse(self.queue)) else self.queue
        return read_letter(delivery, queue, self._causes, empty_is_whole=vouched)

    def _note_limit(self, count: int, *, takes_nothing: bool) -> None:
        able = self._connection.capabilities
        if not takes_nothing and self._connection.full is not None:
            self._limit = f"{self._connection.full}, which is the limit: there may be more of them"
            return
        most = able.browse_limit if takes_nothing else able.max_unacknowledged
        if most is not None and count >= most:
            self._limit = (
                f"{able.broker} shows no more than {most} dead letters at a time: there may be more; redrive or purge "
                "these, and it shows the next"
            )
