"""Sessions: the messages that each mode acknowledges, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.seats import pull, seated
from tests.driver.twins import body_of

from redelivery import AlreadySettled, ConfigurationError, TransactionRolledBack

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_client_mode_acknowledges_all_so_far(twin: Twin) -> None:
    """In `client` mode one `accept()` is for all messages that the session has given, of every consumer."""
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
    """`recover` redelivers all unsettled messages, charged; those that were accepted alone stay accepted."""
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
    """In automatic modes `receive` accepts before it returns, as in JMS; a listener's failure goes to the policy."""
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
    """After an exception in a `client` session's listener the message stays unacknowledged; the next one follows."""
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
    """`accept()` and similar calls are refused in a transacted session, and `with message:` passes exceptions on."""
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
    """A call that a mode does not have names the modes that have it."""
    session: Any = twin.connect().session(mode)
    with pytest.raises(
        ConfigurationError, match=rf"{call}\(\) is for sessions of the mode .*, and this one is {mode}"
    ):
        twin.call(getattr(session, call)())


def test_bad_arguments(twin: Twin) -> None:
    """An unknown mode, more than one worker, and a connection that is not open are refused."""
    connection: Any = twin.connect()
    with pytest.raises(ConfigurationError, match=r"must be one of auto, .*did you mean 'transacted'"):
        connection.session("transaction")
    with pytest.raises(ConfigurationError, match="a session delivers one message at a time"):
        connection.session("auto").listen("q", lambda _: None, workers=2)
    with pytest.raises(ConfigurationError, match="not open yet"):
        twin.make().session("auto")


def test_a_consumer_that_is_gone_cannot_be_committed(twin: Twin) -> None:
    """A transaction with messages of a closed consumer is rolled back as a whole, and charges nothing."""
    connection, session, consumer = seated(twin, "transacted", "1")
    pull(twin, consumer, 1)
    twin.call(consumer.close())
    twin.call(session.send("out", "x"))
    with pytest.raises(TransactionRolledBack, match=r"rolled back: 1 of its 1 messages .* nothing was sent"):
        twin.call(session.commit())
    assert twin.broker.depth("out") == 0
    again = twin.receive(twin.call(connection.consumer("q")))
    assert (body_of(again), again.delivery_count) == ("1", 1)
