"""Checks before redelivery by the broker (`redelivery.scheduler=broker`): which consumers cannot use it, and the probe.

A broker that cannot hold a message back delivers it at once, without an error. The probe finds that out before the
consumer starts: it sends a delayed message to a queue of its own, and the message must not arrive early.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Protocol

from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.commands import Accept, Credit, Subscribe, Unsubscribe
from redelivery.core.events import Arrived
from redelivery.core.outgoing import Outgoing
from redelivery.core.policy.wildcards import is_pattern
from redelivery.driver.connection.sends import end
from redelivery.errors import (
    AdapterError,
    BrokerUnavailable,
    ConfigurationError,
    RedeliveryError,
    TransportError,
    another,
)
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redelivery.adapter import Browsed
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.destination import Destination
    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.driver.connection.browser import Browsers
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.settings import Settings

__all__ = ["DELAY", "DelayProbe", "DelayProbes", "rescheduling_for"]

SCHEDULER = "redelivery.scheduler"
# Seconds that the broker must hold the probe message back.
DELAY = 1.0
# Seconds that the probe message may arrive early: the broker has another clock.
INEXACT = 0.05
# Seconds after the due time within which the probe message must arrive.
LATEST = 20.0
# Seconds after the broker's confirmation within which a message that is not held back has arrived.
SETTLED = 0.5
# Seconds until the probe message expires, if no consumer has taken it.
LIVES = 60.0
# Seconds until the next probe, if a node that starts or stops has refused one.
AGAIN = 5.0
MARK = "redeliveryProbe"


def rescheduling_for(
    destination: Destination,
    options: ConsumerOptions,
    settings: Settings,
    capabilities: Capabilities,
    *,
    transacted: bool,
) -> BrokerRedelivery:
    """Return the maker of a consumer's delayed copies. Raises ConfigurationError if there can be none."""
    why = None
    if capabilities.reschedule == "none":
        needs = capabilities.reschedule_needs
        why = f"{capabilities.broker} cannot hold a message back over this protocol{f': {needs}' if needs else ''}"
    elif destination.kind != "queue":
        why = f"{destination}: only messages of a queue can be sent again; a topic has other subscribers"
        if destination.is_temporary:
            why = f"{destination}: a temporary queue may be gone before its message is due"
        elif destination.kind == "native":
            why = f"{destination}: it may be a queue or a topic; consume it as queue://"
    elif is_pattern(destination):
        why = f"{destination}: a copy may go to other queues of the wildcard too; make a consumer for each queue"
    elif (options.get("ordering") or "non_blocking") != "non_blocking":
        why = f"ordering={options.get('ordering')} cannot be kept: a copy goes to the end of the queue"
    elif options.get("selector") is not None:
        why = f"selector={options.get('selector')!r}: a copy need not match it, and would stay on the queue"
    elif transacted:
        why = "a transacted session may roll back a message whose copy was sent already"
    if why is not None:
        raise ConfigurationError(f"{SCHEDULER}=broker: {why}", option=SCHEDULER)
    return BrokerRedelivery(
        str(destination),
        uuid.uuid4().hex,
        maximum_deferrals=settings.maximum_deferrals,
        empty_is_whole=settings.empty_body == "forward",
    )


class ProbeLink(Protocol):
    """Interface of a connection's driver for its probes; `ConnectionDriver` implements it."""

    browsers: Browsers
    capabilities: Capabilities | None

    @property
    def up(self) -> bool:
        """True if the connection is up."""
        ...

    @property
    def subscribe_timeout(self) -> float:
        """Seconds for a first subscription; `inf`: a start waits for a broker that refuses it for now."""
        ...

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands on this thread."""

    def send(self, message: Outgoing) -> Future[None]:
        """Send; the future ends when the broker has confirmed or refused the message, or the connection is lost."""
        ...

    def standing(self) -> Future[None]:
        """Return a future that ends when the connection is up, or with an error when it is given up or closed."""
        ...


class DelayProbe:
    """One message that the broker must hold back, on a queue next to the one that is to be consumed."""

    def __init__(
        self, link: ProbeLink, number: int, destination: str, able: Capabilities, clock: Clock
    ) -> None:
        self._link = link
        self._able = able
        self._clock = clock
        self._name = uuid.uuid4().hex
        # The queue's name is unique without selectors: no other probe's message may arrive here.
        alone = "" if able.selectors else f".{self._name}"
        self._queue = f"{destination}.redelivery-probe{alone}"
        self._number = number
        self._changed = threading.Condition()
        # True once the subscription is confirmed: an arrival would be seen.
        self._begun = False
        # When the broker confirmed the message.
        self._taken: float | None = None
        self._arrived: tuple[Delivery, float] | None = None
        self._error: RedeliveryError | None = None

    # Called on the adapter's thread, as for a browser.

    def feed(self, event: Arrived | Browsed) -> None:
        """Record the arrival of the message."""
        if isinstance(event, Arrived):
            with self._changed:
                self._arrived = event.deliveries[0], self._clock.monotonic()
                self._clock.notify(self._changed)

    def begun(self, able: Capabilities | None) -> None:  # noqa: ARG002 - the probe's own queue
        """Record that the broker has confirmed the subscription."""
        with self._changed:
            self._begun = True
            self._clock.notify(self._changed)

    def fail(self, error: RedeliveryError) -> None:
        """End the probe with an error: nothing more will arrive."""
        with self._changed:
            self._error = self._error or error
            self._clock.notify(self._changed)

    # Called on a thread of its own.

    def carry_out(self) -> None:
        """Send the message and wait for its arrival.

        Raises:
            AdapterError: The broker does not hold messages back, or refuses the probe's subscription or message.
            TransportError: The connection was lost.
        """
        self._link.browsers[self._number] = self
        # An earlier loss is not reported to a new browser.
        if not self._link.up:
            del self._link.browsers[self._number]
            raise TransportError("not connected: the connection was lost")
        selector = f"{MARK} = '{self._name}'" if self._able.selectors else None
        subscribe = Subscribe(self._number, self._queue, window=1, selector=selector, private=True)
        try:
            self._link.write((subscribe, Credit(self._number, 1)))
            # A message that arrives at the broker before the subscription does would seem to be held back.
            if not self._wait(self._clock.monotonic() + LATEST, lambda: self._begun):
                raise self._slow("did not confirm a consumer of")
            began = self._clock.monotonic()
            self._link.send(self._message()).add_done_callback(self._answered)
            arrived = self._arrival(began + DELAY - INEXACT)
            if arrived is None and self._able.reschedule_proof == "arrival":
                arrived = self._arrival(began + DELAY + LATEST)
            elif arrived is None:
                if not self._wait(began + DELAY + LATEST, lambda: self._taken is not None):
                    raise self._slow("did not confirm a message to")
                arrived = self._arrival((self._taken or began) + SETTLED)
            self._judge(arrived, began)
        finally:
            if self._arrived is not None:
                self._link.write((Accept((self._arrived[0],)),))
            self._link.write((Unsubscribe(self._number),))
            del self._link.browsers[self._number]

    def _message(self) -> Outgoing:
        return Outgoing(
            self._queue,
            b"",
            headers={MARK: self._name},
            delay=DELAY,
            expires_at=self._clock.time() + LIVES,
            persistent=False,
            private=True,
        )

    def _answered(self, answer: Future[None]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, (AdapterError, TransportError)):
            self.fail(error)
        else:
            with self._changed:
                self._taken = self._clock.monotonic()
                self._clock.notify(self._changed)

    def _arrival(self, until: float) -> float | None:
        """Return when the message arrived, or None if it has not until that time. Raises the error of the probe."""
        self._wait(until, lambda: self._arrived is not None)
        return None if self._arrived is None else self._arrived[1]

    def _wait(self, until: float, happened: Callable[[], bool]) -> bool:
        """Wait until that time; return True if it has happened. Raises the error of the probe."""
        with self._changed:
            while not happened():
                if self._error is not None:
                    raise self._failed(self._error)
                left = until - self._clock.monotonic()
                if left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    def _judge(self, arrived: float | None, began: float) -> None:
        needs = f": it needs {self._able.reschedule_needs}" if self._able.reschedule_needs else ""
        if arrived is not None and arrived - began < DELAY - INEXACT:
            raise AdapterError(
                f"{SCHEDULER}=broker: {self._able.broker} did not hold a message back for {DELAY:g} s, but delivered "
                f"it to {self._queue} after {arrived - began:.2f} s{needs}"
            )
        if arrived is None and self._able.reschedule_proof == "arrival":
            raise AdapterError(
                f"{SCHEDULER}=broker: {self._able.broker} did not deliver a message to {self._queue} within "
                f"{LATEST:g} s after its delay of {DELAY:g} s{needs}"
            )

    def _slow(self, what: str) -> AdapterError:
        broker = self._able.broker
        return AdapterError(f"{SCHEDULER}=broker: {broker} {what} {self._queue} within {LATEST:g} s")

    def _failed(self, error: RedeliveryError) -> RedeliveryError:
        # A send that is refused for now is no loss: the connection stands, and the next probe would begin at once.
        for_now = isinstance(error, BrokerUnavailable)
        if isinstance(error, TransportError) and not for_now:
            return another(error)
        needs = f"; it needs {self._able.reschedule_needs}" if self._able.reschedule_needs else ""
        passes = error.passes if isinstance(error, AdapterError) else for_now
        return AdapterError(
            f"{SCHEDULER}=broker: the probe with {self._queue} failed: {error}{needs}", passes=passes
        )


class DelayProbes:
    """Probes of one connection, and their results: each is made once."""

    def __init__(self, link: ProbeLink, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._proved: set[str] = set()

    def before(self, dispatcher: Dispatcher, subscribe: Callable[[Dispatcher], Future[None]]) -> Future[None]:
        """Start a consumer after the broker was found to hold messages back; the future ends with its subscription."""
        able, destination = self._link.capabilities, dispatcher.subscribe.destination
        if able is None or not dispatcher.engine.reschedules or able.reschedule_proof == "certain":
            return subscribe(dispatcher)
        # Broker-J holds messages back only on queues that are configured for it, one by one.
        what = destination if able.reschedule_proof == "held" else ""
        if what in self._proved:
            return subscribe(dispatcher)
        future: Future[None] = Future()
        refusals = count()

        def prove() -> None:
            try:
                DelayProbe(
                    self._link, -dispatcher.subscribe.consumer, destination, able, self._clock
                ).carry_out()
                self._proved.add(what)
                if not (future.done() or dispatcher.closed):  # else no caller waits
                    subscribe(dispatcher).add_done_callback(lambda done: end(future, _error_of(done)))
            except (TransportError, AdapterError) as error:
                if not self._made_again(error, destination, refusals, again):
                    end(future, error)
            except Exception as error:  # noqa: BLE001 - raised in the call that waits for the consumer
                fault = AdapterError(f"internal error: {error!r}")
                end(future, error if isinstance(error, RedeliveryError) else fault)
            finally:
                self._clock.detach()

        def begin() -> None:
            self._clock.attach()
            # A thread of its own: a probe takes a second, and neither front end may block for it.
            threading.Thread(target=prove, name="redelivery-proof", daemon=True).start()

        def again(standing: Future[None]) -> None:
            error = _error_of(standing)
            if error is not None:
                end(future, error)
            elif not (future.done() or dispatcher.closed):
                begin()

        begin()
        return future

    def _made_again(
        self,
        error: TransportError | AdapterError,
        destination: str,
        refusals: Iterator[int],
        again: Callable[[Future[None]], None],
    ) -> bool:
        """Plan another probe after this error; return False if it was the last.

        `refusals` counts those that pass.
        """
        if isinstance(error, TransportError):
            # The probe waits for the next connection, as a subscription does.
            self._link.standing().add_done_callback(again)
            return True
        if not error.passes or self._link.subscribe_timeout < inf:
            return False
        level = logging.INFO if next(refusals) else logging.WARNING
        logger.log(level, "%s: the consumer waits for the broker: %s", destination, error)
        self._clock.call_later(AGAIN, lambda: self._link.standing().add_done_callback(again))
        return True


def _error_of(done: Future[None]) -> RedeliveryError | None:
    error = None if done.cancelled() else done.exception()
    assert error is None or isinstance(error, RedeliveryError), "subscribing ends with no other"
    return error
