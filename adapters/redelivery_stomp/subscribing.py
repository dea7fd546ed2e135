"""How a consumer begins: its dead letters are asked about, then it is subscribed; one consumer after the other.

Artemis handles what it has read behind a frame that it refuses, although it ends the connection over that one: a
SUBSCRIBE there makes a consumer that outlives the connection, and holds what it is given until the broker is restarted
(measured: docs/measured-stomp.md). So nothing is written behind a question of a beginning before that is answered.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING

from redelivery.adapter import Subscribed
from redelivery.adapter_support.response_timeout import SILENT, ResponseTimeout
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError
from redelivery_stomp.delivery import Subscription
from redelivery_stomp.headers import subscribe_headers
from redelivery_stomp.transactions import aborted

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.adapter import Sink
    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError
    from redelivery_stomp.connection import StompConnection

__all__ = ["SubscribeQueue", "Subscribing", "WindowWidening"]


class SubscribeQueue:
    """Consumers of one connection that have not begun. Only used with the link's `order`, and when it is over.

    `over` is called when one of them has had no answer for so long that the others would wait for ever.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self._waiting: deque[Subscribing | WindowWidening] = deque()
        self._busy = False
        self._patience = ResponseTimeout(over, silent=SILENT)
        self.doubted: dict[
            str, list[Subscribing]
        ] = {}  # consumers whose check proves nothing, by destination

    def add(self, beginning: Subscribing | WindowWidening) -> None:
        """Let it begin, now or when the others have been answered."""
        self._waiting.append(beginning)
        if not self._busy:
            self.next()

    def next(self) -> None:
        """Let the next one begin: the one before has been answered."""
        self._busy = False
        while self._waiting and not self._busy:
            self._busy = self._waiting.popleft().ask()
        if self._busy:
            self._patience.asked()
        else:
            self._patience.answered()

    def heard(self) -> None:
        """The broker has answered something: it reads."""
        self._patience.heard()

    def quiet(self) -> None:
        """Nobody waits any longer: the connection is being closed."""
        self._patience.answered()

    def end(self, error: RedeliveryError) -> None:
        """The connection is over: tell those of which the broker has not heard."""
        self._patience.answered()
        waiting = list(self._waiting)  # at once: another thread may be adding one
        self._waiting.clear()
        for each in waiting:
            each.answer(error)


class Subscribing:
    """One consumer's. The answers come on the reading thread, which writes what follows: that never waits."""

    def __init__(self, link: StompConnection, command: Subscribe, sink: Sink, checked: set[str]) -> None:
        """`checked`: destinations that have been found to take our messages; it is added to."""
        self._link, self._command, self._sink, self._checked = link, command, sink, checked
        self._refused = False
        self._answered = False  # whether the check is
        self._doubtful = False  # whether its answer proves nothing
        self._subscription = Subscription(command, link.epoch, link.profile, link.version)
        link.subscriptions.begin(self._subscription.identity, self._subscription)

    def ask(self) -> bool:
        """Write the first frames. Return False if the consumer has ended before."""
        if self._subscription.ended:
            return False
        destination = self._command.dead_letter
        if destination is None or destination in self._checked:
            self._subscribe()
        elif destination in self._link.turns.doubted:
            self._doubt(destination)  # it has been asked about on this connection
            self._subscribe()
        else:
            self._check(destination)
            return True
        return self._link.profile.in_turn

    def _subscribe(self) -> None:
        subscription = self._subscription
        subscription.asked = True
        headers = subscribe_headers(subscription, subscription.identity)
        self._link.request(b"SUBSCRIBE", headers, self.answer)

    def answer(self, error: RedeliveryError | None) -> None:
        """Take the answer to the SUBSCRIBE."""
        if isinstance(error, AdapterError):
            self._subscription.ended = True  # there is none to unsubscribe
            self._refuse(self._reason(error))
        elif not self._refused:
            self._sink(Subscribed(self._command.consumer, error))
            if error is None:
                self._share()
        if self._link.profile.in_turn:
            self._next(error)

    def _share(self) -> None:
        """Begin the other subscriptions of a window that is too wide for one."""
        link, subscription, share = self._link, self._subscription, self._link.profile.share
        if share is None or not self._command.existing or self._command.browse:
            return
        with link.order:
            for number in range(1, ceil(self._command.window / share)):
                link.turns.add(WindowWidening(link, subscription, f"{subscription.identity}.{number}"))

    def _reason(self, error: AdapterError) -> str:
        command, profile = self._command, self._link.profile
        refused = f"the broker refused a consumer of {command.destination}"
        if self._doubtful and not profile.names(str(error), profile.pattern(command.destination)):
            # On a channel that is dead over the check, RabbitMQ's first word may be "Processing error".
            refused += f", or its dead-letter destination {command.dead_letter}"
        return f"{refused}: {error}"

    def _refuse(self, reason: str) -> None:
        if not self._refused:
            self._refused = True
            self._sink(Subscribed(self._command.consumer, AdapterError(reason)))

    def _next(self, error: RedeliveryError | None) -> None:
        _let_next(self._link, error)

    # The check of its dead letters.

    def _check(self, destination: str) -> None:
        """Find out whether messages may be sent there, without sending one: in a transaction that is aborted.

        The brokers check the permission, and make the queue where they may, when they see the SEND. RabbitMQ gives a
        SEND in a transaction no receipt before its COMMIT, and checks the right to declare the queue only.
        """
        # Receipts come in the order of the requests; an error on the SEND answers for both.
        link = self._link
        own = None if link.profile.declares else link.receipt(self._sent)
        receipt = link.receipt(self._checked_by, address=link.profile.address(destination))
        name = f"check{link.epoch}-{self._command.consumer}"
        link.write(aborted(link.profile, name, Outgoing(destination, b""), own, receipt))

    def _sent(self, error: RedeliveryError | None) -> None:
        if error is not None:
            self._checked_by(error)

    def _checked_by(self, error: RedeliveryError | None) -> None:
        if self._answered:
            return
        self._answered = True
        link, destination = self._link, self._command.dead_letter
        assert destination is not None
        if isinstance(error, AdapterError):
            self.bad_dead_letters(error)
            self._next(error)
        elif error is not None:
            self.answer(error)
        else:
            if link.profile.declares:
                # RabbitMQ's declaration runs beside its answers: the ERROR may still come, or be lost with the
                # connection, so the next one asks again. Meanwhile its channel brings no message.
                self._doubt(destination)
            else:
                self._checked.add(destination)
            self._go_on()

    def _doubt(self, destination: str) -> None:
        """Have a refusal that still comes stop this consumer, and all others whose dead letters go there."""
        link, self._doubtful = self._link, True
        doubted = link.turns.doubted.get(destination, [])
        doubted = link.turns.doubted[destination] = [one for one in doubted if not one.ended]
        doubted.append(self)

        def refused(error: RedeliveryError | None) -> None:
            for one in link.turns.doubted.pop(destination, []):
                one.bad_dead_letters(error)

        link.doubt(refused, link.profile.address(destination))

    @property
    def ended(self) -> bool:
        """Whether the consumer has ended."""
        return self._subscription.ended

    def _go_on(self) -> None:
        with self._link.order:  # the consumer's end does not come between
            ended = self._subscription.ended
            if not ended:
                self._subscribe()
            if ended or not self._link.profile.in_turn:
                self._link.turns.next()

    def bad_dead_letters(self, error: RedeliveryError | None) -> None:
        """Refuse the consumer over its dead letters."""
        if not self._subscription.asked:
            self._subscription.ended = True
        self._refuse(f"the dead-letter destination {self._command.dead_letter} cannot be used: {error}")


class WindowWidening:
    """A further subscription of a consumer that has begun: a SUBSCRIBE too, so it waits for its turn as well."""

    def __init__(self, link: StompConnection, source: Subscription, identity: str) -> None:
        self._link, self._source, self._identity = link, source, identity

    def ask(self) -> bool:
        """Write it. Return False if the consumer has ended before."""
        if self._source.ended:
            return False
        link, identity = self._link, self._identity
        link.subscriptions.begin(identity, self._source)  # not before: there would be none to unsubscribe
        link.request(b"SUBSCRIBE", subscribe_headers(self._source, identity), self.answer)
        return link.profile.in_turn

    def answer(self, error: RedeliveryError | None) -> None:
        """Take the answer: refused, there is less room, and no more to be done about it."""
        if self._link.profile.in_turn:
            _let_next(self._link, error)


def _let_next(link: StompConnection, error: RedeliveryError | None) -> None:
    """Let the next one begin; not on a connection that its broker ends over what it has refused."""
    if not (link.over or (link.profile.closes and isinstance(error, AdapterError))):
        with link.order:
            link.turns.next()
