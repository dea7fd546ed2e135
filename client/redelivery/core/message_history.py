"""What is known of one source's messages beyond a connection: counts, due times, verdicts, accepts in doubt.

All consumers of a source share one history. An id that a producer sets proves nothing: a message is known by its
`Delivery.key`, and by the digest of all its bytes too where the key is not the broker's own (`Delivery.strong`). What
is known is consumed: each arrival takes one record away, and a second equal arrival is a fresh message.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

from redelivery.core.accepts_in_doubt import AcceptsInDoubt, Proof
from redelivery.core.held_at_loss import GivenBack, HeldAtLoss
from redelivery.core.known_records import KnownRecords
from redelivery.core.rescheduled import Rescheduled
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from redelivery.core.delivery import Delivery, Record

__all__ = ["ACCEPTED", "HANDLED", "LOOK", "RECALL", "RETURN", "MessageHistory"]

# Messages remembered, beyond the windows of the consumers that are open.
RECALL = 8192
# The runner of a record whose consumer has closed: nobody waits for its handler.
GONE = -1
# Seconds between looks at another consumer's handler, which has the message over a connection that is gone.
LOOK = 1.0
# Why a message is accepted without being handled.
HANDLED = "its handler has succeeded, with a delivery that was lost or taken back"
ACCEPTED = "it was accepted on a connection that was lost"
# Seconds of a connection in which a broker sends again what was lost with the one before.
RETURN = 60.0


class MessageHistory:
    """Bounded memory of the messages of one source. Its `lock` is taken last, and nothing is called while it is held.

    `limit` bounds what is remembered, and what counts as accepted lately; it must exceed the window of messages that a
    broker leaves unsettled, because only those can come back. `unique_ids`: the user's word that producers use no id
    for two messages.
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
        # The connection with which they were lost, and what else was held there.
        self._doubted = -1
        self._held = HeldAtLoss()
        self._given_back = GivenBack()
        # Records whose copy waits for a handler, and those of each consumer's handlers.
        self._awaited: dict[Record, Hashable] = {}
        self._runners: dict[int, set[Record]] = {}
        # Verdicts that the broker has confirmed, and until when a lost connection may take that back.
        self._verdicts: deque[tuple[Hashable, Record, float]] = deque()
        self._address = ""
        # What the broker holds back, should it not have read that.
        self.rescheduled = Rescheduled(self._lock)

    def __len__(self) -> int:
        return len(self._records) + len(self._doubts) + len(self._verdicts)

    @property
    def empty(self) -> bool:
        """Whether no arriving message can be one that is known. Read without the lock."""
        return not self._records and not self._doubts

    def stop(self) -> None:
        """Remember nothing, from now on."""
        self._limit = -inf

    def widen(self, window: int) -> None:
        """Make room for a consumer that may have so many messages unsettled.

        Below zero: one has closed. Its room stays, for what it has left.
        """
        with self._lock:
            self._windows += window
            self._limit = max(self._limit, RECALL + self._windows)

    # An arrival.

    def known(self, delivery: Delivery, age: float) -> Record | None:
        """Return what is known of a message that comes now, `age` seconds after its connection began: no longer kept.

        While a handler still has the message, this delivery is the record's copy: the one that waits for it.
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
                if record.runner == GONE:
                    return record.apart()
                # Else its dead letter is safe, and somebody has put it back.
                if not record.confirmed or age <= RETURN:
                    return record
        return None

    def accepted_before(self, delivery: Delivery, age: float, *, marks: bool) -> bool:
        """Return whether this is a copy of a message accepted over a lost connection; one accept pays for one copy.

        By the broker's own id the broker's mark is proof. By an id of the producer's it takes equal bytes that have a
        creation time (or the user's word for ids), soon after the loss, and the mark of a broker that `marks` all.
        """
        key = delivery.key
        if key is None or key not in self._doubts:
            return False
        strong = delivery.strong
        if not strong and age > RETURN:
            return False
        digest = None if strong else delivery.digest()
        # Marked or not, it is the message, or one that cannot be told from it: nothing is in doubt any longer.
        with self._lock:
            taken = self._doubts.take(key, digest)
        return taken and (delivery.redelivered or not (strong or marks))

    # A handler of a lost delivery.

    def ended(self, delivery: Delivery, *, succeeded: bool) -> Delivery | None:
        """Take the end of a handler whose connection was lost; return the copy of the same consumer that waits for it.

        Another consumer's copy is looked at by that one (`looked`). Without a copy, a success is an accept in doubt.
        """
        record, key = delivery.record, delivery.key
        if record is None:
            return None
        # Before the lock, for it may take long.
        proof = self._proof(delivery) if succeeded else None
        with self._lock:
            if record.runner != delivery.consumer:
                # Nobody has waited, and a success proves nothing. A charge stays, if the message has not come yet.
                record.runner = None
                return None
            record.runner = None
            self._runners.get(delivery.consumer, set()).discard(record)
            copy = record.copy
            if copy is None:
                if succeeded:
                    self._records.drop(key, record)
                    # Unless the id is of another broker than the one that is connected to now.
                    proof = proof if record.strong or not delivery.strong else None
                    self._doubts.add(proof, self._limit)
                return None
            record.succeeded = succeeded
            if copy.consumer != delivery.consumer:
                return None
            self._part(record)
            return copy

    def looked(self, delivery: Delivery) -> bool:
        """Return whether a copy has waited for another consumer's handler: its record is its own from now on."""
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
        """Learn that the copy goes back to the broker: the next one waits for the handler."""
        with self._lock:
            self._lose_copy(record)

    # What is kept.

    def remember(self, delivery: Delivery, record: Record, *, runs: bool = False) -> None:
        """Keep the record until the message comes again; `runs`: a handler has it, and no equal one is to pass it."""
        key = self._key(delivery, record)
        if key is not None:
            with self._lock:
                self._records.add(key, record, self._limit, first=runs)

    def not_rescheduled(self, record: Record) -> None:
        """Learn that the broker does not hold back the message that this is the record of: it may come at any time."""
        key = self.rescheduled.recalled(record)
        if key is not None:
            with self._lock:
                self._records.add(key, record, self._limit)

    def inherit(self, records: Mapping[Hashable, Record]) -> None:
        """Take over what is known of messages with keys of their own, from before this process."""
        with self._lock:
            for key, record in records.items():
                record.strong = True
                self._records.add(key, record, self._limit)

    def poisoned(self, delivery: Delivery, record: Record, until: float) -> None:
        """Keep a verdict that the broker has confirmed: if the connection is lost before `until`, it may come again."""
        key = self._key(delivery, record)
        if key is not None:
            with self._lock:
                self._verdicts.append((key, record, until))
                while len(self._verdicts) > max(0, self._limit):
                    self._verdicts.popleft()

    def forget(self, delivery: Delivery) -> None:
        """Know nothing of this very message any longer, unless a handler has it."""
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
        """Learn where the connection goes. The ids of another broker are others, though they may look the same."""
        with self._lock:
            if epoch != self._doubted:
                # Else a consumer has begun while the others are still to learn of the loss.
                self._held.clear()
            self._records.epoch = epoch
            known, self._address = self._address, address
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
        """Drop the handles of what a consumer held and of what runs there; keep what is known of the messages.

        `epoch`, `age`: as for `lost`. `now` is infinite if only this consumer closes. Then the broker lives and has
        read what was written, so nothing is in doubt; and nobody waits for its handlers.
        """
        closes = now == inf
        if not closes:
            self.lost(now, epoch, age)
            self._doubt([self._proof(each) for each in accepted], [*unsettled, *running])
        with self._lock:
            # What was to be accepted for one of these is in doubt from now on.
            copies = self._lose_copies(consumer)
            if closes:
                for record in self._runners.pop(consumer, ()):
                    record.runner = GONE
        for delivery in (*unsettled, *running, *copies) if closes else ():
            self.gave_back(delivery)
        for delivery in unsettled:
            enter(delivery, "lost")
            if delivery.record is not None:
                self.remember(delivery, delivery.record)
        for delivery in running:
            self._lose_running(delivery, closes=closes)

    def taken_back(self, unsettled: Iterable[Delivery], running: Iterable[Delivery]) -> None:
        """Keep what is known of deliveries that the broker has taken back over a connection that stands."""
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
        """Learn that its last consumer has closed: nobody is still to learn of a loss."""
        with self._lock:
            self._held.clear()

    def _doubt(self, proofs: Iterable[Proof | None], held: Iterable[Delivery]) -> None:
        """Learn of accepts that the broker may not have read before the connection was lost.

        By a producer's bytes they may be known on the next connection only; and not if the broker has sent the same
        bytes twice, and those that are `held` or were given back were not accepted: then they are two messages.
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
                # Equal ids and a lost connection: seldom enough to be computed here.
                for digest in self._held.digests(key):
                    self._doubts.discard(key, digest)

    def _was_given_back(self, key: Hashable, digest: bytes | None) -> bool:
        """Whether the same bytes were given back over the connection that is lost; with the lock."""
        given = self._given_back.digests(key, self._doubted)
        return digest is not None and (given is None or digest in given)

    def gave_back(self, delivery: Delivery, record: Record | None = None) -> None:
        """Learn that a delivery goes back to the broker over a connection that stands; keep what is known of it."""
        if record is not None:
            self.remember(delivery, record)
        # Before the lock, for it may take long.
        proof = self._proof(delivery)
        if proof is not None and proof[1] is not None:
            with self._lock:
                self._given_back.add(proof[0], proof[1], delivery.epoch, self._limit)

    def lost(self, now: float, epoch: int, age: float) -> None:
        """Learn that the connection of this epoch is lost at `now`, which has stood for `age` seconds.

        A source that nobody consumes is told, too: what is known for one connection is not known for the next one.
        """
        with self._lock:
            if epoch != self._doubted:
                self._doubted = epoch
                self._doubts.forget(strong=False)
                self._held.clear()
                self._given_back.lost(epoch)
                if age > RETURN:
                    # What has not come again by now does not: whoever sends it has put it back.
                    self._records.forget_safe(epoch)
            # The loss may have undone these.
            for key, record, until in self._verdicts:
                if now < until:
                    self._records.add(key, record, self._limit)
            self._verdicts.clear()
        for key, record in self.rescheduled.lost(now):
            with self._lock:
                self._records.add(key, record, self._limit)

    def absorb(self, other: MessageHistory) -> None:
        """Take over what a consumer that has closed has left."""
        with other._lock:
            left, verdicts, address = list(other._records), list(other._verdicts), other._address
        self.rescheduled.absorb(other.rescheduled)
        with self._lock:
            self._address = self._address or address
            self._verdicts.extend(verdicts)
            for key, record in left:
                if address not in ("", self._address):
                    # Ids of another broker.
                    record.strong = False
                self._records.add(key, record, self._limit)

    def _key(self, delivery: Delivery, record: Record) -> Hashable | None:
        """Return the key to keep a record by; the record gets a digest, for where that proves nothing."""
        key = delivery.key
        if key is not None and record.digest is None:
            record.digest, record.strong = delivery.digest(), delivery.strong
        return key

    def _proof(self, delivery: Delivery) -> Proof | None:
        """Return by what a copy of an accepted message may be accepted unseen, or None."""
        key = delivery.key
        if key is None or delivery.strong:
            return None if key is None else (key, None)
        return (key, delivery.digest()) if delivery.dated or self.unique_ids else None

    def _part(self, record: Record) -> None:
        """Leave a record to the copy that has waited; with the lock."""
        record.copy = None
        key = self._awaited.pop(record, None)
        if key is not None:
            self._records.drop(key, record)

    def _lose_copy(self, record: Record) -> Delivery | None:
        """Drop the copy that waits for a handler, and return it; with the lock."""
        copy, record.copy = record.copy, None
        key = self._awaited.pop(record, None)
        if copy is not None and record.succeeded:
            # It was to be accepted, and comes again: now that is an accept in doubt.
            self._records.drop(key, record)
            self._doubts.add(self._proof(copy) if record.strong or not copy.strong else None, self._limit)
            copy.record = None
        return copy

    def _lose_copies(self, consumer: int) -> Sequence[Delivery]:
        """Drop the copies that a consumer has, and return them; with the lock."""
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
        """Keep what is known of a message that a handler has, over a connection that is gone; without the lock."""
        record = delivery.record
        assert record is not None, "the engine gives a record to what runs"
        with self._lock:
            record.runner = GONE if closes else delivery.consumer
            record.succeeded = False
            if not closes:
                self._runners.setdefault(delivery.consumer, set()).add(record)
        self.remember(delivery, record, runs=not closes)
