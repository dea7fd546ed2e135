"""Requests to the management of ActiveMQ Artemis over a port, and its lists of queues."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from redelivery.core.artemis_management import (
    ANSWERS,
    PAGE,
    Question,
    answer_of,
    answered,
    answers_to,
    repeated,
    where,
)
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from redelivery.driver.port import ConnectionPort, ConsumerPort

__all__ = ["BrokerManagement", "holds_messages", "managed"]

Found = TypeVar("Found")


@contextmanager
def managed(port: ConnectionPort, address: str) -> Generator[BrokerManagement]:
    """Yield the management at an address, with a subscriber for its answers until the end of the block.

    Raises:
        AdapterError: The broker refuses the subscriber.
        TransportError: The connection was lost.
    """
    marks = uuid.uuid4().hex
    plan = port.plan(f"topic://{ANSWERS}", {"selector": answers_to(marks)}, route=Redrive(""))
    with port.consume(plan) as consumer:
        yield BrokerManagement(port, consumer, address, marks)


class BrokerManagement:
    """The management of one broker, one question at a time."""

    def __init__(self, port: ConnectionPort, consumer: ConsumerPort, address: str, marks: str) -> None:
        self._port = port
        self._consumer = consumer
        self._address = address
        self._marks = marks
        self._asked = 0

    def ask(self, question: Question) -> Any:
        """Return the broker's answer; a request that can succeed the next time is repeated.

        Raises:
            AdapterError: The broker refuses to answer this user.
            TransportError: The connection was lost, or nothing has answered in time.
        """
        return repeated(self._ask, question)

    def _ask(self, question: Question) -> Any:
        self._asked += 1
        mark, limit = f"{self._marks}-{self._asked}", self._port.settings.connect_timeout
        self._port.send_connected(question.message(self._address, mark)).wait()
        while (answer := self._consumer.take(timeout=limit)) is not None:
            if answer.correlation_id == mark:
                return answer_of(answer.body, answer.headers)
        raise TransportError(
            f"{self._address} has not answered within {limit:g} s: is it the broker's management address?"
        )

    def answered(self, asking: Generator[tuple[Question, ...], Sequence[Any], Found]) -> Found:
        """Return what a rule finds that yields its questions. Raises as `ask` does, and what the rule raises."""
        return answered(asking, self.ask)

    def queues(self) -> Iterator[Mapping[str, str]]:
        """Yield all queues of the broker. Raises as `ask` does."""
        for page in range(1, 1_000_000):
            told = json.loads(self.ask(Question("listQueues", (where(), page, PAGE))))
            yield from told["data"]
            if page * PAGE >= int(told["count"]):
                return


def holds_messages(queue: Mapping[str, str]) -> bool:
    """Return True for a queue that has messages, and is neither a temporary nor an internal one of the broker."""
    return (
        queue["messageCount"] != "0" and queue["temporary"] != "true" and queue.get("internalQueue") != "true"
    )
