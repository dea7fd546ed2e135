"""Connection that reads dead letters: shown where the broker can show them, else received and released."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from redelivery.core.capabilities import cannot_browse, cannot_spare
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.queue_wildcards import names_queues, refuse_wildcard
from redelivery.dlq.dead_letter_places import dead_letter_places
from redelivery.dlq.dlq_consumer import FIRST, HELD, DeadLetterConsumer
from redelivery.dlq.matching_queues import queues_matching
from redelivery.dlq.own_dead_letter_queues import own_dead_letter_queues
from redelivery.dlq.reached_queues import ReachedQueues
from redelivery.driver.port import ConnectionPort, single
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.dead_letter_map import DeadLetterMap
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.dlq.dead_letter_places import DeadLetterPlaces
    from redelivery.dlq.reached_queues import Reached
    from redelivery.driver.port import PendingSend
    from redelivery.ledger import Ledger
    from redelivery.settings import Settings

__all__ = ["DeadLetterConnection"]

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
