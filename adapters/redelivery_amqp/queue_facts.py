"""What RabbitMQ's management node says of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["QueueFacts"]


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """`kind`: `classic`, `quorum` or `stream`; empty: unknown. `arguments`: of its declaration, not of a policy."""

    kind: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether what is dead-lettered stays until another queue has confirmed it; told by the arguments alone.

        Otherwise RabbitMQ drops what no queue takes. Its documents say that at-least-once needs `reject-publish`.
        """
        told = self.arguments
        return (
            self.kind == "quorum"
            and isinstance(told.get("x-dead-letter-exchange"), str)
            and told.get("x-dead-letter-strategy") == "at-least-once"
            and told.get("x-overflow") == "reject-publish"
        )

    @classmethod
    def of(cls, body: object) -> QueueFacts | None:
        """Return what an answer of the management node says, or None if it is none."""
        if not isinstance(body, Mapping):
            return None
        kind, arguments = body.get("type"), body.get("arguments")
        return cls(
            kind if isinstance(kind, str) else "",
            {str(name): value for name, value in arguments.items()} if isinstance(arguments, Mapping) else {},
        )
