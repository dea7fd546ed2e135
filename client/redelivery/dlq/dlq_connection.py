"""Connection that reads dead letters: shown where the broker can show them, else received and released."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from redelivery.core.capabilities import cannot_browse, cannot_spare
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.delivery import Cause
from redelivery.core.destination import Destination
from redelivery.core.events import Confirmed, Deferred, Discarded, Poisoned
from redelivery.core.policy.wildcards import check_wildcards, is_pattern, names_queues, refuse_wildcard
from redelivery.dlq.dead_letter import DeadLetter, read_letter
from redelivery.dlq.dead_letter_places import (
    ReachedQueues,
    dead_letter_places,
    own_dead_letter_queues,
    queues_matching,
)
from redelivery.driver.port import ConnectionPort, ConsumerHooks, single
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.dlq.dead_letter import LedgerCauses
    from redelivery.dlq.dead_letter_places import DeadLetterPlaces, Reached
    from redelivery.dlq.selection import Selection
    from redelivery.driver.port import ConsumerPort, PendingSend
    from redelivery.ledger import Ledger
    from redelivery.settings import Settings

__all__ = ["IDLE", "DeadLetterConnection", "DeadLetterConsumer", "QueueBrowser"]


# ---- Dlq consumer ----------------------------------------------------------------------------------------
# Consumer of dead letters: each is kept until the end, redriven, or purged.

# Dead letters kept at once, at most: RabbitMQ's prefetch ends at 65,535.
HELD = 60_000
# Bytes of their bodies, about; the broker has them in its memory as well.
HELD_BYTES = 256 * 1024 * 1024
# Dead letters kept at first where a window is given once, because all of it is sent at once; then so many times more.
FIRST, WIDER = 1000, 8
# Seconds. Longer than any run: kept dead letters are released at its end.
LONG = 7 * 86400.0
_KEEP, _SEND, _DROP = Cause("kept"), Cause("redriven"), Cause("purged")


class DeadLetterConsumer:
    """Takes dead letters one by one. `most`: number it can keep."""

    def __init__(self, redrive: Redrive, most: int = HELD) -> None:
        self.redrive = redrive
        self.most = most
        self.held = 0
        self.held_bytes = 0
        self.confirmed: Callable[[Delivery], None] | None = None
        """Callback for each message whose copy the broker has confirmed; runs on the adapter's thread."""
        self._consumer: ConsumerPort | None = None

    def hooks(self, *, keeps_history: bool) -> ConsumerHooks:
        """Return the hooks in which it differs from an application's consumer.

        Expired dead letters are read as well. History is neither taken over from other runs nor left to them. The
        report has the number of redriven messages; the log has no line for each.
        """
        return ConsumerHooks(
            shares_history=False,
            keeps_history=keeps_history,
            logs_results=False,
            expires=False,
            confirmed=self.answered,
        )

    def started(self, consumer: ConsumerPort) -> None:
        """Use the consumer that was started with these hooks."""
        self._consumer = consumer

    @property
    def port(self) -> ConsumerPort:
        """Port of the consumer."""
        assert self._consumer is not None, "started"
        return self._consumer

    def answered(self, event: Confirmed) -> None:
        """Handle the broker's answer to a copy."""
        if event.error is not None:
            self.redrive.refusal = event.error
        elif self.confirmed is not None:
            self.confirmed(event.delivery)

    @property
    def capabilities(self) -> Capabilities | None:
        """Capabilities of the broker for the queue."""
        return self.port.engine.state.capabilities

    @property
    def release_limit(self) -> int | None:
        """Releases after which the broker drops a message of the queue; None: no limit."""
        able = self.capabilities
        return None if able is None else able.release_limit

    @property
    def unconfirmed(self) -> int:
        """Number of copies that the broker has not confirmed."""
        return self.port.engine.load.unconfirmed

    def take(self, timeout: float) -> Delivery | None:
        """Return the next dead letter; None after `timeout` seconds. Raises what stopped the consumer."""
        return self.port.take(None, timeout)

    def keep(self, delivery: Delivery) -> None:
        """Keep it until the consumer closes, which releases it."""
        self.held += 1
        self.held_bytes += len(delivery.body)
        self.port.settle(delivery, Deferred(delivery, LONG, _KEEP))

    @property
    def full(self) -> str | None:
        """Reason why it can keep no more; None: it can."""
        if self.held < self.most and self.held_bytes < HELD_BYTES:
            return None
        return f"{self.held} dead letters ({self.held_bytes / 1024**2:.1f} MiB) that stay are kept in memory"

    def wider(self) -> int:
        """Return how many the next consumer can keep: more, if this one was full and they were not too large."""
        if self.held < self.most:
            return self.most
        return min(HELD, self.most * WIDER, HELD_BYTES // max(1, self.held_bytes // self.held))

    def send_on(self, deliveries: Sequence[Delivery], *, together: bool) -> list[Delivery]:
        """Send copies of them to their destinations, `together` in one transaction; a retry sends each by itself.

        Return them without those whose connection was lost before: the broker redelivers these.
        """
        self.port.settle_many([Poisoned(delivery, _SEND) for delivery in deliveries], together=together)
        return [delivery for delivery in deliveries if delivery.outcome != "stale"]

    def drop(self, delivery: Delivery) -> bool:
        """Accept it. False if the connection was lost before: the broker redelivers it."""
        return self.port.settle(delivery, Discarded(delivery, _DROP)) != "stale"

    def wait_below(self, pending: int) -> None:
        """Wait until fewer than so many copies are unconfirmed. Raises what ended the consumer."""
        self.port.wait_unconfirmed(pending)


# ---- Dlq connection --------------------------------------------------------------------------------------

# Brokers of which each node of a cluster, or network, has queues of its own.
APART = ("artemis", "activemq")
# Prefetched dead letters at most: some brokers count a delivery for each that a kill releases.
CREDIT = 200
# Messages of a first window in bytes; kept dead letters widen it.
WIDE = 1000


class DeadLetterConnection:
    """A connection for consumers of dead letters. Its ledger is only read: their deliveries are no attempts."""

    def __init__(
        self,
        uri: str,
        *,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
        despite_limit: bool = False,
        dead_letters: DeadLetterMap | None = None,
    ) -> None:
        self._despite_limit = despite_limit
        self._port = ConnectionPort(
            uri, ledger=ledger, clock=clock, dead_letters=dead_letters, made_by="redelivery.dead_letters"
        )
        self._reached = ReachedQueues(uri, self._port.clock)
        self.full: str | None = None
        """Reason why the last look was not complete; None: it was."""
        self.passed_over: list[str] = []
        """Queues of subscribers that a pattern means, too: they are not looked at."""

    def __enter__(self) -> Self:
        """Connect. Raises as `ConnectionPort.__enter__` does."""
        self._port.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close; the broker takes the kept dead letters back."""
        self._reached.close()
        self._port.close()

    @property
    def settings(self) -> Settings:
        """Settings of the URI."""
        return self._port.settings

    @property
    def ledger(self) -> Ledger | None:
        """Ledger of the consumer: it has the causes of messages that the broker dead-lettered itself."""
        return self._port.ledger

    @property
    def clock(self) -> Clock:
        """Clock of the connection."""
        return self._port.clock

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the broker. Raises ConfigurationError outside of `with`."""
        return self._port.capabilities

    @property
    def one_of_several(self) -> str | None:
        """Address of the node, where the URI names several and each of them may keep messages of its own; else None.

        A name with several addresses names several nodes: the text of the one that was used has an IP address.
        """
        address, named = self._port.address, self.settings.endpoints
        several = address != str(named[0]) or len(named) > 1
        return address if several and self.capabilities.broker in APART else None

    @property
    def first(self) -> int:
        """Number of dead letters kept at first: a broker sends all of a window that is given once."""
        able = self.capabilities
        return HELD if able.flow or able.window_in_bytes else FIRST

    def queues(self, name: str) -> Sequence[str]:
        """Return the queues that a name means: itself, or where the broker lists its queues, those that match now.

        Raises:
            AdapterError: The broker does not list its queues to this user.
            ConfigurationError: The broker has no wildcards for queues.
            TransportError: The connection was lost, or the broker does not answer.
        """
        destination, able = single(name), self.capabilities
        if destination.kind == "queue":
            # `DL*` is no pattern: some brokers would make a queue of that name, and show nothing.
            check_wildcards(destination)
        if able.copies_by_wildcard and names_queues(destination, able):
            found = queues_matching(self._port, destination)
            self.passed_over += [each for each in found.subscribers if each not in self.passed_over]
            return found.names
        refuse_wildcard(destination, able)
        return (name,)

    def queues_of(self, places: DeadLetterPlaces) -> list[str]:
        """Return the queues that places mean now, each once. Raises as `queues` does."""
        return list(dict.fromkeys(queue for place in places.queues for queue in self.queues(place)))

    def places(self, origins: Sequence[str]) -> DeadLetterPlaces:
        """Return where the dead letters of the URI's settings are; `origins`: only of these. The broker is asked.

        Raises:
            ConfigurationError: No place is known, and the text says why.
            TransportError: The connection was lost, or the broker does not answer.
        """
        found = dead_letter_places(self.settings, self.capabilities, origins)
        return found.and_own(*self.own_queues(origins)) if found.own else found

    def own_queues(self, origins: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Return the queues in which dead letters are by the broker's own settings; see `own_dead_letter_queues`."""
        # Over STOMP a refused question ends the connection that it is asked on.
        return own_dead_letter_queues(self._reached.connected(), origins)

    def reached(self, destination: str) -> Reached:
        """Return where messages for a destination are sent, and why the broker may drop them there."""
        return self._reached.of(destination, self.capabilities)

    def shown(self, queue: str) -> Iterator[Delivery]:
        """Yield the messages of a queue; they stay there.

        Raises:
            ConfigurationError: This broker cannot show a queue without taking from it.
        """
        if not self.capabilities.browse:
            raise ConfigurationError(cannot_browse(self.capabilities), option="take")
        return self._port.browse(queue, window=CREDIT)

    def taken(self, queue: str, idle: float) -> Iterator[Delivery]:
        """Yield the messages of a queue by receiving them; release them at the end.

        The end: no message for `idle` seconds, both before and after the broker has answered a request about the queue.

        Raises:
            ConfigurationError: The broker drops messages of this queue after a number of looks, or may do so, and
                `despite_limit` was not given.
        """
        asked, self.full = False, None
        with self.taker(queue, Redrive(""), spares=True) as taker:
            while (full := taker.full) is None:
                delivery = taker.take(idle)
                if delivery is not None:
                    asked = False
                    yield delivery
                    taker.keep(delivery)
                elif asked:
                    return
                else:
                    self.ask(queue)
                    asked = True
            self.full = full

    def send(self, message: Outgoing) -> PendingSend:
        """Send a message, after a reconnect if that is needed.

        Raises:
            TransportError: There is no connection in time.
        """
        return self._port.send_connected(message)

    def flush(self) -> None:
        """Return when all settlements so far are written, also those that another thread is writing."""
        self._port.flush()

    def ask(self, queue: str) -> None:
        """Make a round trip to the broker about a queue: a silent broker may only be slow.

        When it answers, it has also read all settlements made before. A second consumer is opened and closed for that;
        the messages it receives are released, and go to the first one.

        Raises:
            TransportError: The broker does not answer.
        """
        self.flush()
        with self.taker(queue, Redrive(""), credit=1, held=0):
            pass

    @contextmanager
    def taker(
        self,
        queue: str,
        redrive: Redrive,
        selector: str | None = None,
        *,
        credit: int = CREDIT,
        held: int = HELD,
        recalls: bool = True,
        spares: bool = False,
    ) -> Generator[DeadLetterConsumer]:
        """Consume a dead-letter queue, and keep `held` messages at most; release them at the end.

        `recalls`: True: a message that is redelivered after a reconnect is recognised by its key; False: the caller
        recognises it. `spares`: True: it gives messages back; False: none, or no more than it must.
        """
        able, spares = self.capabilities, spares and not self._despite_limit
        # Where there is flow the adapter asks the broker about the queue.
        if spares and not able.flow and (why := cannot_spare(queue, able, known=False)) is not None:
            raise ConfigurationError(why, option="despite_limit")
        refuse_wildcard(single(queue), able)
        # More than are kept: unconfirmed copies count as well, and the engine would warn of redelivery.maxParked.
        settings = replace(self.settings, credit=credit, max_parked=held + credit, ordering="non_blocking")
        plan = self._port.plan(queue, {"selector": selector}, settings=settings, route=redrive)
        plan = plan.for_dead_letters(spared=spares).with_window(
            credit + (WIDE if able.window_in_bytes else held)
        )
        taker = DeadLetterConsumer(redrive, held)
        with self._port.consume(plan, taker.hooks(keeps_history=recalls)) as consumer:
            taker.started(consumer)
            yield taker


# ---- Queue browser ---------------------------------------------------------------------------------------
# Reader of the messages on a queue, which stay there: for `list`, `summary`, `export`, and Spark's browse.

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
