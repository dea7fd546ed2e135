"""Queues that a name reaches on Artemis, asked of its management before a consumer begins.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from redelivery.adapter_support.response_timeout import ResponseTimeout
from redelivery.core.dead_lettering.artemis_named_place import queues_at
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError
from redelivery_amqp.artemis_dialogue import Dialogue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.dead_lettering.artemis_queues import Queue
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.artemis_dialogue import Ask

    Answer = Callable[[RedeliveryError | None], None]

__all__ = ["QueueLists"]

LATE = 5.0
"""Seconds. Artemis answers in milliseconds. A broker whose management has another address never does."""


class QueueLists:
    """Lists of one connection, by the names that were asked for.

    Nothing is said if no answer comes: the user may not ask, or the management is silent.

    Args:
        ask: Asks the broker a question.
        after: Called without the lock after `LATE` seconds without an answer; it calls `give_up`.
    """

    def __init__(self, ask: Ask, after: Callable[[], None]) -> None:
        self._ask = ask
        self._timer = ResponseTimeout(after, LATE)
        self._found: dict[str, Sequence[Queue]] = {}
        self._waiting: dict[str, list[Answer]] = {}
        self.answered = True
        """False: the broker does not answer this user."""

    def of(self, name: str) -> Sequence[Queue] | None:
        """Return the queues of a name by the last answer; None: there is none."""
        return self._found.get(name)

    def ask(self, name: str, then: Answer) -> None:
        """Ask for the queues of a name, and call `then`; with an error if the connection is lost."""
        if not self.answered:
            then(None)
        elif name in self._waiting:
            self._waiting[name].append(then)
        else:
            self._waiting[name] = [then]
            self._timer.asked()
            Dialogue(self._ask, queues_at(Destination.parse(name)), partial(self._end, name)).begin()

    def _end(self, name: str, queues: Sequence[Queue] | None, error: RedeliveryError | None) -> None:
        if queues is not None:
            self._found[name] = queues
        elif isinstance(error, AdapterError):
            self.answered, error = False, None
        waiting = self._waiting.pop(name, [])
        if not self._waiting:
            self._timer.answered()
        for then in waiting:
            then(error)

    def give_up(self) -> None:
        """Wait no longer: nothing has answered in time."""
        self.answered = False
        waiting, self._waiting = self._waiting, {}
        for then in [each for answers in waiting.values() for each in answers]:
            then(None)

    def quiet(self) -> None:
        """End the wait for good: the connection is lost."""
        self._timer.end()
