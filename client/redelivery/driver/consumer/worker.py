"""Worker threads: each takes a delivery, runs the handler, feeds the result, and takes the next delivery."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.core.application_functions import FUTURE, GENERATOR, closed, is_unrun
from redelivery.core.delivery import Cause
from redelivery.core.events import Drained
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.escapes import judged
from redelivery.events import WorkerEnded
from redelivery.message import Message, message_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_run import HandlerRun

__all__ = ["HandlerEscape", "Worker", "event_of", "stop_consumer", "unrun"]


# ---- Worker end ------------------------------------------------------------------------------------------
# End of a worker with an error: the error is logged, and its consumer and that consumer's other workers stop.
#
# An exception of a handler is passed on as a value. Futures, generators and tasks cannot carry exceptions that
# Python uses itself: StopIteration, CancelledError, GeneratorExit.


class HandlerEscape(BaseException):
    """Ends a worker: its handler raised `error`, which ends the program, or returned something that cannot be run.

    The message has been settled.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def event_of(message: Message, error: BaseException, dispatcher: Dispatcher) -> Event | None:
    """Return the result to feed for an exception of a handler; None if the handler settled the message itself.

    Raises:
        HandlerEscape: The exception ends the program. The message is released, or charged where a ledger keeps the
            count. The worker must end.
    """
    event, ending = judged(message, error, dispatcher, message.result)
    if ending is not None:
        raise HandlerEscape(ending)
    return event


def stop_consumer(dispatcher: Dispatcher, error: BaseException) -> None:
    """Log why a worker ends, and stop its consumer; prefetched messages go to other consumers of its source.

    Do nothing for a worker that ends because its consumer has stopped already.
    """
    if dispatcher.error is not None and isinstance(error, RedeliveryError):
        return
    text = Cause.of(error).text
    try:
        dispatcher.show((WorkerEnded(dispatcher.events.now(), dispatcher.subscribe, error),))
    finally:
        stopped = error
        if not isinstance(stopped, RedeliveryError):
            stopped = RedeliveryError(f"{dispatcher.subscribe.destination}: a worker has ended: {text}")
            stopped.__cause__ = error
        try:
            # As in a drain, prefetched messages are released; their delivery count does not change.
            dispatcher.feed(Drained())
        finally:
            dispatcher.stop(stopped)


# ---- Worker ----------------------------------------------------------------------------------------------


def attempt(handler: Callable[[Message], object], delivery: Delivery, dispatcher: Dispatcher) -> Event | None:
    """Run the handler on a delivery; return the result to feed, or None if the handler settled the message itself.

    Raises:
        HandlerEscape: The worker must end.
    """
    message = message_for(delivery, dispatcher)
    try:
        result = handler(message)
    except BaseException as error:  # noqa: BLE001 - goes to the policy, or ends the worker
        return event_of(message, error, dispatcher)
    if result is not None and is_unrun(result):
        raise HandlerEscape(unrun(message, result))
    return message.result(None)


def unrun(message: Message, result: object) -> ConfigurationError:
    """Release the message and return the error of the worker.

    Its work is not done: accepting the message could lose it, and a redelivery would end in the same way.
    """
    # First: a coroutine or generator that has begun may raise when it is closed.
    message.give_back()
    kind = closed(result)
    hints = {GENERATOR: "a handler must not yield", FUTURE: "return its result()"}
    hint = hints.get(kind, "use redelivery.connect_async, and await it in the handler")
    return ConfigurationError(
        f"the handler of {message.destination} returned {kind}; {hint}", option="handler"
    )


class Worker:
    """One thread that runs one handler on the deliveries of one dispatcher."""

    def __init__(
        self,
        run: HandlerRun,
        handler: Callable[[Message], object],
        clock: Clock,
        ended: Callable[[Dispatcher, BaseException], None],
    ) -> None:
        self.run = run
        self._handler = handler
        self._clock = clock
        self._ended = ended
        clock.attach()
        self.thread = threading.Thread(target=self._work, name="redelivery-worker", daemon=True)
        self.thread.start()

    @property
    def alive(self) -> bool:
        """True if the worker has not ended."""
        return self.thread.is_alive()

    def _work(self) -> None:
        error: BaseException | None = None
        run, handler = self.run, self._handler
        dispatcher, deadline = run.dispatcher, run.deadline
        watch = dispatcher.events.observed(run, dispatcher.observer_ended)
        if watch is not None:
            handler = watch.handling(handler)
        take, now = dispatcher.take, self._clock.monotonic
        run.thread = threading.get_ident()
        after: Event | None = None
        try:
            while (delivery := take(after, None, watch)) is not None:
                run.since = now()
                run.delivery = delivery
                if deadline is None:
                    after = attempt(handler, delivery, dispatcher)
                else:
                    run.watched()
                    after = attempt(handler, delivery, dispatcher)
                    after = deadline.end(run.took, delivery, after)
                run.delivery = None
        except HandlerEscape as escape:
            error = escape.error
        except BaseException as stopped:  # noqa: BLE001 - the consumer's error, or a fault; `run` raises it
            error = stopped
        if watch is not None:
            dispatcher.run_ended(watch)
        run.delivery = None
        try:
            if error is not None:
                self._ended(dispatcher, error)
        finally:
            self._clock.detach()
