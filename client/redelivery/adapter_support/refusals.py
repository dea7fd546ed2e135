"""Refusals by the broker's text: those that pass, those that stay, and their cures."""

from __future__ import annotations

import re

from redelivery.core.capabilities import STREAM

__all__ = ["GONE", "passes", "shortened", "with_cure"]


# ---- Refusal kinds ---------------------------------------------------------------------------------------
# Kinds of refusals, by the broker's text: one that passes, since a node starts or stops, or one that stays.
#
# Measured: docs/measured/refusals.md.

GONE = frozenset({
    "amqp:not-found", "amqp:not-allowed", "amqp:resource-deleted", "amqp:unauthorized-access",
    "amqp:invalid-field", "amqp:not-implemented", "amqp:resource-locked",
})  # fmt: skip
"""Conditions with which a broker ends a link of AMQP 1.0 for good: another attach would be refused again."""
# RabbitMQ: the node of a classic queue stops or is down, a quorum queue has no majority, or its leader has just died.
_PASSING = re.compile(
    # Never a bare word: it may be the name of a queue.
    r"process is stopped by supervisor|\{absent,|': nodedown(\"|$)|\{(nodedown|noproc),|"
    r"\{error,(noproc|nodedown|noconnection|timeout)\}|is down or inaccessible|vhost '[^']*' is down$|"
    r"failed to perform operation on queue '.*' due to timeout|"
    # The metadata store has no majority: of a queue or an exchange, declared, created or given a leader; of a binding.
    r"in vhost '[^']*'( on node '[^']*')? because the (metadata store )?operation timed out|"
    r"(^|- |\")could not \w+ binding due to timeout|timed out consuming from quorum queue '.*' in vhost '[^']*': |"
    # A send.
    r"^queue '.*' is unavailable$",
    re.IGNORECASE,
)
_LASTING = re.compile(
    # RabbitMQ.
    r"access_refused|precondition_failed|inequivalent arg|no (queue|exchange) '|"
    # Artemis: no right to consume, to send, to create or delete a queue; a selector.
    r"AMQ229032|AMQ229031|AMQ229213|AMQ229020|"
    # Classic.
    r"is not authorized|InvalidSelector|"
    # Broker-J, which ends the link over a message that its queue does not take.
    r"Permission .* is denied|Access denied|Not accepted by queue '",
    re.IGNORECASE,
)
# Characters of a broker's text in which a known one is looked for, and that are reported.
_READ, _SHOWN = 2000, 300
# RabbitMQ ends a reason with a term of Erlang, over many lines.
_TERM = re.compile(r"[:,]?\s*[{<\[#]+\w*[{,\[].*", re.DOTALL)
# What the broker has to say inside of such a term is the text in quotes; a name stands as <<"orders">>.
_QUOTED = re.compile(r'<<"[^"]*">>|"([^"]{4,})"')


def passes(text: str, condition: str | None = None) -> bool | None:
    """Return whether a refusal with this text, and this condition of AMQP 1.0, passes; None: not known."""
    read = text[:_READ]
    if _PASSING.search(read):
        return True
    # Not a locked resource: after a failover the own old connection may still have the queue for itself.
    if (condition in GONE and condition != "amqp:resource-locked") or _LASTING.search(read):
        return False
    return None


def shortened(text: str) -> str:
    """Return a broker's reason in one line, without the state of its processes."""
    found = _TERM.search(text, 20)
    if found is None:
        said = text
    else:
        inside = next(filter(None, (quoted[1] for quoted in _QUOTED.finditer(found[0][:_READ]))), "")
        said = f"{text[: found.start()]}… {inside}"
    short = " ".join(said.split())
    return short if len(short) <= _SHOWN else f"{short[:_SHOWN]}…"


# ---- Refusal cures ---------------------------------------------------------------------------------------
# Cures of refusals, by the broker's text: only the broker knows that a queue is there, and how.

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
_CURES_READ = 2000


def with_cure(text: str) -> str:
    """Return a broker's reason for a refusal, with what to do about it if that is known."""
    for reason, cure in _CURES:
        if (found := reason.search(text[:_CURES_READ])) is not None:
            return f"{text}; {found.expand(cure)}"
    return text
