"""Cures of refusals, by the broker's text: only the broker knows that a queue is there, and how."""

from __future__ import annotations

import re

from redelivery.core.capabilities import STREAM

__all__ = ["with_cure"]

_CURES = (
    # RabbitMQ: a queue of another type has other arguments, too.
    (re.compile("inequivalent arg .*current is 'stream'"), STREAM),
    # RabbitMQ: each SUBSCRIBE and SEND declares its queue, and so does each link to 3.x.
    (
        re.compile(r"inequivalent arg .*for queue '([^']*)'"),
        (
            r"the queue exists with other arguments: name it native:///amq/queue/\1, which declares nothing, or over "
            "STOMP set those as redelivery.queueArguments (for a dead-letter queue as redelivery.deadLetterArguments)"
        ),
    ),
    # Artemis 2.40.0, over AMQP.
    (
        re.compile("Address (.+) is not configured for queue support"),
        r"its routing type is multicast, as that of a topic: consume topic://\1, or give it anycast too",
    ),
    (
        re.compile("Address (.+) is not configured for topic support"),
        r"its routing type is anycast, as that of a queue: consume queue://\1, or give it multicast too",
    ),
)
# Characters of a broker's text in which a known one is looked for.
_LONGEST = 2000


def with_cure(text: str) -> str:
    """Return a broker's reason for a refusal, with what to do about it if that is known."""
    for reason, cure in _CURES:
        if (found := reason.search(text[:_LONGEST])) is not None:
            return f"{text}; {found.expand(cure)}"
    return text
