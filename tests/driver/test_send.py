"""Sending: confirmed, refused, not confirmed in time, and without a connection."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import AdapterError, TransportError

if TYPE_CHECKING:
    from tests.driver.twins import Twin


def test_a_confirmed_message_has_an_id(twin: Twin) -> None:
    """The id that `send` returns is the message's own."""
    connection = twin.connect()
    first, second = (twin.call(connection.send("orders", body)) for body in ("text", b"bytes"))
    held = twin.broker.messages("orders")
    assert [message.message_id for message in held] == [first, second]
    assert [message.body for message in held] == [b"text", b"bytes"]


def test_a_refused_message(twin: Twin) -> None:
    """A refused message is an AdapterError; nothing was sent, and the next message may be confirmed."""
    connection = twin.connect()
    twin.broker.refuse_sends(1)
    with pytest.raises(AdapterError, match="refused the message"):
        twin.call(connection.send("orders", "x"))
    assert twin.broker.depth("orders") == 0
    twin.call(connection.send("orders", "x"))
    assert twin.broker.depth("orders") == 1


def test_no_answer_in_time(twin: Twin) -> None:
    """A message that is not confirmed in time is a TransportError: it may have been sent."""
    connection = twin.connect()
    twin.broker.stall_confirmations()
    with pytest.raises(TransportError, match="may have been sent"):
        twin.call(connection.send("orders", "x", timeout=5), over=5)
    assert len(connection._driver._sends) == 0  # nothing is kept for the late answer
    twin.broker.resume_confirmations()
    twin.call(connection.send("orders", "y"))


def test_who_tries_again_and_again_does_not_fill_the_memory(twin: Twin) -> None:
    """Past 16 MiB of unconfirmed messages a send is refused at once, until answers or a new connection arrive."""
    connection = twin.connect()
    twin.broker.stall_confirmations()
    body = b"x" * (4 * 1024 * 1024)
    for _ in range(4):
        with pytest.raises(TransportError, match="may have been sent"):
            twin.call(connection.send("orders", body, timeout=5), over=5)
    with pytest.raises(
        TransportError,
        match=r"not confirmed 4 messages \(16777216 bytes\).*nothing was sent to queue://orders",
    ):
        twin.call(connection.send("orders", b"small"))
    assert twin.broker.depth("orders") == 4
    twin.broker.resume_confirmations()
    twin.call(connection.send("orders", b"small"))
    assert twin.broker.depth("orders") == 5


def test_a_cut_before_the_answer(twin: Twin) -> None:
    """A connection loss during `send` is a TransportError."""
    connection = twin.connect()
    twin.broker.stall_confirmations()
    future = connection._driver.send(_message(twin))
    twin.broker.cut()
    with pytest.raises(TransportError, match="cut"):
        future.result(60)


def test_each_sender_gets_an_error_of_its_own(twin: Twin) -> None:
    """Each of several senders gets an exception of its own: a shared one would have the tracebacks of all."""
    connection = twin.connect(uri=f"failover:({twin.broker.uri})?maxReconnectAttempts=0")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.stall_confirmations()
    futures = [connection._driver.send(_message(twin)) for _ in range(2)]
    twin.broker.cut(reason="gone")
    twin.advance(0)
    futures += [connection._driver.send(_message(twin)) for _ in range(2)]
    errors = [future.exception(5) for future in futures]
    for _ in range(2):
        with pytest.raises(TransportError) as caught:
            twin.receive(consumer)
        errors.append(caught.value)
    told = f"{twin.broker.uri}: gone; the message to queue://orders may have been sent"
    assert [str(error) for error in errors[:2]] == [told] * 2
    assert {str(error) for error in errors[2:]} == {"the connection was lost, and maxReconnectAttempts is 0"}
    assert len({id(error) for error in errors}) == len(errors) == 6


def _message(twin: Twin) -> object:
    from redelivery.core.outgoing import Outgoing  # noqa: PLC0415

    return Outgoing("queue://orders", b"x")


def test_while_disconnected_it_waits(twin: Twin) -> None:
    """A message that is sent while the connection is down is sent on the next one."""
    connection = twin.connect()
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.clock.call_later(5, twin.broker.accept_connections)
    twin.call(connection.send("orders", "x"), over=6)
    assert twin.broker.depth("orders") == 1


def test_connecting_and_confirming_share_the_time_out(twin: Twin) -> None:
    """`timeout` counts from the call: it includes the time of the reconnect."""
    connection = twin.connect()
    twin.broker.stall_confirmations()
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.clock.call_later(20, twin.broker.accept_connections)
    before = twin.clock.monotonic()
    with pytest.raises(TransportError, match="within 30 s; it may have been sent"):
        twin.call(connection.send("orders", "x", timeout=30), over=30)
    assert twin.clock.monotonic() == pytest.approx(before + 30)
    assert twin.broker.depth("orders") == 1


def test_while_disconnected_it_does_not_wait_for_ever(twin: Twin) -> None:
    """A message without a connection in time says that nothing was sent."""
    connection = twin.connect()
    twin.broker.refuse_connections()
    twin.broker.cut()
    before = twin.clock.monotonic()
    with pytest.raises(TransportError, match="nothing was sent"):
        twin.call(connection.send("orders", "x", timeout=5), over=5)
    assert twin.clock.monotonic() == pytest.approx(before + 5)


def test_delay_and_life_time(twin: Twin) -> None:
    """A delayed message arrives after its delay; an expired one never arrives."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.send("orders", "late", delay=5))
    twin.call(connection.send("others", "short", ttl=1))
    assert twin.receive(consumer, 4.999) is None
    assert twin.receive(consumer, 0.001).text == "late"
    other = twin.call(connection.consumer("others"))
    assert twin.receive(other, 1) is None
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["expired"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"headers": {"a": None}}, "header 'a' must be text, a boolean, .* not NoneType"),
    ({"headers": {"a": {}}}, "header 'a' must be text, .* not dict"),
    ({"headers": {"a": [1]}}, "header 'a' must be text, .* not list"),
    ({"headers": {"a": b"x"}}, "header 'a' must be text, .* not bytes"),
    ({"headers": {"a": 2**63}}, "header 'a' must be .* a whole number of 64 bits .* not 9223372036854775808"),
    ({"headers": {"a": -(2**63) - 1}}, "header 'a' must be .* a whole number of 64 bits"),
    ({"headers": {"a": float("nan")}}, "header 'a' must be .* a finite float, not nan"),
    ({"headers": {"a": float("-inf")}}, "header 'a' must be .* a finite float, not -inf"),
    ({"headers": {"a": "x\0y"}}, "header 'a' has a NUL"),
    ({"headers": {"a": "\ud800"}}, "header 'a' has a NUL or a lone surrogate"),
    ({"headers": {5: "a"}}, "header name 5 has characters"),
    ({"headers": [("a", "b")]}, "headers must be a mapping"),
    ({"headers": ""}, "headers must be a mapping"),
    ({"correlation_id": "x\0"}, "correlation_id has a NUL"),
    ({"correlation_id": 5}, "correlation_id must be text, or None, not 5"),
    ({"group": 5}, "group must be text, or None, not 5"),
    ({"content_type": 5}, "content_type must be text, or None, not 5"),
    ({"content_type": "é"}, "content_type must be a MIME type, in ASCII"),
    ({"reply_to": 5}, "reply_to must be text, or None, not 5"),
    ({"persistent": "no"}, "persistent must be True or False, not 'no'"),
    ({"priority": 4.0}, "priority must be a whole number"),
    ({"ttl": "5"}, "ttl must be a number of seconds"),
    ({"delay": float("nan")}, "delay must be a number of seconds"),
    ({"timeout": None}, "timeout must be a number"),
    ({"timeout": -1}, "timeout must be a number of seconds of 0 or more"),
]


def test_what_no_header_can_carry_is_refused(twin: Twin) -> None:
    """A header that would be dropped or changed is refused before anything is sent; in a session, too."""
    connection = twin.connect()
    session = connection.session("transacted")
    for options, told in REFUSED:
        for sender in (connection, session):
            with pytest.raises(redelivery.ConfigurationError, match=told):
                twin.call(sender.send("orders", "body", **options))
    with pytest.raises(redelivery.ConfigurationError, match="body has a lone surrogate"):
        twin.call(session.send("orders", "\ud800"))
    twin.call(session.commit())
    assert twin.broker.depth("orders") == 0


def test_a_group_among_the_headers_is_the_group(twin: Twin) -> None:
    """A group that is named as a JMS producer names it is the message's group, over every protocol."""
    connection = twin.connect()
    headers = {"JMSXGroupID": "blue", "key": "k"}
    twin.call(connection.send("orders", "a", headers=headers))
    twin.call(connection.send("orders", "b", headers=headers, group="blue"))
    held = twin.broker.messages("orders")
    assert [message.group for message in held] == ["blue", "blue"]
    assert [sorted(message.headers) for message in held] == [["key", "redeliveryId"]] * 2
    assert headers == {"JMSXGroupID": "blue", "key": "k"}, "the caller's own mapping stays"
    with pytest.raises(redelivery.ConfigurationError, match="name two groups"):
        twin.call(connection.send("orders", "c", headers=headers, group="red"))
    with pytest.raises(
        redelivery.ConfigurationError, match="must be text, as it is the message group, not int"
    ):
        twin.call(connection.send("orders", "d", headers={"JMSXGroupID": 7}))


def test_the_duplicate_id_of_a_copy_stays_behind(twin: Twin) -> None:
    """Of a redriven message's properties all but the id of its copy are sent; a producer's own id is sent."""
    connection = twin.connect()
    for own in ("redelivery:23:0:orders", "mine"):
        twin.call(connection.send("orders", "x", headers={"_AMQ_DUPL_ID": own, "tenant": "t"}))
    sent = [message.headers for message in twin.broker.messages("orders")]
    assert [each.get("_AMQ_DUPL_ID") for each in sent] == [None, "mine"]
    assert [each["tenant"] for each in sent] == ["t", "t"]


def test_values_of_enumerations_are_sent_plain(twin: Twin) -> None:
    """A subclass of `str`, `int` or `float` is sent as its plain value: AMQP has no type for it."""

    class Size(enum.IntEnum):
        SMALL = 1

    class Colour(enum.StrEnum):
        RED = "red"

    connection = twin.connect()
    given = {"size": Size.SMALL, Colour.RED: Colour.RED, "most": 2**63 - 1, "yes": True, "half": 0.5}
    twin.call(connection.send("orders", "x", headers=given, group=Colour.RED))
    (stored,) = twin.broker.messages("orders")
    found = {name: stored.headers[str(name)] for name in given}
    assert found == {"size": 1, "red": "red", "most": 2**63 - 1, "yes": True, "half": 0.5}
    assert {type(value) for value in found.values()} == {int, str, bool, float}
