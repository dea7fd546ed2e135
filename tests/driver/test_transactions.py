"""Transacted sessions: what a commit and a rollback cover, and what a lost connection or answer makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import pull, seated
from tests.driver.twins import body_of, eventually

from redelivery import AdapterError, ConfigurationError, TransactionRolledBack, TransportError

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_a_commit_covers_what_was_received_and_sent(twin: Twin) -> None:
    """Nothing is accepted or sent before the commit, all of it with it."""
    _, session, consumer = seated(twin, "transacted", "1", "2")
    messages = pull(twin, consumer, 2)
    first = twin.call(session.send("out", "a"))
    twin.call(session.send("out", "b"))
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (2, 0)
    twin.call(session.commit())
    assert (twin.broker.depth("q"), twin.broker.depth("out")) == (0, 2)
    assert [message.outcome for message in messages] == ["accepted", "accepted"]
    assert twin.broker.messages("out")[0].message_id == first
    twin.call(session.commit())  # of nothing: nothing


def test_a_rollback_drops_what_was_sent_and_charges_what_was_received(twin: Twin) -> None:
    """What was sent vanishes; what was received comes again after its policy's delay, with its count."""
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
    """`charge=` names who failed: it ends in the dead-letter queue; the others come again at once, uncounted."""
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
    """A message of another transaction cannot be charged, and nothing is rolled back over it."""
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
    """What is rolled back beside a culprit is no deferral: it is not charged after a hundred of them."""
    _, session, consumer = seated(twin, "transacted", "1")
    for _ in range(150):
        (message,) = pull(twin, consumer, 1)
        assert message.delivery_count == 1
        twin.call(session.rollback(charge=[]))


def test_leaving_without_a_commit_rolls_back(twin: Twin) -> None:
    """At the end of `with session:`, and of the connection: the policy's count goes on for the next consumer."""
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
    """After its redeliveries the message leaves with the rollback, with the cause of the handler before it."""
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
    """AdapterError; nothing was sent, and what was received is charged, as by a rollback."""
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
    """The error says whether it is known; the messages come again with the next connection, with their count."""
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
    else:  # the broker had carried it out
        assert again is None
    assert twin.broker.depth("q") == 0


def test_an_answer_that_comes_late_settles(twin: Twin) -> None:
    """TransportError after the time-out, and nothing comes again when the broker has committed after all."""
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
    """What they send counts as abandoned until the answer comes: past the limit nothing further is sent."""
    monkeypatch.setattr("redelivery.driver.connection.pending_sends.MOST_ABANDONED", 100)
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
    """Its messages are uncharged as often as deferrals are; then each loss is a failure, up to poison."""
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
