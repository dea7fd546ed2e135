"""Type and arguments of a queue, as the management nodes of RabbitMQ and Broker-J report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from redelivery.brokers.rabbitmq import DELIVERY_LIMIT

__all__ = ["QueueFacts"]


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Facts of one queue. `kind`: `classic`, `quorum`, `stream` or empty (unknown). `arguments`: of its declaration."""

    kind: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def keeps_dead_letters(self) -> bool:
        """True if a dead-lettered message stays until another queue has confirmed it, according to the arguments.

        Otherwise RabbitMQ drops a dead letter that no queue takes. Its documentation says that at-least-once needs
        `reject-publish`. Policies of the broker are not known here.
        """
        arguments = self.arguments
        return (
            self.kind == "quorum"
            and isinstance(arguments.get("x-dead-letter-exchange"), str)
            and arguments.get("x-dead-letter-strategy") == "at-least-once"
            and arguments.get("x-overflow") == "reject-publish"
        )

    @property
    def own_dead_letters(self) -> str:
        """The queue's own dead-letter exchange, in words; empty: its arguments name none."""
        exchange = self.arguments.get("x-dead-letter-exchange")
        if not isinstance(exchange, str):
            return ""
        key = self.arguments.get("x-dead-letter-routing-key")
        named = f"dead-letter exchange {exchange}" if exchange else "default exchange for its dead letters"
        return f"the queue's {named}" + (f" ({key})" if isinstance(key, str) else "")

    @property
    def delivery_limit(self) -> int | None:
        """Deliveries after which the broker drops or dead-letters a message; None: no limit.

        A policy of the broker can change that; the management node does not report policies.
        """
        if self.kind != "quorum":
            return None
        limit = self.arguments.get("x-delivery-limit", DELIVERY_LIMIT)
        if not isinstance(limit, int):
            return DELIVERY_LIMIT
        return None if limit < 0 else limit

    def drops_after(self, counted: str) -> str:
        """Return a warning that the broker drops a message after too many deliveries; empty: it does not.

        `counted`: which deliveries count.
        """
        limit = self.delivery_limit
        if limit is None or isinstance(self.arguments.get("x-dead-letter-exchange"), str):
            return ""
        return (
            f"unless a policy of the broker says otherwise, a message is dropped after {limit} {counted} "
            "(x-delivery-limit); give the queue a dead-letter exchange, or declare it without a limit: "
            "redelivery.queueArguments=x-queue-type:quorum,x-delivery-limit:-1"
        )

    @classmethod
    def of(cls, body: object) -> QueueFacts | None:
        """Return the facts in a reply of the management node; None: it has none."""
        if not isinstance(body, Mapping):
            return None
        answer = cast("Mapping[object, object]", body)
        kind, arguments = answer.get("type"), answer.get("arguments")
        given: Mapping[object, object] = {}
        if isinstance(arguments, Mapping):
            given = cast("Mapping[object, object]", arguments)
        return cls(kind if isinstance(kind, str) else "", {str(name): value for name, value in given.items()})
