"""The end of a worker with an error: it is logged, and its consumer stops, so the others of that consumer end too.

What a handler raises travels as a value: an exception that Python itself takes for a signal (StopIteration,
CancelledError, GeneratorExit) must not be carried by a future, a generator or a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.events import Drained
from redelivery.errors import RedeliveryError
from redelivery.events import WorkerEnded
from redelivery.failure_log import log_failure

if TYPE_CHECKING:
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.message import Message

__all__ = ["HandlerEscape", "judged", "stop_consumer"]


class HandlerEscape(BaseException):
    """Ends a worker: its handler raised `error`, which is no failure, or returned what cannot be run.

    The message has been released.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def judged(message: Message, error: BaseException) -> Event | None:
    """Return what is fed for an exception of a handler; None if the handler settled the message itself.

    Raises:
        HandlerEscape: it is no `Exception`, so the message is released, and the worker ends.
    """
    try:
        if isinstance(error, Exception):
            log_failure(message, error)
            return message.result(error)
    except BaseException as broken:  # noqa: BLE001 - of an exception that cannot be looked at
        message.give_back()
        raise HandlerEscape(broken) from error
    message.give_back()
    raise HandlerEscape(error)


def stop_consumer(dispatcher: Dispatcher, error: BaseException) -> None:
    """Log why a worker ends, and stop its consumer: what it holds goes to other consumers of its source.

    A worker that ends because its consumer has stopped already adds nothing to that.
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
            # As a drain does: what was prefetched goes back uncounted.
            dispatcher.feed(Drained())
        finally:
            dispatcher.stop(stopped)
