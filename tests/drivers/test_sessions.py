"""Sessions: what is settled together, and what a lost connection or an answer that does not come makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import AdapterError, AlreadySettled, ConfigurationError, TransportError

from .twins import body_of

if TYPE_CHECKING:
    from .twins import Twin

POLICY = redelivery.RedeliveryPolicyMap(
    default=redelivery.RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=5.0, redelivery_delay=5.0
    )
)


def seated(twin: Twin, mode: str, *bodies: str, options: str = "") -> tuple[Any, Any, Any]:
    """Return a connection, a session and its consumer of a queue with these messages."""
    for body in bodies:
        twin.broker.send("q", body)
    connection: Any = twin.connect(options, policies=POLICY)
    session = connection.session(mode)
    return connection, session, twin.call(session.consumer("q"))


def pull(twin: Twin, consumer: Any, count: int) -> list[Any]:
    return [twin.receive(consumer) for _ in range(count)]


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
    with pytest.raises(ConfigurationError, match="none of this transaction's messages"):
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
    """TransportError; the messages come again with the next connection, with the count that they had."""
    _, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    if when == "before":
        twin.broker.cut()
        twin.advance(1)
    else:
        twin.broker.stall_confirmations()
        twin.clock.call_later(2, twin.broker.cut)
    with pytest.raises(TransportError, match="committed as a whole or not at all"):
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
    assert wait_for(twin, lambda: connection.report().accepted == 1)
    assert twin.receive(consumer) is None


def wait_for(twin: Twin, predicate: Any) -> bool:
    """Give a thread of the library its turns."""
    for _ in range(200):
        if predicate():
            return True
        twin.advance(0.01)
    return False


def test_client_mode_acknowledges_all_so_far(twin: Twin) -> None:
    """One `accept()` is for everything that the session has given out, by whichever consumer."""
    connection, session, consumer = seated(twin, "client", "1", "2")
    twin.broker.send("other", "3")
    other = twin.call(session.consumer("other"))
    messages = [*pull(twin, consumer, 2), *pull(twin, other, 1)]
    assert connection.report().accepted == 0
    assert messages[1].accept() is True
    assert [message.outcome for message in messages] == ["accepted"] * 3
    with pytest.raises(AlreadySettled):
        messages[0].accept()
    twin.broker.send("q", "4")
    pull(twin, consumer, 1)
    twin.call(session.acknowledge())
    assert connection.report().accepted == 4


def test_recover_has_all_that_is_unsettled_come_again(twin: Twin) -> None:
    """Each is charged; what was accepted by itself stays accepted."""
    connection, session, consumer = seated(twin, "individual", "1", "2", "3")
    _, second, _ = pull(twin, consumer, 3)
    second.accept()
    twin.call(session.recover())
    twin.advance(5)
    again = pull(twin, consumer, 2)
    assert [(message.text, message.delivery_count) for message in again] == [("1", 2), ("3", 2)]
    assert connection.report().redelivered == 2


@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
def test_a_pulled_message_is_acknowledged_at_once(twin: Twin, mode: str) -> None:
    """As the reference does: a `receive` accepts before it returns; a listener's failure goes to the policy."""
    connection, session, consumer = seated(twin, mode, "1")
    (message,) = pull(twin, consumer, 1)
    assert message.outcome == "accepted"
    twin.call(session.recover())
    assert twin.broker.depth("q") == 0
    calls = []

    def handle(message: Any) -> None:
        calls.append(message.delivery_count)
        raise ValueError("bad")

    twin.broker.send("work", "bad")
    session.listen("work", twin.handler(handle))
    twin.call(connection.start())
    twin.advance(11)
    assert calls == [1, 2, 3]


def test_a_listener_of_a_client_session_goes_on(twin: Twin) -> None:
    """An exception is told, the message stays unacknowledged, and the next one is delivered, as in the reference."""
    connection, session, _ = seated(twin, "client")
    seen = []

    def handle(message: Any) -> None:
        seen.append(message.text)
        if message.text == "1":
            raise ValueError("bad")
        message.accept()

    for body in ("1", "2"):
        twin.broker.send("work", body)
    session.listen("work", twin.handler(handle))
    twin.call(connection.start())
    twin.advance(1)
    assert seen == ["1", "2"]
    assert connection.report().accepted == 2  # the acknowledgement of the second covers the first


def test_a_transacted_message_is_not_settled_by_itself(twin: Twin) -> None:
    """`accept()` and its like are refused, and `with message:` lets the exception through."""
    _, session, consumer = seated(twin, "transacted", "1")
    (message,) = pull(twin, consumer, 1)
    for settle in (message.accept, message.fail, message.poison, message.release):
        with pytest.raises(ConfigurationError, match=r"commit\(\) and rollback\(\) settle"):
            settle()

    def bad(_: Any) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        twin.inside(message, bad)
    twin.inside(message, lambda _: None)
    assert message.outcome is None
    twin.call(session.commit())
    assert message.outcome == "accepted"


@pytest.mark.parametrize(
    ("mode", "call"),
    [
        ("client", "commit"),
        ("auto", "rollback"),
        ("transacted", "recover"),
        ("transacted", "acknowledge"),
        ("individual", "acknowledge"),
    ],
)
def test_what_a_mode_does_not_have(twin: Twin, mode: str, call: str) -> None:
    """The call names the modes that have it."""
    session: Any = twin.connect().session(mode)
    with pytest.raises(
        ConfigurationError, match=rf"{call}\(\) is for sessions of the mode .*, and this one is {mode}"
    ):
        twin.call(getattr(session, call)())


def test_bad_arguments(twin: Twin) -> None:
    """A mode that does not exist, more than one worker, a connection that is not open."""
    connection: Any = twin.connect()
    with pytest.raises(ConfigurationError, match=r"must be one of auto, .*did you mean 'transacted'"):
        connection.session("transaction")
    with pytest.raises(ConfigurationError, match="a session delivers one message at a time"):
        connection.session("auto").listen("q", lambda _: None, workers=2)
    with pytest.raises(ConfigurationError, match="not open yet"):
        twin.make().session("auto")


def test_a_consumer_that_is_gone_cannot_be_committed(twin: Twin) -> None:
    """The broker has taken its messages back: the whole transaction is rolled back, and charges nothing."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(consumer.close())
    twin.call(session.send("out", "x"))
    with pytest.raises(TransportError, match="the connection of one of its messages is gone"):
        twin.call(session.commit())
    assert twin.broker.depth("out") == 0
    again = twin.receive(twin.call(connection.consumer("q")))
    assert (body_of(again), again.delivery_count) == ("1", 1)
