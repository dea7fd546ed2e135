"""Artemis over STOMP: its management is asked before a consumer begins, over a connection of its own."""

from __future__ import annotations

import json
import re
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually
from tests.stomp.peer import PATIENCE, ScriptedPeer

import redelivery
from redelivery import Classifier, RedeliveryPolicy
from redelivery.core.dead_lettering import artemis_management
from redelivery_stomp import artemis_questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_RETRY = redelivery.RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
QUEUE = {"name": "q", "address": "q", "filter": "", "routingType": "ANYCAST"}
EU = "region = 'eu'"


def headers_of(frame: bytes) -> dict[str, str]:
    """Return the headers of a frame that was sent to the broker."""
    lines = frame.partition(b"\n\n")[0].decode().split("\n")[1:]
    return {
        name: value.replace("\\c", ":")
        for name, _, value in (each.partition(":") for each in reversed(lines))
    }


class Artemis(ScriptedPeer):
    """Artemis with a dead-letter queue for each address, made when it is asked for; each consumer gets one message."""

    connected = b"CONNECTED\nversion:1.2\nserver:ActiveMQ-Artemis/2.40.0\nheart-beat:0,0\n\n\0"

    def __init__(self) -> None:
        self.address = "DLA"
        self.queues: list[dict[str, str]] = []
        self.refuses = b""  # frames that begin so are answered with an ERROR, which ends the connection
        self.silent = threading.Event()
        self.full = ""  # an address that takes no message
        self.cuts = 0  # questions over which the connection ends without an ERROR
        self.asked: list[str] = []
        self.copies: list[dict[str, str]] = []
        self.tried: list[str] = []  # destinations of SENDs in a transaction, which is aborted
        self.consumers: list[str] = []
        self.answers: Callable[[str, list[Any]], object] = self.told
        # Ids of the subscriptions for answers, by the beginning of the marks.
        self._subscribers: dict[str, str] = {}
        self._numbers = count(1)
        super().__init__(lambda _: [])

    def told(self, operation: str, arguments: list[Any]) -> object:
        """Return the value of an answer; an exception: a refusal in an answer."""
        if operation == "getAddressSettingsAsJSON":
            own = {"deadLetterAddress": self.address, "autoCreateDeadLetterResources": self.address == "DLA"}
            return json.dumps(own)
        if operation == "createQueue":
            made = json.loads(arguments[0])
            kind = {"filter": made.get("filter-string", ""), "routingType": made["routing-type"]}
            self.queues.append({**QUEUE, "name": made["name"], "address": made["address"], **kind})
            return "{}"
        wanted = json.loads(arguments[0])
        found = [each for each in self.queues if each[wanted["field"].lower()] == wanted["value"]]
        return json.dumps({"data": found, "count": len(found)})

    def error_over(self, frame: bytes) -> bytes | None:
        told = headers_of(frame)
        about = told.get("destination", "")
        if self.refuses and frame.startswith(self.refuses) and "management" in about:
            return b"ERROR\nmessage:AMQ229032 no permission\n\n\0"
        if self.full and frame.startswith(b"SEND") and about.partition("::")[0] == self.full:
            number = told["receipt"].encode()
            return b"ERROR\nreceipt-id:%b\nmessage:AMQ339011 Error sending message\n\n\0" % number
        return None

    def ends_over(self, frame: bytes) -> bool:
        ends = self.cuts > 0 and b"destination:activemq.management" in frame
        self.cuts -= ends
        return ends

    def also(self, frame: bytes) -> bytes:
        command, told = frame.partition(b"\n")[0], headers_of(frame)
        destination = told.get("destination", "")
        if command == b"SUBSCRIBE" and destination == "redelivery.management":
            (marks,) = re.findall("LIKE '(.*)%'", told["selector"])
            self._subscribers[marks] = told["id"]
        elif command == b"SUBSCRIBE":
            self.consumers.append(destination)
            if "." not in told["id"].rpartition("-")[2]:
                return self._message(told["id"], b"x", f"destination:{destination}")
        elif command == b"SEND" and destination == "activemq.management":
            return self._answer(told, frame.partition(b"\n\n")[2])
        elif command == b"SEND" and "transaction" in told:
            self.tried.append(destination)
        elif command == b"SEND":
            self.copies.append(told)
        return b""

    def _answer(self, told: dict[str, str], body: bytes) -> bytes:
        operation, mark = told["_AMQ_OperationName"], told["correlation-id"]
        self.asked.append(operation)
        if self.silent.is_set():
            return b""
        value = self.answers(operation, json.loads(body))
        failed = isinstance(value, Exception)
        return self._message(
            self._subscribers[mark.partition("-")[0]],
            json.dumps([str(value) if failed else value]).encode(),
            f"correlation-id:{mark}",
            f"_AMQ_OperationSucceeded:{str(not failed).lower()}",
        )

    def _message(self, identity: str, body: bytes, *lines: str) -> bytes:
        number = f"{identity},{next(self._numbers)}"
        named = [f"subscription:{identity}", f"message-id:{number}", f"ack:{number}", "timestamp:1", *lines]
        head = "\n".join(["MESSAGE", *named, f"content-length:{len(body)}"])
        return head.encode() + b"\n\n" + body + b"\0\n"


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Artemis]:
    """Return such a broker; a question without an answer is tried again soon."""
    monkeypatch.setattr(artemis_management, "PAUSE", 0.01)
    # A busy machine may answer later than `LATE`, several times.
    monkeypatch.setattr(artemis_management, "LONGEST", 0.05)
    monkeypatch.setattr(artemis_questions, "LATE", 0.3)
    with Artemis() as broker:
        yield broker


def connected(peer: Artemis, options: str = "") -> redelivery.Connection:
    """Return a connection whose messages are not redelivered."""
    uri = f"failover:({peer.uri})?initialReconnectDelay=1&maxReconnectDelay=5{options}"
    return redelivery.connect(uri, policies=NO_RETRY)


def fail(message: redelivery.Message) -> None:
    """Handle no message."""
    raise ValueError(message.text)


def test_copies_go_where_the_broker_would_put_them(peer: Artemis) -> None:
    """The place is asked for before the consumer begins, and the copy goes there, with what its queue compares."""
    before = ["getAddressSettingsAsJSON", "listQueues", "listQueues", "createQueue"]
    with connected(peer) as connection:
        connection.listen("orders", fail)
        connection.start()
        assert peer.asked[:4] == before
        eventually(lambda: connection.report().poisoned == 1)
    assert peer.asked == [*before, "listQueues"], "and its queue, before the copy"
    (copy,) = peer.copies
    assert copy["destination"] == "DLA::DLQ.orders"
    assert copy["_AMQ_ORIG_ADDRESS"] == "orders"
    assert "destination-type" not in copy


def test_the_address_of_the_queue_is_in_the_copy(peer: Artemis) -> None:
    """A queue can belong to another address, which the filter of the dead-letter queue compares."""
    peer.queues = [{**QUEUE, "name": "orders", "address": "shop"}]
    with connected(peer) as connection:
        connection.listen("orders", fail)
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
    assert [(each["destination"], each["_AMQ_ORIG_ADDRESS"]) for each in peer.copies] == [
        ("DLA::DLQ.shop", "shop")
    ]


HOW = pytest.mark.parametrize("how", ["connection", "map", "consumer", "exception"])


def named(how: str, place: str) -> tuple[str, dict[str, Any]]:
    """Return the options of the URI, and of the consumer, that name a place."""
    given = {
        "connection": f"&redelivery.deadLetterDestination={place}",
        "map": f"&redelivery.deadLetterMap.orders.destination={place}",
    }
    options: dict[str, Any] = {
        "consumer": {"dead_letter": place},
        "exception": {"errors": Classifier().poison(ValueError, to=place), "dead_letter": "other"},
    }
    return given.get(how, ""), options.get(how, {})


@HOW
def test_a_place_that_drops_dead_letters_is_refused(peer: Artemis, how: str) -> None:
    """Wherever it is named, the error has place, queue and filter, and no message is taken."""
    peer.queues = [{**QUEUE, "filter": EU}]
    uri, options = named(how, "q")
    with (
        connected(peer, uri) as connection,
        pytest.raises(redelivery.AdapterError, match=f"queue://q cannot be used: q::q takes only .* {EU}"),
    ):
        connection.consumer("orders", **options)
    assert (peer.consumers, peer.copies) == ([], [])


@HOW
@pytest.mark.parametrize("more", [[], [{**QUEUE, "name": "audit"}]], ids=["alone", "beside"])
def test_one_letter_at_an_address_with_more_queues(
    peer: Artemis, how: str, more: list[dict[str, str]]
) -> None:
    """The letter is sent to the queue by its address and name, and without a kind, where the address has more."""
    peer.queues = [QUEUE, *more]
    uri, options = named(how, "q")
    with connected(peer, uri) as connection:
        connection.listen("orders", fail, **options)
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
    (copy,) = peer.copies
    expected = ("q::q", None) if more else ("q", "ANYCAST")
    assert (copy["destination"], copy.get("destination-type")) == expected


def test_a_queue_that_is_not_there_is_no_place(peer: Artemis) -> None:
    """Where the check has made no queue of that name, Artemis would confirm each letter, and drop it."""
    with (
        connected(peer) as connection,
        pytest.raises(redelivery.AdapterError, match="the queue DLA::none is not there"),
    ):
        connection.consumer("orders", dead_letter="native://DLA::none")


def test_a_topic_is_not_asked_for(peer: Artemis) -> None:
    """A topic keeps what its subscribers keep, and no second connection is made."""
    with connected(peer) as connection, connection.consumer("orders", dead_letter="topic://t"):
        pass
    assert (peer.asked, peer.connections) == ([], 1)


def test_a_consumer_of_its_own_place_is_refused(peer: Artemis) -> None:
    """A consumer of the queue where the broker puts its dead letters gets no message."""
    peer.address = "orders"
    with (
        connected(peer) as connection,
        pytest.raises(redelivery.ConfigurationError, match="gets its own dead letters"),
    ):
        connection.consumer("orders")
    assert peer.consumers == []


def test_a_known_place_whose_queue_cannot_be_made(peer: Artemis) -> None:
    """The consumer is refused: the place is known, and there is no other right one."""
    peer.answers = lambda operation, arguments: (
        RuntimeError("no right to make queues")
        if operation == "createQueue"
        else peer.told(operation, arguments)
    )
    with (
        connected(peer) as connection,
        pytest.raises(redelivery.AdapterError, match=r"DLA::DLQ\.orders, by .*no right to make queues"),
    ):
        connection.consumer("orders")
    assert peer.consumers == []


def test_after_a_reconnect_the_broker_is_asked_again(peer: Artemis) -> None:
    """Copies go to the new place, and a place that has begun to drop refuses the consumer."""
    with connected(peer) as connection:
        connection.listen("orders", fail)
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
        peer.address = "elsewhere"
        peer.queues = [{**QUEUE, "name": "elsewhere", "address": "elsewhere"}]
        link: Any = connection._driver._adapter
        link._link.transport.disconnect_socket()
        eventually(lambda: connection.report().poisoned == 2)
    assert [each["destination"] for each in peer.copies] == ["DLA::DLQ.orders", "elsewhere"]


def test_a_place_that_has_become_full_keeps_no_consumer(
    peer: Artemis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer starts again though its dead letters are refused; they go to the queue alone, once there is room."""
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.02)
    peer.queues = [{**QUEUE, "name": name, "address": "place"} for name in ("place", "other")]

    def handle(message: redelivery.Message) -> None:
        if peer.connections == 2:  # the first for messages, and that for questions
            peer.full = "place"
        fail(message)

    with connected(peer, "&redelivery.deadLetterDestination=place") as connection:
        connection.listen("orders", handle)
        connection.start()
        eventually(lambda: connection.health().connection.reconnects >= 1)
        eventually(lambda: connection.health().consumers[0].state == "consuming")
        peer.full = ""
        eventually(lambda: connection.report().poisoned == 1)
    assert {each["destination"] for each in peer.copies} == {"place::place"}


def test_a_copy_with_an_id_follows_a_try_without_one(peer: Artemis) -> None:
    """Artemis would keep the id of a copy that it refuses, and confirm and drop the next one with it."""
    peer.queues = [QUEUE]
    with connected(peer, "&redelivery.deadLetterDestination=q") as connection:
        connection.listen("orders", fail)
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
    (copy,) = peer.copies
    assert "_AMQ_DUPL_ID" in copy
    assert peer.tried == ["q", copy["destination"]], "at the start, and before the copy"


def test_a_copy_waits_while_nothing_takes_it(peer: Artemis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues of its place are asked for again when their list is old; then the copy is refused here, or sent."""
    monkeypatch.setattr(artemis_management, "FRESH", 0.0)
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.02)
    good, other = {**QUEUE}, {**QUEUE, "name": "other", "routingType": "MULTICAST"}
    peer.queues = [good]

    def handle(message: redelivery.Message) -> None:
        peer.queues = [other]
        fail(message)

    with connected(peer, "&redelivery.deadLetterDestination=q") as connection:
        connection.listen("orders", handle)
        connection.start()
        eventually(lambda: connection.health().consumers[0].unconfirmed_cause is not None)
        assert "the address q has no anycast queue" in str(connection.health().consumers[0].unconfirmed_cause)
        assert peer.copies == []
        peer.queues = [good, other]
        eventually(lambda: connection.report().poisoned == 1)
        assert connection.health().connection.reconnects == 0
    assert [each["destination"] for each in peer.copies] == ["q::q"]


def test_a_refused_consumer_begins_once_its_place_is_mended(
    peer: Artemis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for again over the connection that stands, and the management is asked again."""
    monkeypatch.setattr(artemis_management, "FRESH", 0.0)
    monkeypatch.setattr("redelivery.driver.connection.refused_consumers.FIRST", 0.02)
    peer.queues = [QUEUE]
    with connected(peer, "&redelivery.deadLetterDestination=q") as connection:
        connection.listen("orders", lambda _: None)
        connection.start()
        eventually(lambda: connection.report().accepted == 1)
        peer.queues = [{**QUEUE, "filter": EU}]
        link: Any = connection._driver._adapter
        link._link.transport.disconnect_socket()
        eventually(lambda: connection.health().consumers[0].refusal is not None)
        peer.queues = [QUEUE]
        eventually(lambda: connection.report().accepted == 2)
        assert connection.health().connection.reconnects == 1


def test_each_question_is_asked_once(peer: Artemis) -> None:
    """Two consumers with one place ask for it once; two of one queue ask for its settings once."""
    peer.queues = [QUEUE]
    with connected(peer) as connection:
        for name in ("a", "b"):
            with connection.consumer(name, dead_letter="q"):
                pass
        assert peer.asked == ["listQueues", "listQueues"], "by address, and by name"
        for _ in range(2):
            with connection.consumer("a"):
                pass
    assert peer.asked.count("getAddressSettingsAsJSON") == 1
    assert peer.connections == 2


@pytest.mark.parametrize("frame", [b"SUBSCRIBE", b"SEND"])
@pytest.mark.parametrize("place", [None, "q"], ids=["own", "named"])
def test_without_the_right_there_is_one_warning(
    peer: Artemis, caplog: pytest.LogCaptureFixture, frame: bytes, place: str | None
) -> None:
    """The place is the usual one, or counts as good; nothing is asked again, and no consumer is cut."""
    peer.refuses = frame
    with connected(peer) as connection:
        for name in ("orders", "other", "third"):
            connection.listen(name, fail, dead_letter=place)
        connection.start()
        eventually(lambda: connection.report().poisoned == 3)
        assert connection.health().connection.reconnects == 0
    (warning,) = [each.message for each in caplog.records if "right to manage" in each.message]
    assert "AMQ229032 no permission" in warning
    assert "topic://redelivery.management" in warning
    assert ("redelivery.deadLetterDestination" in warning) is (place is None)
    assert {each["destination"] for each in peer.copies} == {place or "DLQ"}
    assert peer.connections == 2


def test_without_an_answer_no_consumer_without_a_named_place_begins(
    peer: Artemis, caplog: pytest.LogCaptureFixture
) -> None:
    """No place is guessed: it waits, others begin meanwhile; with the answer it begins, too."""
    peer.silent.set()
    with connected(peer) as connection:
        # No public way waits for less than 30 s.
        beginning = connection._driver.subscribe(connection._dispatcher("orders", {}))
        eventually(lambda: len(peer.asked) > 1)
        with connection.consumer("other", dead_letter="q"):
            assert (peer.consumers[0], beginning.done()) == ("other", False)
        peer.silent.clear()
        beginning.result(PATIENCE)
        assert "orders" in peer.consumers
    assert "right to manage" not in caplog.text


def test_a_connection_that_ends_during_the_question(peer: Artemis, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again: the loss is neither a refusal nor a missing right."""
    peer.cuts, peer.queues = 1, [{**QUEUE, "filter": EU}]
    with connected(peer) as connection:
        with pytest.raises(redelivery.AdapterError, match="takes only messages"):
            connection.consumer("orders", dead_letter="q")
        peer.cuts = 2
        with connection.consumer("orders"):
            pass
    assert peer.asked.count("createQueue") == 1
    assert "right to manage" not in caplog.text


def test_the_consumers_connection_ends_during_the_question(peer: Artemis) -> None:
    """The next connection asks again, and then the consumer begins, once."""
    peer.silent.set()
    with connected(peer) as connection:
        beginning = connection._driver.subscribe(connection._dispatcher("orders", {}))
        eventually(lambda: peer.asked != [])
        link: Any = connection._driver._adapter
        link._link.transport.disconnect_socket()
        eventually(lambda: connection.health().connection.reconnects == 1)
        peer.silent.clear()
        beginning.result(PATIENCE)
        assert peer.consumers == ["orders"]


def test_the_connection_for_questions_is_closed_when_nobody_asks(
    peer: Artemis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread ends after a while without a question; the next question makes another one."""
    monkeypatch.setattr(artemis_questions, "IDLE", 0.02)

    def asking() -> bool:
        return any(each.name == "redelivery-questions" for each in threading.enumerate())

    with connected(peer) as connection:
        for number, name in enumerate(("a", "b"), 2):
            with connection.consumer(name):
                eventually(lambda: not asking())
            assert peer.connections == number
    assert not asking()
