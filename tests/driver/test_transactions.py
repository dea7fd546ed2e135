"""Transacted sessions: commit, rollback, and lost connections or answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import pull, seated
from tests.driver.twins import body_of, eventually

from redelivery import AdapterError, ConfigurationError, TransactionRolledBack, TransportError

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_a_commit_covers_what_was_received_and_sent(twin: Twin) -> None:
    """Nothing is accepted or sent before the commit; then everything is."""
    _, session, consumer = seated(twin, "transacted", "1", "2")
    messages = pull(twin, consumer, 2)
    first = twin.call(session.send("out", "a"))
    twin.call(session.send("out", "b"))
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (2, 0)
    twin.call(session.commit())
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (0, 2)
    assert [message.outcome for message in messages] == ["accepted", "accepted"]
    assert twin.broker.messages("out")[0].message_id == first
    twin.call(session.commit())  # an empty transaction


def test_a_rollback_drops_what_was_sent_and_charges_what_was_received(twin: Twin) -> None:
    """A rollback drops the sends; received messages are redelivered after their delay, with their count."""
    connection, session, consumer = seated(twin, "transacted", "1")
    (message,) = pull(twin, consumer, 1)
    twin.call(session.send("out", "never"))
    twin.call(session.rollback())
    assert message.outcome == "redelivered"
    assert twin.receive(consumer) is None
    twin.advance(5)
    (again,) = pull(twin, consumer, 1)
    assert (again.text, again.delivery_count, again.redelivered) == ("1", 2, True)
    twin.call(session.commit())
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (0, 0)
    assert connection.report().redelivered == 1


def test_only_the_culprit_is_charged(twin: Twin) -> None:
    """`charge=` names the messages to charge, here up to the DLQ; the others are redelivered at once, uncharged."""
    _, session, consumer = seated(twin, "transacted", "good", "bad")
    for attempt in range(3):
        messages = {message.text: message for message in pull(twin, consumer, 2)}
        assert {text: message.delivery_count for text, message in messages.items()} == {
            "good": 1,
            "bad": attempt + 1,
        }
        twin.call(session.rollback(charge=[messages["bad"]]))
        twin.advance(5)
    (good,) = pull(twin, consumer, 1)
    assert (good.text, good.delivery_count) == ("good", 1)
    twin.call(session.commit())
    assert [letter.body for letter in twin.broker.dead_letters()] == [b"bad"]
    assert twin.broker.depth("q") == 0


def test_a_rollback_charges_only_its_own_messages(twin: Twin) -> None:
    """A message of another transaction cannot be charged; nothing is rolled back then."""
    _, session, consumer = seated(twin, "transacted", "1", "2")
    (old,) = pull(twin, consumer, 1)
    twin.call(session.commit())
    (new,) = pull(twin, consumer, 1)
    with pytest.raises(ConfigurationError, match="is not a message of this transaction"):
        twin.call(session.rollback(charge=[old]))
    assert new.outcome is None
    twin.call(session.commit())
    assert twin.broker.depth("q") == 0


def test_innocents_are_never_charged_however_often_they_are_rolled_back(twin: Twin) -> None:
    """A message that is rolled back uncharged a hundred times is still not charged: that is no deferral."""
    _, session, consumer = seated(twin, "transacted", "1")
    for _ in range(150):
        (message,) = pull(twin, consumer, 1)
        assert message.delivery_count == 1
        twin.call(session.rollback(charge=[]))


def test_leaving_without_a_commit_rolls_back(twin: Twin) -> None:
    """Leaving `with session:`, or the connection, rolls back; the count continues for the next consumer."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(session.send("out", "never"))
    twin.call(session.close())
    twin.call(session.close())
    with pytest.raises(ConfigurationError, match="the session is closed"):
        twin.call(session.commit())
    twin.advance(5)
    again = twin.receive(twin.call(connection.consumer("q")))
    assert (body_of(again), again.delivery_count) == ("1", 2)
    assert twin.broker.depth("out") == 0


def test_a_poison_message_of_a_transaction_is_dead_lettered(twin: Twin) -> None:
    """A message without redeliveries left is dead-lettered by the rollback, with its last handler's cause."""
    connection, session, _ = seated(twin, "individual")
    del session
    transacted = connection.session("transacted")
    twin.broker.send("work", "bad")

    def handle(message: Any) -> None:
        raise ValueError("not this one")

    transacted.listen("work", twin.handler(handle))
    twin.call(connection.start())
    for _ in range(3):
        twin.advance(6)
        twin.call(transacted.rollback())
    twin.advance(1)
    (letter,) = twin.broker.dead_letters()
    assert letter.body == b"bad"
    assert letter.headers["redeliveryCause"] == "ValueError: not this one"
    assert letter.headers["redeliveryCount"] == "3"


def test_a_refused_commit_is_a_failure(twin: Twin) -> None:
    """A refused commit is an AdapterError: nothing was sent, and received messages are charged as by a rollback."""
    _, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(session.send("out", "x"))
    twin.broker.refuse_sends(1)
    with pytest.raises(AdapterError, match="refused the transaction, and rolled it back"):
        twin.call(session.commit())
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (1, 0)
    twin.advance(5)
    (again,) = pull(twin, consumer, 1)
    assert again.delivery_count == 2


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_connection_lost_rolls_back_and_charges_nothing(twin: Twin, when: str) -> None:
    """A commit on a lost connection says if its outcome is known; messages are redelivered, with their count."""
    _, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    if when == "before":
        twin.broker.cut()
        twin.advance(1)
    else:
        twin.broker.stall_confirmations()
        twin.clock.call_later(2, twin.broker.cut)
    known = "the transaction is rolled back: 1 of its 1 messages"
    told = known if when == "before" else "committed as a whole or not at all"
    with pytest.raises(TransactionRolledBack if when == "before" else TransportError, match=told):
        twin.call(session.commit(), over=3)
    twin.broker.resume_confirmations()
    twin.advance(1)
    again = twin.receive(consumer)
    if when == "before":
        assert (body_of(again), again.delivery_count) == ("1", 1)
        twin.call(session.commit())
    else:  # the broker had committed
        assert again is None
    assert twin.broker.depth("q") == 0


def test_an_answer_that_comes_late_settles(twin: Twin) -> None:
    """A commit's late answer settles: after the TransportError nothing is redelivered if the broker has committed."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.broker.stall_confirmations()
    with pytest.raises(
        TransportError, match="did not answer the commit within 5 s, and may still carry it out"
    ):
        twin.call(session.commit(timeout=5), over=5)
    assert connection.report().accepted == 0
    twin.broker.resume_confirmations()
    eventually(twin, lambda: connection.report().accepted == 1)
    assert twin.receive(consumer) is None


def test_commits_without_an_answer_do_not_fill_the_memory(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends of commits without an answer count as abandoned: past the limit nothing more is sent."""
    monkeypatch.setattr("redelivery.driver.connection.sends.MOST_ABANDONED", 100)
    connection = twin.connect("")
    session = connection.session("transacted")
    twin.broker.stall_confirmations()
    for expected in ("may still carry it out", "may still carry it out", "nothing was sent to queue://out"):
        twin.call(session.send("out", b"x" * 50))
        with pytest.raises(TransportError, match=expected):
            twin.call(session.commit(timeout=1), over=1)
    twin.broker.resume_confirmations()
    twin.call(session.send("out", "x"))
    twin.call(session.commit())
    assert twin.broker.depth("out") == 3


def test_a_transaction_that_breaks_its_connection_each_time_ends(twin: Twin) -> None:
    """A transaction that breaks its connection each time is deferred, then charged, up to poison."""
    _, session, consumer = seated(twin, "transacted", "1", options="?redelivery.maximumDeferrals=2")
    for charged in (1, 1, 1, 2, 3):
        (message,) = pull(twin, consumer, 1)
        assert message.delivery_count == charged
        twin.broker.cut()
        with pytest.raises(TransportError):
            twin.call(session.commit(), over=1)
        twin.advance(10)
    assert twin.receive(consumer) is None
    assert [letter.body for letter in twin.broker.dead_letters()] == [b"1"]
