"""Consumers' links: their attach frames, and the broker's answers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_link_registry import COMMAND, arrived

from redelivery.core.commands import Subscribe
from redelivery.errors import AdapterError, TransportError
from redelivery_amqp.io_thread import ACCEPTED, REJECTED
from redelivery_amqp.link_registry import LinkRegistry
from redelivery_amqp.profiles import AmqpArtemis
from redelivery_amqp.receiver import ReceiverLink
from redelivery_amqp.settlement_progress import SettlementProgress

if TYPE_CHECKING:
    from redelivery.errors import RedeliveryError


class Wire:
    """proton's connection, without a socket; it records settlements."""

    def __init__(self) -> None:
        self.connection = proton.Connection()
        self.settled: dict[str, int] = {}

    sessions, most_sessions = 0, 2

    def flow(self, *_: object) -> None:
        """Give no credit."""

    def settle(self, handles: list[str], outcome: int) -> None:
        self.settled.update(dict.fromkeys(handles, outcome))

    def masked(self, text: str) -> str:
        return text


class Attached:
    """A consumer whose link the broker has attached."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.lost: list[RedeliveryError] = []
        self.answers: list[RedeliveryError | None] = []
        self.links = LinkRegistry(
            cast("Any", self.wire),
            AmqpArtemis(),
            "c",
            1,
            lambda _: None,
            lambda action: action(),
            lambda error, _, __: self.lost.append(error),
            lambda: None,
        )
        self.receiver = self.links.add(COMMAND, self.answers.append)
        self.links.attach(self.receiver)
        self.receiver.attached = True

    def event(self, name: str, condition: str | None = None) -> Any:
        """Return an event of proton for the link of that name."""
        remote = None if condition is None else proton.Condition(condition, "says the broker")
        return SimpleNamespace(link=SimpleNamespace(name=name, remote_condition=remote))


@pytest.fixture
def attached() -> Attached:
    """Return a consumer that is attached."""
    return Attached()


@pytest.mark.parametrize(
    ("condition", "stops"),
    [("amqp:resource-deleted", True), ("amqp:unauthorized-access", True), ("amqp:internal-error", False)],
)
def test_a_consumer_whose_queue_is_gone_stops(attached: Attached, condition: str, stops: bool) -> None:
    """A consumer stops with the broker's text if another attach would fail too; else the connection is replaced."""
    attached.links.on_closed(attached.event("c-1-7", condition))
    told = attached.answers if stops else attached.lost
    assert [str(error) for error in told] == [
        "the broker ended the consumer of queue://orders: says the broker"
    ]
    assert isinstance(told[0], AdapterError)
    assert (attached.lost if stops else attached.answers) == []


def test_a_rejection_is_confirmed_by_the_answer_to_a_later_frame(attached: Attached) -> None:
    """A rejection is confirmed by the answer to a later attach: no broker answers a rejection."""
    (delivery,) = arrived(attached.receiver, "bad")
    confirmed: list[RedeliveryError | None] = []
    attached.links.reject(delivery, {}, confirmed.append)
    assert attached.wire.settled == {"bad": REJECTED}
    assert confirmed == []
    (asked,) = attached.links._named.keys() - {"c-1-7"}
    attached.links.on_opened(attached.event(asked))
    assert confirmed == [None]


@pytest.mark.parametrize("in_step", [True, False])
def test_a_copy_goes_in_step_with_the_acceptances_before_it(attached: Attached, in_step: bool) -> None:
    """A copy waits until the acceptances of its consumer are carried out; those of other consumers do not matter."""
    attached.receiver.progress = SettlementProgress(asked=in_step)
    deliveries, links = arrived(attached.receiver, "first", "second"), attached.links
    told: list[str] = []
    links.when_settled(attached.receiver, lambda _: told.append("nothing was settled"))
    links.settlements.settle(deliveries[:1], ACCEPTED)
    links.when_settled(attached.receiver, lambda _: told.append("one"))
    asked = list(links._named.keys() - {"c-1-7"})
    links.settlements.settle(deliveries[1:], ACCEPTED)
    links.when_settled(attached.receiver, lambda _: told.append("both"))
    if in_step:
        assert told == ["nothing was settled"]
        (first,) = asked
        links.on_opened(attached.event(first))
        assert told == ["nothing was settled", "one"]
        links.when_settled(attached.receiver, lambda _: told.append("both are not known of"))
        second, third = sorted(links._named.keys() - {"c-1-7", first})
        links.on_opened(attached.event(second))
        links.on_opened(attached.event(third))
        links.when_settled(attached.receiver, lambda _: told.append("at once"))
        assert told[2:] == ["both", "both are not known of", "at once"]
    else:
        assert (asked, told) == ([], ["nothing was settled", "one", "both"])


def test_a_copy_whose_acceptances_get_no_answer_is_told_why(attached: Attached) -> None:
    """A copy is not sent if the connection is lost before the acceptances are confirmed; it gets the error."""
    attached.receiver.progress = SettlementProgress(asked=True)
    attached.links.settlements.settle(arrived(attached.receiver, "first"), ACCEPTED)
    told: list[RedeliveryError | None] = []
    attached.links.when_settled(attached.receiver, told.append)
    gone = TransportError("gone")
    attached.links.fail(gone)
    assert told == [gone]


def test_who_reads_dead_letters_needs_to_know() -> None:
    """Only a reader of dead letters waits for its acceptances before a copy."""
    for in_step in (True, False):
        command = replace(COMMAND, in_step=in_step)
        progress = ReceiverLink(command, 1, AmqpArtemis(), lambda _: None).progress
        progress.written += 1
        assert progress.doubtful is in_step


@pytest.mark.parametrize("subscription", [None, "reports"])
def test_a_durable_subscription_outlives_its_link(subscription: str | None) -> None:
    """The link of a durable subscription asks the broker to keep it for ever; no other link does."""
    command = Subscribe(7, "topic://prices", 10, subscription=subscription)
    receiver, connection = ReceiverLink(command, 1, AmqpArtemis(), lambda _: None), proton.Connection()
    receiver.attach(connection, "reports")
    source, terminus = receiver._receiver.source, proton.Terminus
    kept = source.durability == terminus.DELIVERIES, source.expiry_policy == terminus.EXPIRE_NEVER
    assert kept == (subscription is not None, subscription is not None)
