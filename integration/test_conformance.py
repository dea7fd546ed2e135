"""The conformance suite on real brokers, in real time: one class for each pair of an adapter and a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from integration.brokers import RabbitMQ
from integration.brokers.versions import rabbitmq_release
from integration.raw_amqp import need_proton
from integration.under_test import JmsUnderTest, Pair
from redelivery.core.capabilities import Capabilities
from redelivery.testing.conformance import FEATURES, BrokerUnderTest, Conformance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.conftest import Session

ONE_LETTER = (
    "redelivery.deadLetter=ack: ActiveMQ Classic keeps one dead letter for each message id; where a virtual "
    "topic or a composite destination feeds several queues, those of the others are lost: use auto, or an "
    "individualDeadLetterStrategy of the broker"
)
NO_ADDRESS = (
    "redelivery.deadLetter=ack: Artemis drops a poison message of an address without a dead-letter-address, "
    "and where that one has no queue; look at both, or use auto"
)
NO_EXCHANGE = (
    "redelivery.deadLetter=ack: RabbitMQ drops a poison message of a queue without a dead-letter exchange; "
    "give the queue one, or use auto"
)


class OnBroker(Conformance):
    """The suite on a broker with a Java client."""

    pair: ClassVar[Pair]
    client: ClassVar[str | None] = None
    """Kind of the other client; None: the broker's own."""

    @pytest.fixture
    def broker_under_test(self, session: Session) -> Iterator[BrokerUnderTest]:
        """Return the running broker behind a proxy."""
        if self.pair.scheme == "amqp":
            need_proton(self.pair.broker)
        broker = session.broker(self.pair.broker)
        if self.pair.virtual_host:
            assert isinstance(broker, RabbitMQ)
            broker = broker.within(self.pair.virtual_host)
        with JmsUnderTest(self.pair, broker, session.java(broker, self.client)) as under_test:
            yield under_test


class TestClassicOverStomp(OnBroker):
    """ActiveMQ Classic: only Text and Bytes of JMS arrive; a NACK dead-letters the others, if they are persistent."""

    pair = Pair(
        "activemq",
        "stomp",
        Capabilities(
            reschedule="confirmed",
            grows=True,
            reschedule_needs="schedulerSupport=true in its configuration",
            broker="activemq",
            groups=False,
            poison_persistent=True,
            own_poison="last",
            forward="confirmed",
            transactions=True,
            unsettleable=True,
            max_unacknowledged=200,
            dead_letter_destination="queue://ActiveMQ.DLQ",
            browse=True,
            browse_limit=400,
            individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
        ),
        kinds={"text": "whole", "bytes": "whole", "map": "partial", "object": "partial", "stream": "partial"},
    )


class TestArtemisOverStomp(OnBroker):
    """ActiveMQ Artemis: no Stream is sent to a STOMP consumer; poison is dead-lettered by a confirmed copy."""

    pair = Pair(
        "artemis",
        "stomp",
        Capabilities(
            reschedule="confirmed",
            grows=True,
            broker="artemis",
            duplicate_property="_AMQ_DUPL_ID",
            copies_by_wildcard=True,
            management_address="activemq.management",
            tells_dead_letters=True,
            forward="confirmed",
            drops_second_copy=True,
            marks=False,
            window_in_bytes=True,
            browse_over="AMQP",
            dead_letter_destination="queue://DLQ",
        ),
        kinds={"text": "whole", "bytes": "whole", "map": "partial", "object": "partial", "stream": "never"},
        beyond_credit=4,  # its window counts bytes
    )


class TestClassicOverAmqp(OnBroker):
    """ActiveMQ Classic: every body arrives whole, and poison is dead-lettered in a transaction."""

    pair = Pair(
        "activemq",
        "amqp",
        Capabilities(
            reschedule="confirmed",
            reschedule_needs="schedulerSupport=true in its configuration",
            broker="activemq",
            poison_persistent=True,
            own_poison="asked",
            ack_caution=ONE_LETTER,
            forward="atomic",
            transactions=True,
            flow=True,
            release=True,
            counts=True,
            max_unacknowledged=200,
            dead_letter_destination="queue://ActiveMQ.DLQ",
            browse=True,
            browse_limit=400,
            individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
        ),
        kinds={"text": "whole", "bytes": "whole", "map": "whole", "object": "whole", "stream": "whole"},
        beyond_credit=6,  # while credit changes it reserves messages for the link, at most one for each flow frame
        typed_headers=True,
    )


class TestArtemisOverAmqp(OnBroker):
    """ActiveMQ Artemis: poison is dead-lettered in a transaction."""

    pair = Pair(
        "artemis",
        "amqp",
        Capabilities(
            reschedule="atomic",
            broker="artemis",
            marks=False,
            duplicate_property="_AMQ_DUPL_ID",
            copies_by_wildcard=True,
            management_address="activemq.management",
            tells_dead_letters=True,
            poison_on_request=True,
            ack_caution=NO_ADDRESS,
            forward="atomic",
            transactions=True,
            flow=True,
            release=True,
            counts=True,
            dead_letter_destination="queue://DLQ",
            browse=True,
        ),
        kinds={"text": "whole", "bytes": "whole", "map": "whole", "object": "whole", "stream": "whole"},
        features=FEATURES - {"marks"},  # its delivery-count stays 0 over a lost connection
        typed_headers=True,
    )


class TestBrokerJ(OnBroker):
    """Qpid Broker-J, without a maximum delivery count: poison is dead-lettered in a transaction."""

    pair = Pair(
        "brokerj",
        "amqp",
        Capabilities(
            reschedule="atomic",
            reschedule_proof="held",
            reschedule_needs="holdOnPublishEnabled on its queues, and a clock that agrees with this machine's",
            broker="qpid-broker-j",
            forward="atomic",
            transactions=True,
            flow=True,
            release=True,
            counts=True,
            binds_groups=False,
            queue_wildcards=False,
            dead_letter_destination="queue://DLQ",
            browse=True,
        ),
        kinds={"text": "whole", "bytes": "whole", "map": "whole", "object": "whole", "stream": "whole"},
        features=frozenset({"topics", "durable", "selectors", "delay", "marks"}),
        typed_headers=True,
    )


RABBITMQ_3 = Capabilities(
    reschedule_needs="it takes a queue with arguments for each delay, which are declared over STOMP only",
    broker="rabbitmq",
    poison_on_request=True,
    ack_caution=NO_EXCHANGE,
    forward="confirmed",
    flow=True,
    release=True,
    release_counts=True,
    selectors=False,
    subscriptions=False,
    binds_groups=False,
    queue_wildcards=False,
    max_hold=1800.0,
    dead_letter_destination="queue://DLQ",
    not_delivered="all headers of AMQP 0.9.1 and STOMP producers, with their type, app-id and user-id",
)
LOOKS = 20  # on 4.0 to 4.2 each counts as a delivery of a quorum queue
RABBITMQ_4_0 = replace(
    RABBITMQ_3,
    reschedule_proof="certain",
    reschedule_needs="it takes version 4.3 and a quorum queue",
    subscriptions=True,
    release_limit=LOOKS,
    not_delivered="lists and tables in headers of AMQP 0.9.1 producers, except in headers named x-…",
)
RABBITMQ_4_3 = replace(
    RABBITMQ_4_0,
    release_limit=None,
    reschedule="native",
    reschedule_needs="",
    release_counts=False,
    counts=True,
    max_hold=None,
)
RELEASE = rabbitmq_release()


class TestRabbitMQOverAmqp(OnBroker):
    """RabbitMQ with classic queues, before 4.0 with its AMQP plugin: poison is dead-lettered by a confirmed copy."""

    pair = Pair(
        "rabbitmq",
        "amqp",
        {(3, 10): RABBITMQ_3, (4, 0): RABBITMQ_4_0, (4, 3): RABBITMQ_4_3}[RELEASE],
        kinds={"text": "whole", "bytes": "whole", "map": "whole", "object": "whole", "stream": "whole"},
        features=frozenset({"topics", "marks"} if RELEASE == (3, 10) else {"topics", "durable", "marks"}),
        holds_back=RELEASE != (4, 3),
        persistence=RELEASE != (4, 0),
        prefix="dlx.",
        virtual_host="second",
        beyond_credit=8,  # it treats each flow as new credit, and forgets the messages on the wire
        patience=0.15,
        typed_headers=True,
        # Otherwise a new queue for delayed messages would be declared as a quorum queue.
        options={"redelivery.queueArguments": "x-queue-type:classic"} if RELEASE == (4, 3) else {},
    )


class TestRabbitMQ4OverAmqp(OnBroker):
    """RabbitMQ from 4.3 on with quorum queues: it delays messages; poison is dead-lettered by a confirmed copy."""

    client = "qpid"
    pair = Pair(
        "rabbitmq4",
        "amqp",
        RABBITMQ_4_3,
        kinds={"text": "whole", "bytes": "whole", "map": "whole", "object": "whole", "stream": "whole"},
        features=frozenset({"topics", "durable", "marks"}),
        prefix="dlx.",
        virtual_host="second",
        patience=0.15,
        typed_headers=True,
        options={"redelivery.queueArguments": "x-queue-type:quorum"},
    )


RABBITMQ_STOMP = Capabilities(
    reschedule="confirmed",
    grows=True,
    reschedule_needs="the right to declare queues named redelivery.delay.*",
    longest_delay=4294967.295,
    delay_digits=2,
    broker="rabbitmq",
    poison_on_request=True,
    ack_caution=NO_EXCHANGE,
    forward="confirmed",
    release=True,
    release_counts=True,
    selectors=False,
    binds_groups=False,
    queue_wildcards=False,
    max_hold=1800.0,
    dead_letter_destination="queue://DLQ",
    release_limit=LOOKS if RELEASE == (4, 0) else None,
    not_delivered="lists, tables, booleans, times, floating-point numbers and bytes in headers of AMQP producers",
)


class TestRabbitMQOverStomp(OnBroker):
    """RabbitMQ with its STOMP plugin, on classic queues: poison is dead-lettered by a confirmed copy.

    The other client also uses STOMP: an AMQP 1.0 client's message does not arrive whole, and it gets no headers.
    """

    client = "stomp"
    pair = Pair(
        "rabbitmq",
        "stomp",
        RABBITMQ_STOMP,
        kinds={"text": "whole", "bytes": "whole"},
        features=frozenset({"topics", "durable", "marks"}),
        prefix="dlx.",
        patience=0.15,
    )


class TestRabbitMQ4OverStomp(TestRabbitMQOverStomp):
    """RabbitMQ from 4.3 on with its STOMP plugin, on quorum queues."""

    pair = replace(
        TestRabbitMQOverStomp.pair,
        broker="rabbitmq4",
        options={
            "redelivery.queueArguments": "x-queue-type:quorum",
            "redelivery.deadLetterArguments": "x-queue-type:quorum",
        },
    )
