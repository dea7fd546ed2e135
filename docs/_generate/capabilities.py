"""Table of what each broker can do over each protocol, from the `Capabilities` of the adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from docs._generate.parts import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.capabilities import Capabilities

__all__ = ["FEATURES", "capabilities_table", "pairs"]


class Feature(NamedTuple):
    """A row: what is asked, the answer of a broker, and what follows for the user."""

    name: str
    answer: Callable[[Capabilities], str]
    consequence: str


def pairs() -> dict[str, Capabilities]:
    """Return the capabilities by broker and protocol, in the order of the columns."""
    from redelivery.core.commands import Subscribe  # noqa: PLC0415 - adapters need their libraries
    from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic  # noqa: PLC0415
    from redelivery_amqp.queue_facts import QueueFacts  # noqa: PLC0415
    from redelivery_amqp.rabbitmq_profile import AmqpRabbitMQ, AmqpRabbitMQ4  # noqa: PLC0415
    from redelivery_memory import CAPABILITIES  # noqa: PLC0415
    from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ  # noqa: PLC0415

    newest = AmqpRabbitMQ4()
    asked = Subscribe(1, "queue://any", 1, None)
    quorum, classic = (newest.for_queue(QueueFacts(kind), asked) for kind in ("quorum", "classic"))
    assert quorum is not None
    assert classic is not None
    return {
        "Classic, STOMP": StompClassic.capabilities,
        "Classic, AMQP": AmqpClassic.capabilities,
        "Artemis, STOMP": StompArtemis.capabilities,
        "Artemis, AMQP": AmqpArtemis.capabilities,
        "Broker-J, AMQP": AmqpBrokerJ.capabilities,
        "RabbitMQ, STOMP": StompRabbitMQ.capabilities,
        "RabbitMQ 3, AMQP": AmqpRabbitMQ.capabilities,
        "RabbitMQ 4.3, AMQP, classic queue": classic,
        "RabbitMQ 4.3, AMQP, quorum queue": quorum,
        "memory://": CAPABILITIES,
    }


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _poison(able: Capabilities, *, persistent: bool) -> str:
    kept = able.poisons(persistent=persistent)
    if kept and able.own_poison == "first":
        return "the broker moves it"
    copy = "copy, in one transaction" if able.forward == "atomic" else "copy, confirmed first"
    return f"{copy}; the broker moves what did not arrive whole" if kept else copy


def _on_request(able: Capabilities) -> str:
    if able.poison_persistent and able.poison_non_persistent:
        return "keeps both"
    if able.poison_persistent:
        return "keeps persistent ones"
    return "if the broker is set so" if able.poison_on_request else "no"


def _scheduling(able: Capabilities) -> str:
    kind = {
        "none": "no",
        "native": "the message itself",
        "atomic": "copy, in one transaction",
        "confirmed": "copy, confirmed first",
    }[able.reschedule]
    return kind if able.longest_delay is None else f"{kind}; {able.longest_delay // 86400:.0f} days at most"


def _prefetch(able: Capabilities) -> str:
    if able.flow:
        return "message by message"
    if able.window_in_bytes:
        return "window in bytes, grows"
    return "window of messages, grows" if able.grows else "fixed window"


def _release(able: Capabilities) -> str:
    if not able.release:
        return "when the consumer closes"
    return "yes; some queues count it" if able.release_counts else "yes, uncounted"


def _browse(able: Capabilities) -> str:
    if not able.browse:
        return "no"
    return "yes" if able.browse_limit is None else f"the first {able.browse_limit}"


FEATURES = (
    Feature(
        "persistent poison message",
        lambda able: _poison(able, persistent=True),
        "A copy has headers with cause, count and origin. A message that the broker moves is unchanged, and the cause is in your log. "
        "After a crash, a copy that was confirmed first may exist beside its original.",
    ),
    Feature(
        "non-persistent poison message",
        lambda able: _poison(able, persistent=False),
        "The library never uses an acknowledgement with which the broker drops the message.",
    ),
    Feature(
        "`redelivery.deadLetter=ack`",
        _on_request,
        "The broker's own poison acknowledgement, on your word. `no`: refused at the start. Where the broker is not set so, it drops the message. "
        "On Classic messages of topics, and others that it would drop, are copied; over AMQP it may lose letters of "
        "[virtual topics and composite destinations](measured/activemq-fan-out.md).",
    ),
    Feature(
        "reports a delivery count",
        lambda able: _yes(able.counts),
        "The broker counts lost connections, not failures of your handler. After a drain the next process counts from 1, unless a ledger or `redelivery.scheduler=broker` keeps the count.",
    ),
    Feature(
        "`redelivery.scheduler=broker`",
        _scheduling,
        "With the option a delayed message waits at the broker, over restarts. `no`: a consumer with the option is refused at the start.",
    ),
    Feature(
        "credit",
        _prefetch,
        "Message by message: `redelivery.credit` is exact. A window in bytes may hold more messages than the credit.",
    ),
    Feature(
        "release of prefetched messages",
        _release,
        "At shutdown and at a consumer's end these messages go back to the broker. Where a queue counts them, its delivery limit may dead-letter them.",
    ),
    Feature(
        "unacknowledged messages of a queue",
        lambda able: "no limit" if able.max_unacknowledged is None else f"{able.max_unacknowledged}",
        "At the limit the broker sends nothing more. `redelivery.maxParked` is 80 % of it by default.",
    ),
    Feature(
        "holding a message unacknowledged",
        lambda able: "no limit" if able.max_hold is None else f"{able.max_hold:.0f} s",
        "A policy whose delays exceed 80 % of the limit is refused at the start. Use `redelivery.scheduler=broker` for long delays.",
    ),
    Feature(
        "browse",
        _browse,
        "Without browse, `redelivery dlq` needs `--take`: it receives the dead letters and releases them.",
    ),
    Feature("selector", lambda able: _yes(able.selectors), "Without it, a consumer with a selector is refused at the start."),
    Feature(
        "message groups",
        lambda able: _yes(able.groups),
        "Without them, `redelivery.ordering=per_group` is refused at the start.",
    ),
    Feature(
        "a group goes to one consumer",
        lambda able: _yes(able.groups and able.binds_groups),
        "Without it, several processes on a queue lose the order within a group. `redelivery doctor` says so.",
    ),
    Feature(
        "wildcards in queue names",
        lambda able: "copies of later messages" if able.copies_by_wildcard else _yes(able.queue_wildcards),
        "Without them, start one consumer for each queue. `copies of later messages`: refused at the start without `redelivery.wildcards=address`; [what it means](#what-is-a-wildcard-to-artemis).",
    ),
    Feature(
        "transactions",
        lambda able: _yes(able.transactions),
        "Without them, a transacted session is refused at the start.",
    ),
    Feature(
        "durable subscriptions",
        lambda able: _yes(able.subscriptions),
        "Without them, `subscription=` is refused at the start.",
    ),
    Feature(
        "marks every redelivered message",
        lambda able: _yes(able.marks),
        "Without it, a message that was delivered before may arrive unmarked; the library compares it with what it has accepted.",
    ),
    Feature(
        "dead-letter queue by default",
        lambda able: f"`{able.dead_letter_destination.removeprefix('queue://')}`",
        "Another one: `redelivery.deadLetterDestination`.",
    ),
)  # fmt: skip


def capabilities_table() -> str:
    """Return two tables: the answers by broker and protocol, and what follows of each feature."""
    able = pairs()
    answers = [[feature.name, *(feature.answer(each) for each in able.values())] for feature in FEATURES]
    follows = [[feature.name, feature.consequence] for feature in FEATURES]
    return (
        table(["", *able], answers) + "\n\nWhat follows:\n\n" + table(["feature", "consequence"], follows)
    ).replace("|  |", "| feature |", 1)
