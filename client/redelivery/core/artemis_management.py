"""Requests to the management address of ActiveMQ Artemis, and its answers: messages with JSON, over any protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

__all__ = [
    "ANSWERS",
    "PAGE",
    "Question",
    "answer_of",
    "answered",
    "answers_to",
    "repeated",
    "rights",
    "where",
]

Found = TypeVar("Found")

# The answers. A plain subscriber's queue ends with it; of a queue of our own, the default configuration keeps it.
ANSWERS = "redelivery.management"
# Queues in one answer, in which each has about 1 kB. Queues that end between two answers would move others out of both.
PAGE = 10_000
# In its answer, a list over which Artemis 2.40.0 has stumbled: a queue has ended while the list was made.
_STUMBLED = "Cannot invoke "
REPEATS = 9


@dataclass(frozen=True, slots=True)
class Question:
    """One request: an operation of the broker's management, and its arguments."""

    operation: str
    arguments: tuple[Any, ...]

    def message(self, address: str, mark: str) -> Outgoing:
        """Return the message to the management address; `mark` comes back with the answer, as its correlation id."""
        return Outgoing(
            f"native://{address}", json.dumps(self.arguments).encode(), body_kind="text",
            reply_to=f"native://{ANSWERS}", correlation_id=mark, persistent=False,
            headers={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": self.operation},
        )  # fmt: skip


def answers_to(marks: str) -> str:
    """Return the selector for the answers to requests whose marks begin so: others have theirs on the same topic."""
    return f"JMSCorrelationID LIKE '{marks}%'"


def answer_of(body: str | bytes, headers: Mapping[str, Any]) -> Any:
    """Return the value in an answer. Raises AdapterError if the broker has refused, or answers with no JSON.

    It passes if the same request can succeed the next time.
    """
    try:
        value = json.loads(body)[0]
    except (ValueError, LookupError, TypeError):
        raise AdapterError("the answer of the broker's management is not in Artemis' format") from None
    if str(headers.get("_AMQ_OperationSucceeded")).lower() != "true":
        raise AdapterError(str(value), passes=True if str(value).startswith(_STUMBLED) else None)
    return value


def repeated(ask: Callable[[Question], Any], question: Question) -> Any:
    """Return the answer to a question; one that can succeed the next time is asked again. Raises as `ask` does."""
    for _ in range(REPEATS):
        try:
            return ask(question)
        except AdapterError as error:
            if not error.passes:
                raise
    return ask(question)


def answered(
    asking: Generator[tuple[Question, ...], Sequence[Any], Found], ask: Callable[[Question], Any]
) -> Found:
    """Return what a rule finds that yields its questions. Raises as `ask` does, and what the rule raises."""
    replies: list[Any] | None = None
    while True:
        try:
            questions = next(asking) if replies is None else asking.send(replies)
        except StopIteration as end:
            found: Found = end.value
            return found
        replies = [ask(each) for each in questions]


def where(field: str = "", value: str = "") -> str:
    """Return the filter of a list: entries whose field has this value; none: all.

    Artemis 2.31.2 refuses an empty text, and one without these fields.
    """
    return json.dumps({"field": field, "operation": "EQUALS" if field else "", "value": value})


def rights(address: str) -> str:
    """Return the rights that requests need, for an error message."""
    return f"the right to manage and to send to {address}, and to subscribe to topic://{ANSWERS}"
