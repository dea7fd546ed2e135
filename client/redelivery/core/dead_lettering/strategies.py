"""ActiveMQ Classic's dead-letter strategies, on the client's side: dead-letter destinations by original destination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import covers

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.safe_regex import SafeRegex

__all__ = ["DiscardingStrategy", "IndividualStrategy"]

SAMPLES = ("x", "x.x")  # of names that `>` matches


@dataclass(frozen=True, slots=True)
class IndividualStrategy:
    """One dead-letter destination per destination: prefix + its name + suffix.

    A prefix of None is the broker's own. `queue_for_queues`, `queue_for_topics`: dead letters of queues, and of
    topics, go to a queue; otherwise to a topic, which keeps them for its subscribers only. `per_durable_subscriber`:
    each durable subscription of a topic has its own, named `….clientID:subscription`.
    """

    queue_prefix: str | None = None
    queue_suffix: str = ""
    topic_prefix: str | None = None
    topic_suffix: str = ""
    queue_for_queues: bool = True
    queue_for_topics: bool = True
    per_durable_subscriber: bool = False

    def destination_for(self, source: Destination, able: Capabilities, subscriber: str | None) -> Destination:
        """Return the dead-letter destination of `source`, a queue or a topic.

        `subscriber`: `clientID:name` of the durable subscription; None: not durable.
        """
        queues, topics = able.individual_prefixes
        if source.is_topic:
            prefix = topics if self.topic_prefix is None else self.topic_prefix
            own = f".{subscriber}" if self.per_durable_subscriber and subscriber is not None else ""
            kind = "queue" if self.queue_for_topics else "topic"
            return Destination(kind, f"{prefix}{source.name}{own}{self.topic_suffix}")
        prefix = queues if self.queue_prefix is None else self.queue_prefix
        kind = "queue" if self.queue_for_queues else "topic"
        return Destination(kind, f"{prefix}{source.name}{self.queue_suffix}")

    def returns_to(self, source: Destination, able: Capabilities, subscriber: str | None) -> str | None:
        """Return a dead-letter destination that the pattern `source` itself consumes; None if none is found."""
        for rest in SAMPLES:
            sample = Destination(
                source.kind, ".".join(_sampled(part, rest) for part in source.name.split("."))
            )
            found = self.destination_for(sample, able, subscriber)
            if covers(source, found):
                return str(found)
        return None


def _sampled(part: str, rest: str) -> str:
    """Return a name that a part of a pattern matches."""
    return {"*": "x", ">": rest}.get(part, part)


@dataclass(frozen=True, slots=True)
class DiscardingStrategy:
    """Drops dead letters: all of them, or those of some destinations.

    `only`: those of destinations whose name matches. `temporary_queues`, `temporary_topics`: also those of temporary
    ones. If none of these is given: all.
    """

    only: SafeRegex | None = None
    temporary_queues: bool = False
    temporary_topics: bool = False

    @property
    def everything(self) -> bool:
        """True if no dead letter is kept."""
        return self.only is None and not (self.temporary_queues or self.temporary_topics)

    def drops(self, source: Destination) -> bool:
        """Return True if a dead letter of `source` is dropped."""
        if self.everything:
            return True
        if source.is_temporary and (self.temporary_topics if source.is_topic else self.temporary_queues):
            return True
        return self.only is not None and self.only.match(source.name)
