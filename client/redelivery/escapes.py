"""Exceptions that leave a handler or a `with message:` block: failures, ends of the program, ends of its own task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeAlias

from redelivery.core.application_functions import ends_program
from redelivery.errors import RedeliveryError
from redelivery.failure_log import Handled, log_failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from redelivery.core.events import Event

__all__ = ["Begun", "Counting", "Escaped", "begun", "give_up", "judged", "own_end"]

Begun: TypeAlias = "tuple[asyncio.Task[Any], int] | None"

# Stands for an exception that cannot be asked for anything.
_UNTOLD = RedeliveryError("the handler raised an exception that cannot be described")


class Counting(Protocol):
    """Interface of what gave out a message; the dispatcher of its consumer implements it."""

    @property
    def keeps_counts(self) -> bool:
        """True if a ledger keeps the counts of failures over the end of the process."""
        ...

    @property
    def session_state(self) -> object | None:
        """Session of the consumer, or None."""
        ...


class Escaped(Handled, Protocol):
    """Interface of the message whose handler or block has raised; `Message` implements it."""

    def fail(self, cause: BaseException) -> bool:
        """Charge one redelivery."""
        ...

    def give_back(self) -> None:
        """Release the message, unless it is settled."""
        ...


# ---- Failure or end of the program -----------------------------------------------------------------------


def judged(
    message: Escaped,
    error: BaseException,
    source: Counting,
    event_for: Callable[[BaseException], Event | None],
) -> tuple[Event | None, BaseException | None]:
    """Return the event that an exception causes, or the exception that ends the program.

    Where it ends the program, the message is released, or charged where a ledger keeps the count: the next process
    would begin with it again. `event_for` makes the event of a failure; it returns None for a message that is settled.
    """
    ending = error
    try:
        if not ends_program(error):
            log_failure(message, error)
            return event_for(error), None
    except BaseException as broken:  # noqa: BLE001 - raised by the exception itself, when it is asked
        if not ends_program(broken):
            return event_for(_UNTOLD), None
        ending = broken
    give_up(message, ending, source)
    return None, ending


def give_up(message: Escaped, error: BaseException, source: Counting) -> None:
    """Release a message whose handler or block ends the program; charge it where a ledger keeps the count."""
    if source.keeps_counts and source.session_state is None and message.outcome is None:
        message.fail(error)
    else:
        message.give_back()


# ---- Own task --------------------------------------------------------------------------------------------
# A cancellation is no failure if it is the task's own: other code ends the task, whatever message it has.
#
# One of something that the handler or block awaited is a failure as any other.


def begun() -> Begun:
    """Return the task in which a handler or block begins, and how often it has been cancelled; None outside of a task.

    Cancellations that an earlier handler or block has swallowed stay counted.
    """
    task = _task()
    return None if task is None else (task, task.cancelling())


def own_end(error: BaseException, since: Begun) -> bool:
    """True if a handler's or block's own task was cancelled since it began there, or is closed with its loop.

    `since`: None for a plain `with`, at whose begin `begun` was not called. Each cancellation of its task counts then.
    """
    if not issubclass(type(error), (asyncio.CancelledError, GeneratorExit)):
        return False
    now = _task()
    if since is None:
        return now is not None and now.cancelling() > 0
    task, cancelled = since
    return now is not task or task.cancelling() > cancelled


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
