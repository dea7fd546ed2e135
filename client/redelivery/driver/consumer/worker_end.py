"""End of a worker with an error: the error is logged, and its consumer and that consumer's other workers stop.

An exception of a handler is passed on as a value. Futures, generators and tasks cannot carry exceptions that Python
uses itself: StopIteration, CancelledError, GeneratorExit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.events import Drained
from redelivery.core.program_end import ends_program
from redelivery.errors import RedeliveryError
from redelivery.events import WorkerEnded
from redelivery.failure_log import log_failure

if TYPE_CHECKING:
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.message import Message

__all__ = ["HandlerEscape", "give_up", "judged", "stop_consumer"]

# Stands for an exception that cannot be asked for anything.
_UNTOLD = RedeliveryError("the handler raised an exception that cannot be described")


class HandlerEscape(BaseException):
    """Ends a worker: its handler raised `error`, which ends the program, or returned something that cannot be run.

    The message has been settled.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def judged(message: Message, error: BaseException, dispatcher: Dispatcher) -> Event | None:
    """Return the result to feed for an exception of a handler; None if the handler settled the message itself.

    Raises:
        HandlerEscape: The exception ends the program. The message is released, or charged where a ledger keeps the
            count: the next process would begin with it again. The worker must end.
    """
    ending = error
    try:
        if not ends_program(error):
            log_failure(message, error)
            return message.result(error)
    except BaseException as broken:  # noqa: BLE001 - raised by the handler's exception itself, when it is asked
        if not ends_program(broken):
            return message.result(_UNTOLD)
        ending = broken
    give_up(message, ending, dispatcher)
    raise HandlerEscape(ending)


def give_up(message: Message, error: BaseException, dispatcher: Dispatcher) -> None:
    """Release a message whose handler ends its worker; charge it where a ledger keeps the count."""
    if dispatcher.keeps_counts and dispatcher.session_state is None and message.outcome is None:
        message.fail(error)
    else:
        message.give_back()


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
