"""Questions to Artemis' management, some at a time, until an answer is found.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redelivery.errors import AdapterError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from redelivery.core.artemis_management import Question
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.management_link import Reply

    Ask = Callable[[Question, Callable[[Reply], None]], None]

__all__ = ["Dialogue"]

Found = TypeVar("Found")


class Dialogue(Generic[Found]):
    """One dialogue. `asking` yields the questions; `end` gets what it returns, or the error.

    An AdapterError: the broker refuses to answer this user. A TransportError: the connection is lost.
    """

    def __init__(
        self,
        ask: Ask,
        asking: Generator[tuple[Question, ...], Sequence[Any], Found],
        end: Callable[[Found | None, RedeliveryError | None], None],
    ) -> None:
        self._to = ask
        self._asking = asking
        self._end = end
        self._replies: dict[Question, Reply] = {}

    def begin(self) -> None:
        """Ask the first questions."""
        self._ask(next(self._asking))

    def _ask(self, questions: tuple[Question, ...]) -> None:
        self._replies = {}

        def answered(question: Question, reply: Reply) -> None:
            self._replies[question] = reply
            if len(self._replies) == len(questions):
                self._go_on([self._replies[each] for each in questions])

        for each in questions:
            self._to(each, lambda reply, each=each: answered(each, reply))  # type: ignore[misc]

    def _go_on(self, replies: list[Reply]) -> None:
        error = next((each.error for each in replies if each.error is not None), None)
        if isinstance(error, TransportError):
            self._end(None, error)
            return
        try:
            if error is None:
                questions = self._asking.send([each.body for each in replies])
            else:
                questions = self._asking.throw(error)
        except StopIteration as end:
            self._end(end.value, None)
        except AdapterError as refusal:
            self._end(None, refusal)
        else:
            self._ask(questions)
