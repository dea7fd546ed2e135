"""Queues whose names match a pattern, where the broker's own wildcards are other queues (ActiveMQ Artemis)."""

from __future__ import annotations

import json
import uuid
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from redelivery.core.artemis_management import ANSWERS, PAGE, Question, answer_of, answers_to, rights, where
from redelivery.core.dead_lettering.artemis_own_place import ORIGIN, qualified_queue
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.destination import Destination
from redelivery.core.policy.artemis_wildcards import ARTEMIS
from redelivery.core.policy.classic_wildcards import check_wildcards, covers
from redelivery.errors import AdapterError, ConfigurationError, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.driver.port import ConnectionPort, ConsumerPort

__all__ = ["queues_matching"]


def queues_matching(port: ConnectionPort, pattern: Destination) -> tuple[str, ...]:
    """Return the queues with messages whose names match, qualified, in the order of their names.

    Not among them are temporary queues, the broker's internal ones, those of subscribers, and those that it has made
    for a wildcard, which have copies.

    Raises:
        AdapterError: The broker does not list its queues to this user.
        ConfigurationError: It does to none, or the pattern cannot match.
        TransportError: The connection was lost, or nothing has answered in time.
    """
    check_wildcards(pattern)
    address = port.capabilities.management_address
    if address is None:
        raise ConfigurationError(
            f"{pattern}: {port.capabilities.broker} does not list its queues; name each one",
            option="destination",
        )
    try:
        found = [one for one in _listed(port, address) if covers(pattern, Destination("queue", one["name"]))]
    except AdapterError as error:
        raise AdapterError(
            f"{pattern}: the broker does not list its queues to this user: {error}; give it {rights(address)}, or name "
            "each queue"
        ) from error
    return tuple(
        qualified_queue(one) for one in sorted(found, key=itemgetter("name")) if _holds_messages(one)
    )


def _holds_messages(queue: Mapping[str, str]) -> bool:
    """True for a queue that has messages of its own, which consumers share."""
    if queue["messageCount"] == "0" or queue["temporary"] == "true" or queue.get("internalQueue") == "true":
        return False
    if not {"*", ARTEMIS.any_words}.isdisjoint(queue["name"].split(".")):
        return False
    return queue["routingType"] == "ANYCAST" or queue["filter"].startswith(
        ORIGIN
    )  # the broker has made it for dead letters


def _listed(port: ConnectionPort, address: str) -> Iterator[Mapping[str, str]]:
    marks = uuid.uuid4().hex
    plan = port.plan(f"topic://{ANSWERS}", {"selector": answers_to(marks)}, route=Redrive(""))
    with port.consume(plan) as consumer:
        for page in range(1, 1_000_000):
            question = Question("listQueues", (where(), page, PAGE))
            told = json.loads(_asked(port, consumer, address, question, f"{marks}-{page}"))
            yield from told["data"]
            if page * PAGE >= int(told["count"]):
                return


def _asked(port: ConnectionPort, consumer: ConsumerPort, address: str, question: Question, mark: str) -> Any:
    """Return the broker's answer to a question. Raises AdapterError if it refuses."""
    limit = port.settings.connect_timeout
    port.send_connected(question.message(address, mark)).wait()
    while (answer := consumer.take(timeout=limit)) is not None:
        if answer.correlation_id == mark:
            return answer_of(answer.body, answer.headers)
    raise TransportError(
        f"{address} has not answered within {limit:g} s: is it the broker's management address?"
    )
