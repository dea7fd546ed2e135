"""What RabbitMQ's management node says of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

__all__ = ["QueueFacts"]


DELIVERY_LIMIT = 20
"""Of a quorum queue of RabbitMQ 4 that has no other one."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """`kind`: `classic`, `quorum` or `stream`; empty: unknown. `arguments`: of its declaration, not of a policy."""

    kind: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether what is dead-lettered stays until another queue has confirmed it, by the arguments alone.

        Otherwise RabbitMQ drops what no queue takes. Its documents say that at-least-once needs `reject-publish`.
        """
        arguments = self.arguments
        return (
            self.kind == "quorum"
            and isinstance(arguments.get("x-dead-letter-exchange"), str)
            and arguments.get("x-dead-letter-strategy") == "at-least-once"
            and arguments.get("x-overflow") == "reject-publish"
        )

    @property
    def drops_after_losses(self) -> str:
        """How the broker drops a message whose consumers lose their connections too often, as text; empty: it does not.

        A policy of the broker may say otherwise, which the management node does not tell.
        """
        limit = self.arguments.get("x-delivery-limit", DELIVERY_LIMIT)
        kept = isinstance(limit, int) and limit < 0
        if self.kind != "quorum" or kept or isinstance(self.arguments.get("x-dead-letter-exchange"), str):
            return ""
        return (
            f"unless a policy of the broker says otherwise, a message is dropped after {limit} lost connections "
            "(x-delivery-limit): give the queue a dead-letter exchange, or no limit; a new queue has none with "
            "redelivery.queueArguments=x-queue-type:quorum,x-delivery-limit:-1"
        )

    @classmethod
    def of(cls, body: object) -> QueueFacts | None:
        """Return what an answer of the management node says, or None if it is none."""
        if not isinstance(body, Mapping):
            return None
        answer = cast("Mapping[object, object]", body)
        kind, arguments = answer.get("type"), answer.get("arguments")
        given: Mapping[object, object] = {}
        if isinstance(arguments, Mapping):
            given = cast("Mapping[object, object]", arguments)
        return cls(kind if isinstance(kind, str) else "", {str(name): value for name, value in given.items()})
