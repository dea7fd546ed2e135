"""Worker threads: each takes a delivery, runs the handler, and takes the next with the result in its hand."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.message import Message, log_failure, message_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline

__all__ = ["Worker", "attempt", "is_unrun", "unrun"]


def attempt(handler: Callable[[Message], object], delivery: Delivery, dispatcher: Dispatcher) -> Event | None:
    """Run the handler on a delivery; return the result to feed, or None if the handler settled it itself."""
    message = message_for(delivery, dispatcher)
    try:
        result = handler(message)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises goes to the policy
        log_failure(message, error)
        return message.result(error)
    except BaseException:
        message.give_back()
        raise
    if result is not None and is_unrun(result):
        raise unrun(message, result)
    return message.result(None)


def is_unrun(result: object) -> bool:
    """Whether what a handler returned has yet to be run: anything to be awaited, or a generator of either kind."""
    return inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)


def unrun(message: Message, result: object) -> ConfigurationError:
    """Give the message back: nothing has run, so accepting it would lose it, and a redelivery would be no better."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()  # no warning that it never ran
    message.give_back()
    kind, hint = "a generator", "a handler must not yield"
    if inspect.isawaitable(result):
        kind = "a coroutine" if inspect.iscoroutine(result) else f"an awaitable ({type(result).__name__})"
        hint = "use redelivery.connect_async, and await it in the handler"
    return ConfigurationError(
        f"the handler of {message.destination} returned {kind}, which nobody runs here; {hint}",
        option="handler",
    )


class Worker:
    """One thread that runs one handler on the deliveries of one dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        handler: Callable[[Message], object],
        clock: Clock,
        ended: Callable[[BaseException | None], None],
        overdue: HandlerDeadline | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._handler = handler
        self._clock = clock
        self._ended = ended
        self._overdue = overdue
        clock.attach()
        self.thread = threading.Thread(target=self._work, name="redelivery-worker", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        error: BaseException | None = None
        take, handler, dispatcher = self._dispatcher.take, self._handler, self._dispatcher
        after: Event | None = None
        overdue = self._overdue
        try:
            while (delivery := take(after)) is not None:
                if overdue is None:
                    after = attempt(handler, delivery, dispatcher)
                else:
                    overdue.begin(delivery)
                    after = attempt(handler, delivery, dispatcher)
                    after = overdue.end(delivery, after)
        except RedeliveryError as stopped:
            error = stopped
        except BaseException as escaped:  # noqa: BLE001 - SystemExit and its like end the run, from its own thread
            error = escaped
        finally:
            self._clock.detach()
        self._ended(error)
