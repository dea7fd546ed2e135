"""What one consumer knows beyond a connection: counts, due times, verdicts by identity; what was accepted lately."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from redelivery.core.delivery import Record
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from redelivery.core.delivery import Delivery

__all__ = ["RECALL", "RETURN", "MessageHistory"]

RECALL = 8192  # messages remembered, beyond the window
RETURN = 60.0  # seconds of a connection in which a broker sends again what was lost with the one before


class MessageHistory:
    """Bounded memory of messages whose connection was lost.

    `limit` bounds both what is remembered and what counts as accepted lately; it must exceed the window of
    messages that a broker leaves unsettled, because only those can come back.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._recent: deque[Delivery] = deque(maxlen=limit)
        self._poisoned: deque[tuple[Hashable, Record, float]] = deque(maxlen=limit)
        self._accepted: OrderedDict[Hashable, None] = OrderedDict()
        self.records: OrderedDict[Hashable, Record] = OrderedDict()
        self.accept = self._recent.append  # on the hot path: one append, no identity is computed

    def stop(self) -> None:
        """Remember nothing, from now on."""
        self._limit = 0
        self._recent, self._poisoned = deque(maxlen=0), deque(maxlen=0)
        self.accept = self._recent.append

    @property
    def empty(self) -> bool:
        """Whether no arriving message can be one that is remembered."""
        return not self.records and not self._accepted

    def accepted_before(self, delivery: Delivery) -> bool:
        """Whether this is a copy, marked by the broker, of what this consumer accepted on a lost connection."""
        return bool(self._accepted) and delivery.redelivered and delivery.key in self._accepted

    def known(self, key: Hashable | None, age: float) -> Record | None:
        """Return what is known of a message that comes now, `age` seconds after its connection began."""
        record = None if key is None else self.records.get(key)
        if record is not None and record.confirmed and age > RETURN:
            self.forget(key)  # its dead letter is safe, and somebody has put it back
            return None
        return record

    def remember(self, key: Hashable, record: Record) -> None:
        """Keep the record until a copy of its message comes."""
        self.records[key] = record
        self.records.move_to_end(key)
        while len(self.records) > self._limit:
            self.records.popitem(last=False)

    def leave(self, *, closed: bool) -> dict[Hashable, Record]:
        """Give out what is known of messages that nobody here has; keep nothing back if the consumer is `closed`.

        Of a message whose handler runs on after its connection was lost both are told: this consumer, to wait for the
        handler if the copy comes here, and the others, what has been charged so far.
        """
        left: dict[Hashable, Record] = {}
        for key, record in list(self.records.items()):
            if closed or not record.running:
                left[key] = self.records.pop(key)
            elif record.copy is None:
                left[key] = record.apart()
        return left

    def inherit(self, records: Mapping[Hashable, Record]) -> None:
        """Take over what another consumer has left, but for messages of which more is known here: one ran here last."""
        for key, record in records.items():
            if key not in self.records and key not in self._accepted:
                self.remember(key, record.apart() if record.running else record)

    def poisoned(self, key: Hashable | None, record: Record, until: float) -> None:
        """Keep a verdict that the broker has confirmed: if the connection is lost before `until`, it may come again."""
        if key is not None:
            self._poisoned.append((key, record, until))

    def forget(self, key: Hashable | None) -> None:
        """Know nothing of the message any longer."""
        if key is not None:
            self.records.pop(key, None)
            self._accepted.pop(key, None)

    def accepted(self, keys: Iterable[Hashable | None]) -> None:
        """Take messages for accepted, though the broker may not have learned of it."""
        for key in keys:
            if key is not None:
                self._accepted[key] = None
                self._accepted.move_to_end(key)
        while len(self._accepted) > self._limit:
            self._accepted.popitem(last=False)

    def connection_lost(self, unsettled: Iterable[Delivery], running: Iterable[Delivery], now: float) -> None:
        """Drop the handles of what was held and of what runs; keep what is known of the messages."""
        self.accepted(delivery.key for delivery in self._recent)
        self._recent.clear()
        for record in self.records.values():
            if record.copy is not None:  # it came on the connection that is gone now
                enter(record.copy, "lost")
                record.copy = None
        for delivery in unsettled:
            enter(delivery, "lost")
        for key, verdict, until in self._poisoned:
            if now < until:
                self.remember(key, verdict)
        self._poisoned.clear()
        for delivery in unsettled:
            if delivery.record is not None and delivery.key is not None:
                self.remember(delivery.key, delivery.record)
        for delivery in running:
            record = delivery.record = delivery.record or Record()
            record.running = True
            if delivery.key is not None:
                self.remember(delivery.key, record)
