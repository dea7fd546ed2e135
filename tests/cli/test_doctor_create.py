"""Doctor without `--create`: no question that makes a queue, and what is said instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.doctor_script import AMQP, RABBIT, STOMP, URI, levels

from redelivery import AdapterError
from redelivery.brokers.rabbitmq import QUORUM_OPTIONS
from redelivery.core.commands import Send, Subscribe

if TYPE_CHECKING:
    from tests.cli.doctor_script import Script

    from redelivery.core.capabilities import Capabilities

RABBIT4 = replace(AMQP, broker="rabbitmq", version="4.3.6", reschedule="native")
ABSENT = AdapterError("the broker has no queue orders")


@pytest.mark.parametrize(
    "able",
    [STOMP, AMQP, RABBIT, replace(AMQP, tells_dead_letters=True)],
    ids=["classic", "artemis", "rabbit", "own"],
)
def test_a_broker_that_makes_queues_is_not_asked(cli: Any, script: Script, able: Capabilities) -> None:
    """Where each question makes a missing queue, none is asked without --create; both lines say so."""
    script.able = able
    ended = cli("doctor", URI, "orders")
    assert ended.code == 0
    assert not [one for one in script.commands if isinstance(one, Subscribe | Send)]
    assert (levels(ended.out)["queue://orders"], levels(ended.out)["dead letters"]) == ("note", "note")
    assert "not asked, for a question makes a missing queue: --create asks" in ended.out
    assert "--create asks" in ended.out


def test_the_brokers_own_settings_are_named_unasked(cli: Any, script: Script) -> None:
    """The broker's own settings that a copy goes past are known without a question."""
    assert "past the broker's own dead-letter strategies" in cli("doctor", URI, "orders").out


def test_rabbitmq_over_amqp_is_asked_without_making_a_queue(cli: Any, script: Script) -> None:
    """RabbitMQ over AMQP is asked for queues as they are: one that is missing is a note, and no failure."""
    script.able, script.refuses = RABBIT4, {"queue://orders": ABSENT}
    ended = cli("doctor", URI, "orders")
    assert (ended.code, levels(ended.out)["queue://orders"]) == (0, "note")
    assert "queue://orders is not there yet: the first consumer makes it; --create makes it now" in ended.out
    assert QUORUM_OPTIONS in ended.out
    assert all(one.existing for one in script.commands if isinstance(one, Subscribe))
    script.able = replace(RABBIT4, version="4.0.5", reschedule="none")
    assert QUORUM_OPTIONS not in cli("doctor", URI, "orders").out


def test_a_dead_letter_queue_that_is_not_there(cli: Any, script: Script) -> None:
    """A dead-letter queue that is missing on RabbitMQ is looked up, not made: no link to send is opened."""
    script.able, script.refuses = (
        RABBIT4,
        {"queue://DLQ": AdapterError("NOT_FOUND - no queue 'DLQ' in vhost '/'")},
    )
    ended = cli("doctor", URI, "orders")
    assert (ended.code, levels(ended.out)["queue://orders"]) == (0, "ok")
    assert "queue://DLQ is not there yet" in ended.out
    assert not [one for one in script.commands if isinstance(one, Subscribe) and one.dead_letters]
    made = cli("doctor", URI, "orders", "--create")
    assert (made.code, levels(made.out)["dead letters"]) == (1, "FAIL")


def test_a_refusal_stays_one(cli: Any, script: Script) -> None:
    """A right that is missing is a failure, with and without --create."""
    script.able, script.refuses = (
        RABBIT4,
        {"queue://orders": AdapterError("access to queue 'orders' refused")},
    )
    for more in ((), ("--create",)):
        ended = cli("doctor", URI, "orders", *more)
        assert (ended.code, levels(ended.out)["queue://orders"]) == (1, "FAIL")


@pytest.mark.parametrize("holds", ["none", "native"], ids=["4.1", "4.3"])
@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_a_classic_dead_letter_queue_beside_a_quorum_queue(
    cli: Any, script: Script, kind: str, holds: Any
) -> None:
    """Dead letters of a quorum queue that would go to a classic one are noted, with the option for a new queue."""
    script.able = replace(RABBIT4, reschedule=holds)
    quorum = replace(script.able, replicated=True)
    classic = replace(script.able, reschedule="none")
    script.queues = {
        "queue://orders": quorum,
        "queue://DLQ": quorum if kind == "quorum" else classic,
    }
    said = "redelivery.deadLetterArguments=x-queue-type:quorum" in cli("doctor", URI, "orders").out
    assert said is (kind == "classic")
