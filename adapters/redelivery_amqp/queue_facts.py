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
