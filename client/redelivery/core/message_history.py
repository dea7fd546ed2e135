"""Memory of one source's messages over connections: counts, due times, verdicts, acceptances in doubt.

All consumers of a source share one history. An id that a producer sets proves nothing. A message is recognised by its
`Delivery.key`, and by the digest of all its bytes too where the broker did not make the key (`Delivery.strong`). A
record is used up: each arrival removes one, and a second equal arrival is a fresh message.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

from redelivery.core.accepts_in_doubt import AcceptsInDoubt, Proof
from redelivery.core.known_records import KnownRecords
from redelivery.core.source_memory import SourceMemory
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from redelivery.core.delivery import Delivery, Record

__all__ = [
    "ACCEPTED",
    "DOUBLE",
    "HANDLED",
    "LOOK",
    "RECALL",
    "RETURN",
    "GivenBack",
    "HeldAtLoss",
    "MessageHistory",
    "Rescheduled",
]


# ---- Held at loss ----------------------------------------------------------------------------------------
# Deliveries that were unsettled when a connection was lost: they prove which messages were not accepted over it.
#
# The broker sends a message once over a connection, unless it was released. If it has sent two equal ones, and one
# was accepted and the other was not, they are two messages, and neither may be taken for the other. The consumers
# are notified of the loss one after the other, in any order.


class HeldAtLoss:
    """Unsettled deliveries by key, and by digest once that is needed. Not thread-safe."""

    def __init__(self) -> None:
        self._deliveries: dict[Hashable, list[Delivery]] = {}
        self._digests: dict[Hashable, set[bytes]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deliveries

    def add(self, delivery: Delivery) -> None:
        """Add a delivery, until the next connection."""
        self._deliveries.setdefault(delivery.key, []).append(delivery)

    def digests(self, key: Hashable) -> Collection[bytes]:
        """Return the digests of all deliveries with this key. May take long; each is computed once."""
        known = self._digests.setdefault(key, set())
        deliveries = self._deliveries.get(key, [])
        known.update(delivery.digest() for delivery in deliveries)
        deliveries.clear()
        return known

    def clear(self) -> None:
        """Remove all: the broker redelivers them."""
        self._deliveries.clear()
        self._digests.clear()


class GivenBack:
    """Digests of deliveries released over each connection, by key, until another one is lost. Not thread-safe.

    Above the limit every message accepted over that connection counts as released: it is handled again.
    """

    def __init__(self) -> None:
        # By epoch; None: full.
        self._digests: dict[int, dict[Hashable, set[bytes]] | None] = {}
        self._many: dict[int, int] = {}

    def add(self, key: Hashable, digest: bytes, epoch: int, limit: float) -> None:
        """Add a digest."""
        digests = self._digests.setdefault(epoch, {})
        if digests is None or digest in digests.setdefault(key, set()):
            return
        digests[key].add(digest)
        self._many[epoch] = self._many.get(epoch, 0) + 1
        if self._many[epoch] > limit:
            self._digests[epoch] = None

    def digests(self, key: Hashable, epoch: int) -> Collection[bytes] | None:
        """Return the digests with this key of one connection; None: full, any digest counts as released."""
        digests = self._digests.get(epoch, {})
        return None if digests is None else digests.get(key, ())

    def lost(self, epoch: int) -> None:
        """Remove the digests of the connections before this one, which is lost."""
        for each in [each for each in self._digests if each < epoch]:
            del self._digests[each]
            self._many.pop(each, None)


# ---- Rescheduled -----------------------------------------------------------------------------------------
# Messages that the broker was asked to delay lately: if the connection is lost, it may not have read that.

# Seconds after which a broker has read it; otherwise it misses its heart-beats.
PATIENCE = 60.0


class Rescheduled:
    """Records by the proof of their messages, each with the time until which its settlement may be lost.

    Shared by all consumers of a source: any of them may get the message next. `lock`: the one of their history.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        # Oldest first; and by proof, because equal messages share one.
        self._known: dict[Record, tuple[Hashable, Hashable, int, float]] = {}
        self._equal: dict[Hashable, dict[Record, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, delivery: Delivery, record: Record, due: int, now: float) -> None:
        """Remember a message that the broker is to delay; `due`: the due time noted on it."""
        proof = delivery.proof
        if proof is not None and record.digest is None:
            record.digest, record.strong = delivery.digest(), delivery.strong
        with self._lock:
            while self._known and now >= self._known[oldest := next(iter(self._known))][3]:
                self._drop(oldest)
            if proof is not None:
                self._drop(record)
                self._known[record] = proof, delivery.key, due, now + PATIENCE
                self._equal.setdefault(proof, {})[record] = None

    def arrived(self, delivery: Delivery, due: int | None) -> Record | None:
        """Note the arrival of a message with a noted due time, or without one.

        The broker delayed it until that time; a later one than known here was noted by another consumer in between.
        With an earlier one, or none, the broker had it back before it read that it was to wait: the record is
        returned. A message that the broker sends for the first time is another one, even if equal in every byte.
        """
        if not self._known or (proof := delivery.proof) is None:
            return None
        with self._lock:
            equal = self._equal.get(proof, {})
            held = next((each for each in equal if due is not None and self._known[each][2] <= due), None)
            if held is not None:
                self._drop(held)
                return None
            found = next(iter(equal), None) if delivery.redelivered else None
            if found is not None:
                self._drop(found)
            return found

    def recalled(self, record: Record) -> Hashable | None:
        """Remove a record, because the broker has not read its settlement; return its message's key, or None."""
        with self._lock:
            return self._drop(record)

    def absorb(self, other: Rescheduled) -> None:
        """Take over the records of consumers that have closed."""
        with other._lock:
            left = list(other._known.items())
        with self._lock:
            for record, (proof, key, due, until) in left:
                self._known[record] = proof, key, due, until
                self._equal.setdefault(proof, {})[record] = None

    def lost(self, now: float) -> list[tuple[Hashable, Record]]:
        """Remove and return the records that the broker may not have read: the connection is lost."""
        with self._lock:
            found = [(key, record) for record, (_, key, _, until) in self._known.items() if now < until]
            self._known.clear()
            self._equal.clear()
        return found

    def _drop(self, record: Record) -> Hashable | None:
        proof, key, _, _ = self._known.pop(record, (None, None, 0, 0.0))
        equal = self._equal.get(proof, {})
        equal.pop(record, None)
        if not equal:
            self._equal.pop(proof, None)
        return key


# ---- Message history -------------------------------------------------------------------------------------

# Number of messages remembered, in addition to the windows of the open consumers.
RECALL = 8192
# `Record.runner` after its consumer has closed: no engine waits for that handler.
GONE = -1
# Seconds between checks of another consumer's handler that has the message from a lost connection.
LOOK = 1.0
# Seconds for which a message that does not come back is reported: another consumer may have handled it.
REMEMBERED = 3600.0
# Reasons for accepting a message without handling it, for the log.
HANDLED = "its handler has succeeded, with a delivery that was lost or taken back"
ACCEPTED = "it was accepted on a connection that was lost"
DOUBLE = "it is a second delayed copy of one delivery: the confirmation of the first was lost"
# Seconds after its start in which a connection brings the redeliveries of messages that the last one lost.
RETURN = 60.0


class MessageHistory:
    """Bounded memory of one source's messages. Its `lock` is taken last, and nothing is called while it is held.

    `limit`: number of records, and of acceptances in doubt, that are kept. It must exceed the number of messages that
    a broker leaves unsettled, because only those can be redelivered. `unique_ids`: the user guarantees that producers
    give each message an id of its own.
    """

    def __init__(
        self,
        limit: float = RECALL,
        *,
        unique_ids: bool = False,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._lock = lock or nullcontext()
        self._limit = limit
        self.unique_ids = unique_ids
        self._windows = 0
        self._records = KnownRecords()
        self._doubts = AcceptsInDoubt()
        # Epoch of the lost connection with those acceptances, and what else was unsettled there.
        self._doubted = -1
        self._held = HeldAtLoss()
        self._given_back = GivenBack()
        # Records whose second delivery waits for a handler; and the records of each consumer's handlers.
        self._awaited: dict[Record, Hashable] = {}
        self._runners: dict[int, set[Record]] = {}
        # Confirmed verdicts, and until when the loss of the connection may undo them.
        self._verdicts: deque[tuple[Hashable, Record, float]] = deque()
        self._address = ""
        # True if this connection is at another address than the last one.
        self._moved = False
        # Delayed copies that were sent again, by their names: how many there may be, and how many have arrived.
        self._doubles: OrderedDict[str, tuple[int, int, float]] = OrderedDict()
        # Messages that the broker was asked to delay, in case it has not read that.
        self.rescheduled = Rescheduled(self._lock)
        # What is known of the source beside messages with keys.
        self.source = SourceMemory(self._lock)

    def __len__(self) -> int:
        return len(self._records) + len(self._doubts) + len(self._verdicts) + len(self.source)

    @property
    def empty(self) -> bool:
        """True if no arriving message can be known, but for a delayed copy. Read without the lock."""
        return not self._records and not self._doubts

    def stop(self) -> None:
        """Remember nothing from now on."""
        self._limit = -inf
        self.source.stop()

    def widen(self, window: int) -> None:
        """Make room for a consumer that may have `window` messages unsettled.

        Below zero: one has closed. Its room is kept, for the records it leaves.
        """
        with self._lock:
            self._windows += window
            self._limit = max(self._limit, RECALL + self._windows)

    def unaccounted(self, now: float) -> int:
        """Return the number of messages, held at a loss, that have not come back for a minute, and not for an hour.

        The minute begins when a consumer is there for them: in an outage none can come back.
        """
        with self._lock:
            since = [record.missed_since for _, record in self._records if record.missed_since is not None]
        return len([at for at in since if RETURN <= now - at <= REMEMBERED])

    def served(self, now: float) -> None:
        """Note that the broker has confirmed a consumer of the source: what was held at the loss can come back."""
        with self._lock:
            for _, record in self._records:
                if record.missed_since == inf:
                    record.missed_since = now

    # An arrival.

    def known(self, delivery: Delivery, age: float) -> Record | None:
        """Remove and return the record of an arriving message, `age` seconds after its connection began; or None.

        While a handler still has the message, this delivery becomes the record's `copy`, which waits for the handler.
        """
        key = delivery.key
        if key is None or key not in self._records:
            return None
        digest = delivery.digest()
        with self._lock:
            while (record := self._records.free(key, digest, strong=delivery.strong)) is not None:
                if record.runner not in (None, GONE):
                    record.copy = delivery
                    self._awaited[record] = key
                    return record
                self._records.drop(key, record)
                record.missed_since = None
                if record.runner == GONE:
                    return record.apart()
                # An old confirmed verdict means that an operator has put the dead letter back.
                if not record.confirmed or age <= RETURN:
                    return record
        return None

    def accepted_before(self, delivery: Delivery, age: float, *, marks: bool) -> bool:
        """Return True if the delivery is a duplicate of a message accepted over a lost connection; each counts once.

        With the broker's own id, the redelivered flag is proof. With a producer's id, it takes equal bytes that contain
        a creation time (or `unique_ids`), an arrival soon after the loss, and the flag if the broker `marks` all. A
        broker that does not, may redeliver its own id without the flag (Artemis over STOMP): then a time in the key is
        proof, soon after the loss. A broker that has lost its data may begin its ids again, at another time. Neither
        does one that took over from another: Classic does not store the flag (`persistJMSRedelivered`).
        """
        key = delivery.key
        if key is None or key not in self._doubts:
            return False
        strong, soon = delivery.strong, age <= RETURN
        if not strong and not soon:
            return False
        digest = None if strong else delivery.digest()
        # With or without the flag, it is this message or one that nothing distinguishes from it: the doubt is resolved.
        with self._lock:
            taken = self._doubts.take(key, digest)
        if not taken or delivery.redelivered:
            return taken
        return not (marks and not self._moved) and (not strong or (soon and delivery.dated))

    def sent_again(self, name: str, until: float) -> None:
        """Note that a delayed copy was sent once more, and that the broker may have one more of it, until then."""
        with self._lock:
            copies, arrived, _ = self._doubles.pop(name, (1, 0, until))
            self._doubles[name] = copies + 1, arrived, until
            if len(self._doubles) > RECALL:
                self._doubles.popitem(last=False)

    def is_double(self, name: str, now: float) -> bool:
        """Count the first delivery of a delayed copy; return True if it is not the first copy of this name."""
        with self._lock:
            copies, arrived, until = self._doubles.pop(name, (0, 0, now))
            if arrived + 1 < copies:
                self._doubles[name] = copies, arrived + 1, until
            return arrived > 0 and now <= until

    # A handler of a lost delivery.

    def ended(self, delivery: Delivery, *, succeeded: bool) -> Delivery | None:
        """End a handler whose connection was lost; return the delivery of the same consumer that waits for it.

        Another consumer checks for itself (`looked`). If no delivery waits, a success becomes an acceptance in doubt.
        """
        record, key = delivery.record, delivery.key
        if record is None:
            return None
        # Before the lock, because it may take long.
        proof = self._proof(delivery) if succeeded else None
        with self._lock:
            if record.runner != delivery.consumer:
                # No delivery waits, and a success proves nothing. A charge stays if the message has not arrived yet.
                record.runner = None
                return None
            record.runner = None
            self._runners.get(delivery.consumer, set()).discard(record)
            copy = record.copy
            if copy is None:
                if succeeded:
                    self._records.drop(key, record)
                    # Unless another broker than the one connected to now made the id.
                    proof = proof if record.strong or not delivery.strong else None
                    self._doubts.add(proof, self._limit)
                return None
            record.succeeded = succeeded
            if copy.consumer != delivery.consumer:
                return None
            self._part(record)
            return copy

    def looked(self, delivery: Delivery) -> bool:
        """Return True if the delivery no longer waits for another consumer's handler: it then owns its record."""
        record = delivery.record
        with self._lock:
            if record is None or record.copy is not delivery:
                return True
            if record.runner not in (None, GONE):
                return False
            self._part(record)
            if record.runner == GONE:
                delivery.record = record.apart()
            return True

    def let_wait(self, record: Record) -> None:
        """Note that the waiting delivery is released: the next one waits for the handler."""
        with self._lock:
            self._lose_copy(record)

    # Records.

    def remember(self, delivery: Delivery, record: Record, *, runs: bool = False) -> None:
        """Keep the record until the message is redelivered. `runs`: a handler has it; it is found before equal ones."""
        key = self._key(delivery, record)
        if key is not None:
            with self._lock:
                self._records.add(key, record, self._limit, first=runs)

    def not_rescheduled(self, record: Record) -> None:
        """Note that the broker does not delay the message of this record: it may arrive at any time."""
        key = self.rescheduled.recalled(record)
        if key is not None:
            with self._lock:
                self._records.add(key, record, self._limit)

    def inherit(self, records: Mapping[Hashable, Record]) -> None:
        """Take over the records of an earlier process, for messages with keys of their own."""
        with self._lock:
            for key, record in records.items():
                record.strong = True
                self._records.add(key, record, self._limit)

    def poisoned(self, delivery: Delivery, record: Record, until: float) -> None:
        """Keep a confirmed verdict: if the connection is lost before `until`, the message may be redelivered."""
        key = self._key(delivery, record)
        if key is not None:
            with self._lock:
                self._verdicts.append((key, record, until))
                while len(self._verdicts) > max(0, self._limit):
                    self._verdicts.popleft()

    def forget(self, delivery: Delivery) -> None:
        """Remove the records of this message, unless a handler has it."""
        key = delivery.key
        if key is None or key not in self._records:
            return
        digest = delivery.digest()
        with self._lock:
            for record in tuple(self._records.of(key, digest, strong=delivery.strong)):
                if record.runner in (None, GONE):
                    self._records.drop(key, record)

    # A connection, and the end of a consumer.

    def connected(self, address: str, epoch: int) -> None:
        """Note the broker of a connection. Another broker makes ids of its own, even if they look the same."""
        with self._lock:
            if epoch != self._doubted:
                # Otherwise a consumer has started while others are still to be notified of the loss.
                self._held.clear()
            known, self._address = self._address, address
            if epoch != self._records.epoch:
                self._moved = known not in ("", address)
            self._records.epoch = epoch
            if known in ("", address):
                return
            self._doubts.forget(strong=True)
            self._records.weaken()

    def connection_lost(
        self,
        consumer: int,
        accepted: Iterable[Delivery],
        unsettled: Collection[Delivery],
        running: Collection[Delivery],
        now: float,
        epoch: int,
        age: float = 0.0,
    ) -> None:
        """Invalidate a consumer's unsettled and running deliveries; keep the records of their messages.

        `epoch`, `age`: as for `lost`. `now` is infinite if only this consumer closes. The broker is then still there
        and has read what was written: nothing is in doubt, and no engine waits for the handlers.
        """
        closes = now == inf
        if not closes:
            self.lost(now, epoch, age)
            self._doubt([self._proof(each) for each in accepted], [*unsettled, *running])
        with self._lock:
            # A waiting delivery that was to be accepted for its handler is in doubt from now on.
            copies = self._lose_copies(consumer)
            if closes:
                for record in self._runners.pop(consumer, ()):
                    record.runner = GONE
        for delivery in (*unsettled, *running, *copies) if closes else ():
            self.gave_back(delivery)
        for delivery in (*unsettled, *running) if not closes else ():
            if (held := delivery.record) is not None:
                held.losses, held.missed_since = held.losses + 1, inf
        for delivery in unsettled:
            enter(delivery, "lost")
            if delivery.record is not None:
                self.remember(delivery, delivery.record)
        for delivery in running:
            self._lose_running(delivery, closes=closes)

    def taken_back(self, unsettled: Iterable[Delivery], running: Iterable[Delivery]) -> None:
        """Keep the records of deliveries that the broker has taken back over a connection that still stands."""
        for delivery in unsettled:
            record = delivery.record
            if record is not None and record.copy is delivery:
                self.let_wait(record)
                record = None
            enter(delivery, "lost")
            self.gave_back(delivery, record)
        for delivery in running:
            self.gave_back(delivery)
            self._lose_running(delivery, closes=False)

    def left(self) -> None:
        """Note that the last consumer has closed: none is still to be notified of a loss."""
        with self._lock:
            self._held.clear()

    def _doubt(self, proofs: Iterable[Proof | None], held: Iterable[Delivery]) -> None:
        """Add acceptances that the broker may not have read before the connection was lost.

        Those known by a producer's bytes count for the next connection only. They do not count if the broker has sent
        the same bytes twice, and the `held` or released ones were not accepted: then they are two messages.
        """
        keys: set[Hashable] = set()
        with self._lock:
            for proof in proofs:
                if proof is not None and self._was_given_back(*proof):
                    continue
                self._doubts.add(proof, self._limit)
                if proof is not None and proof[0] in self._held:
                    keys.add(proof[0])
            for delivery in held:
                if not delivery.strong and delivery.key is not None:
                    self._held.add(delivery)
                    if delivery.key in self._doubts:
                        keys.add(delivery.key)
            for key in keys:
                # Equal ids and a lost connection are rare: computing digests under the lock is acceptable.
                for digest in self._held.digests(key):
                    self._doubts.discard(key, digest)

    def _was_given_back(self, key: Hashable, digest: bytes | None) -> bool:
        """Return True if the same bytes were released over the lost connection; called with the lock."""
        given = self._given_back.digests(key, self._doubted)
        return digest is not None and (given is None or digest in given)

    def gave_back(self, delivery: Delivery, record: Record | None = None) -> None:
        """Note that a delivery is released over a connection that still stands; keep its record."""
        if record is not None:
            self.remember(delivery, record)
        # Before the lock, because it may take long.
        proof = self._proof(delivery)
        if proof is not None and proof[1] is not None:
            with self._lock:
                self._given_back.add(proof[0], proof[1], delivery.epoch, self._limit)

    def lost(self, now: float, epoch: int, age: float) -> None:
        """Note that the connection of this epoch is lost at `now`, after `age` seconds.

        Called for a source without consumers, too: facts that hold for one connection do not hold for the next.
        """
        with self._lock:
            if epoch != self._doubted:
                self._doubted = epoch
                self._doubts.forget(strong=False)
                self._held.clear()
                self._given_back.lost(epoch)
                for _, record in self._records:
                    if record.missed_since is not None and now - record.missed_since < RETURN:
                        record.missed_since = inf
                if age > RETURN:
                    # The broker redelivers no more of these: an operator who sends one has put it back.
                    self._records.forget_safe(epoch)
            # The loss may have undone these verdicts.
            for key, record, until in self._verdicts:
                if now < until:
                    self._records.add(key, record, self._limit)
            self._verdicts.clear()
        for key, record in self.rescheduled.lost(now):
            with self._lock:
                self._records.add(key, record, self._limit)

    def absorb(self, other: MessageHistory) -> None:
        """Take over the memory of a consumer that has closed."""
        with other._lock:
            left, verdicts, address = list(other._records), list(other._verdicts), other._address
        self.rescheduled.absorb(other.rescheduled)
        self.source.absorb(other.source, [record for _, record in left])
        with self._lock:
            self._address = self._address or address
            self._verdicts.extend(verdicts)
            for key, record in left:
                if address not in ("", self._address):
                    # Ids made by another broker.
                    record.strong = False
                self._records.add(key, record, self._limit)

    def _key(self, delivery: Delivery, record: Record) -> Hashable | None:
        """Return the key of a message; give its record a digest, for the case that the key proves nothing."""
        key = delivery.key
        if key is not None and record.digest is None:
            record.digest, record.strong = delivery.digest(), delivery.strong
        return key

    def _proof(self, delivery: Delivery) -> Proof | None:
        """Return the proof by which a duplicate of an accepted message may be accepted unseen; or None."""
        key = delivery.key
        if key is None or delivery.strong:
            return None if key is None else (key, None)
        return (key, delivery.digest()) if delivery.dated or self.unique_ids else None

    def _part(self, record: Record) -> None:
        """Give a record to the delivery that has waited; called with the lock."""
        record.copy = None
        key = self._awaited.pop(record, None)
        if key is not None:
            self._records.drop(key, record)

    def _lose_copy(self, record: Record) -> Delivery | None:
        """Remove and return the delivery that waits for a handler; called with the lock."""
        copy, record.copy = record.copy, None
        key = self._awaited.pop(record, None)
        if copy is not None and record.succeeded:
            # It was to be accepted, and is redelivered instead: an acceptance in doubt.
            self._records.drop(key, record)
            self._doubts.add(self._proof(copy) if record.strong or not copy.strong else None, self._limit)
            copy.record = None
        return copy

    def _lose_copies(self, consumer: int) -> Sequence[Delivery]:
        """Remove and return the waiting deliveries of a consumer; called with the lock."""
        lost: list[Delivery] = []
        for record in list(self._awaited):
            if record.copy is not None and record.copy.consumer == consumer:
                copy = self._lose_copy(record)
                if copy is not None:
                    lost.append(copy)
                    if copy.state == "waiting":
                        enter(copy, "lost")
        return lost

    def _lose_running(self, delivery: Delivery, *, closes: bool) -> None:
        """Keep the record of a message that a handler has over a lost connection; called without the lock."""
        record = delivery.record
        assert record is not None, "the engine gives each running delivery a record"
        with self._lock:
            record.runner = GONE if closes else delivery.consumer
            record.succeeded = False
            if not closes:
                self._runners.setdefault(delivery.consumer, set()).add(record)
        self.remember(delivery, record, runs=not closes)
