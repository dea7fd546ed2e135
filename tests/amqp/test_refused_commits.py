"""Transactions that a broker refuses, or whose coordinator ends: nothing is accepted, and the session goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import ScriptedPeer, proton

import redelivery

if TYPE_CHECKING:
    from tests.amqp.peer import Conversation

TRANSACTIONAL = 0x34
# Longer than the client needs to notice the end of the connection: an earlier redelivery is rolled back again.
POLICY = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy.from_delays([0.1] * 3))


def sending(conversation: Conversation, link: Any) -> None:
    """Send one message to the consumer."""
    if link.source.address == "orders":
        conversation.send(link, proton.Message(id="1", body="x", durable=True).encode())


class Discharges:
    """Outcomes of the commits, in turn."""

    def __init__(self, *steps: str) -> None:
        self.steps = list(steps)

    def __call__(self, conversation: Conversation, link: Any, delivery: Any) -> bool:
        step = self.steps.pop(0)
        if step == "reject":
            delivery.local.condition = proton.Condition("amqp:transaction:rollback", "not today")
            delivery.update(proton.Delivery.REJECTED)
            delivery.settle()
        elif step == "detach":
            link.condition = proton.Condition("amqp:internal-error", "out of order")
            link.close()
        return step == "accept"


@pytest.mark.parametrize(
    ("step", "error", "told", "charged"),
    [
        ("reject", redelivery.AdapterError, "refused the transaction, and rolled it back: .*not today", 1),
        ("detach", redelivery.TransportError, "out of order.*committed as a whole or not at all", 0),
    ],
)
def test_a_commit_that_is_refused_or_never_answered(
    step: str, error: type[Exception], told: str, charged: int
) -> None:
    """A refused or unanswered commit replaces the connection; its message is redelivered and committed."""
    with ScriptedPeer(sending) as peer:
        peer.discharges = Discharges(step, "accept")
        with redelivery.connect(peer.uri, policies=POLICY) as connection:
            session = connection.session("transacted")
            consumer = session.consumer("orders")
            assert consumer.receive(10) is not None
            session.send("out", "x")
            with pytest.raises(error, match=told):
                session.commit()
            again = consumer.receive(10)
            assert again is not None
            assert again.redelivery_count == charged
            session.send("out", "x")
            session.commit()
            assert again.outcome == "accepted"
        assert peer.connections == 2
        assert peer.outcomes == [TRANSACTIONAL, TRANSACTIONAL]


def test_a_coordinator_that_ends_between_declare_and_discharge() -> None:
    """A coordinator that ends before the discharge settles nothing; the next transaction has a new coordinator."""
    with ScriptedPeer(sending) as peer:
        coordinators: list[Any] = []
        taken = peer.taken

        def ending(conversation: Conversation, link: Any) -> None:
            """End the coordinator when the copy arrives, instead of answering."""
            if len(coordinators) == 1:
                coordinators[0].condition = proton.Condition("amqp:internal-error", "out of order")
                coordinators[0].close()
                conversation.flush()
            taken(conversation, link)

        peer.declared = coordinators.append
        peer.taken = ending
        with redelivery.connect(peer.uri, policies=POLICY) as connection:
            session = connection.session("transacted")
            consumer = session.consumer("orders")
            assert consumer.receive(10) is not None
            session.send("out", "x")
            with pytest.raises(
                redelivery.AdapterError, match="ended the link to the transaction coordinator"
            ):
                session.commit()
            again = consumer.receive(10)
            assert again is not None
            session.send("out", "x")
            session.commit()
            assert again.outcome == "accepted"
        assert peer.connections == 1
        assert peer.outcomes == [TRANSACTIONAL]
