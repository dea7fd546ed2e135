"""An ERROR explains a loss that follows at once, and no later one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stomp.utils import Frame
from tests.stomp.peer import opening

from redelivery import AdapterError, TransportError
from redelivery.core.commands import Subscribe
from redelivery.core.events import ConnectionLost
from redelivery.core.protocol_poison import HeadOfQueue
from redelivery_stomp.connection import StompConnection
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.disconnect_cause import AT_ONCE, said
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ

if TYPE_CHECKING:
    from redelivery.adapter import AdapterEvent
    from redelivery_stomp.profile_base import StompProfile

DENIED = "User app is not authorized"


class Opened:
    """A connection that is logged in at a Classic broker, without a socket; its clock stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(
            "redelivery_stomp.disconnect_cause.time", SimpleNamespace(monotonic=lambda: self.now)
        )
        self.events: list[AdapterEvent] = []
        self.link = StompConnection(opening("stomp://h"), self.events.append)
        self.link.on_connected(Frame("CONNECTED", {"version": "1.2", "server": "ActiveMQ/5.18.3"}))
        self.link.profile, self.link._opened = StompClassic(), True

    def error(self, **headers: str) -> None:
        """Make an ERROR arrive."""
        self.link.on_error(Frame("ERROR", {"message": DENIED, **headers}, b""))

    def lose(self) -> ConnectionLost:
        """Lose the connection; return the event that is reported."""
        self.link.lost("the broker's heart-beats stopped")
        (lost,) = self.events
        assert isinstance(lost, ConnectionLost)
        return lost


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Return a connection that is logged in."""
    return Opened(monkeypatch)


def arrival(consumer: int, message_id: str) -> StompDelivery:
    """Return a message that arrived for a consumer."""
    subscription = Subscription(Subscribe(consumer, "queue://orders", window=10), 1, StompClassic(), "1.2")
    head = f"MESSAGE\ndestination:/queue/orders\nmessage-id:{message_id}\nack:{message_id}"
    return StompDelivery(subscription, head.encode(), b"x")


def test_an_error_explains_the_loss_that_follows(opened: Opened) -> None:
    """An ERROR right before the end is part of the reason."""
    opened.error()
    opened.now += AT_ONCE / 2
    assert str(opened.lose().error).endswith(f"heart-beats stopped ({DENIED})")


@pytest.mark.parametrize("claimed", [False, True])
def test_an_old_error_explains_nothing(opened: Opened, claimed: bool) -> None:
    """An old refusal, with a request or without, is not the reason of a later loss of the same connection."""
    receipts: list[Any] = []
    headers = {"receipt-id": opened.link.receipt(receipts.append)[1]} if claimed else {}
    opened.error(**headers)
    opened.now += AT_ONCE
    assert str(opened.lose().error).endswith("heart-beats stopped")
    assert [str(answer) for answer in receipts] == [DENIED] * claimed


def test_an_old_error_refuses_no_later_request(opened: Opened) -> None:
    """A SUBSCRIBE without an answer is lost with the connection, not refused by an ERROR that came before it."""
    receipts: list[Any] = []
    opened.error()
    opened.now += AT_ONCE
    opened.link.receipt(receipts.append, "q")
    opened.link.disconnect_cause.accuse(arrival(1, "another"))  # something else was refused just now
    assert opened.lose().suspect == ("queue://orders", "another", None)
    assert [type(answer) for answer in receipts] == [TransportError]


def test_an_error_right_before_the_end_refuses_the_request(opened: Opened) -> None:
    """An ERROR of Artemis that names no request refuses the first SUBSCRIBE without an answer."""
    opened.link.profile = StompArtemis()
    receipts: list[Any] = []
    opened.link.receipt(receipts.append, "q")
    opened.error()
    opened.lose()
    assert [type(answer) for answer in receipts] == [AdapterError]


def test_an_error_before_the_log_in_refuses_it(opened: Opened) -> None:
    """An ERROR before the log-in refuses the log-in."""
    opened.link._opened = False
    opened.error()
    opened.now += AT_ONCE
    with pytest.raises(AdapterError, match=DENIED):
        raise opened.link._refusal()


@pytest.mark.parametrize(
    ("said", "suspect"), [("cannot acknowledge ID-2", (2, "ID-2")), (DENIED, (3, "ID-3"))]
)
def test_a_loss_names_the_message_and_its_consumer(
    opened: Opened, said: str, suspect: tuple[int, str]
) -> None:
    """A loss names the message of the acknowledgement that the ERROR names, else the last acknowledged one."""
    opened.link.accepted([arrival(n, f"ID-{n}") for n in (1, 2, 3)])
    opened.link.on_error(Frame("ERROR", {"message": said}, b""))
    lost = opened.lose()
    assert (lost.consumer, lost.suspect) == (suspect[0], ("queue://orders", suspect[1], None))


def test_an_error_about_an_earlier_batch_names_its_message(opened: Opened) -> None:
    """An ERROR about an acknowledgement names its message, whether others have followed it or not."""
    opened.link.accepted([arrival(1, "ID-1"), arrival(2, "ID-2")])
    for batch in ([arrival(3, "ID-3")], [], [arrival(4, "ID-4")]):
        opened.link.accepted(batch)
    opened.link.on_error(Frame("ERROR", {"message": "Unexpected ACK received for message-id [ID-1]"}, b""))
    lost = opened.lose()
    assert (lost.consumer, lost.suspect) == (1, ("queue://orders", "ID-1", None))


def test_nothing_acknowledged_in_between_changes_nothing(opened: Opened) -> None:
    """The last acknowledged message stays the suspect if a later write acknowledges nothing."""
    opened.link.accepted([arrival(1, "ID-1")])
    opened.link.accepted([])
    opened.link._last_arrived = arrival(2, "ID-2")
    opened.error()
    assert opened.lose().consumer == 1


def test_a_loss_out_of_the_blue_names_nobody(opened: Opened) -> None:
    """A loss without an ERROR accuses no message."""
    opened.link.accepted([arrival(1, "ID-1")])
    lost = opened.lose()
    assert (lost.consumer, lost.suspect) == (None, None)


# As Artemis 2.40.0 sends it, over a body that it cannot convert.
ENDED = (
    "consumer with ID ServerConsumerImpl [id=137, filter=null, binding=LocalQueueBinding [address={0}, queue=QueueImpl["
    "name={1}, postOffice=PostOfficeImpl [server=ActiveMQServerImpl::name=127.0.0.1], temp=false]@161b7e82, "
    "filter=null, name={1}, clusterName={1}7434b56c], closed=true] disconnected by server"
)


def on_artemis(opened: Opened, consumer: int, destination: str) -> StompDelivery:
    """Make the connection one to Artemis with a consumer; return a message of it that was acknowledged."""
    opened.link.profile = profile = StompArtemis()
    subscription = Subscription(Subscribe(consumer, destination, window=10), 1, profile, "1.2")
    opened.link.subscriptions.begin(str(consumer), subscription)
    address = profile.address(destination)
    head = f"MESSAGE\ndestination:{address}\nmessage-id:32,{consumer}\nack:32,{consumer}"
    delivery = StompDelivery(subscription, head.encode(), b"x")
    opened.link.accepted([delivery])
    opened.link._last_arrived = delivery
    return delivery


@pytest.mark.parametrize(
    ("destination", "address", "queue"),
    [
        ("queue://orders", "orders", "orders"),
        ("topic://orders", "orders", "client.name"),
        ("topic://a.>", "a.#", "client.name"),
        ("native://orders::eu", "orders", "eu"),
    ],
)
def test_a_consumer_that_artemis_ends_names_its_queue_and_no_message(
    opened: Opened, destination: str, address: str, queue: str
) -> None:
    """The end of a consumer is about the head of the queue of that consumer, and refuses no SUBSCRIBE."""
    on_artemis(opened, 1, "queue://other")
    on_artemis(opened, 2, destination)
    on_artemis(opened, 3, "queue://another")
    receipts: list[Any] = []
    opened.link.receipt(receipts.append, "q")
    opened.link.on_error(Frame("ERROR", {}, ENDED.format(address, queue).encode()))
    (lost,) = opened.events
    assert isinstance(lost, ConnectionLost)
    assert isinstance(lost.suspect, HeadOfQueue)
    assert (lost.consumer, lost.suspect.destination) == (2, destination)
    assert "use AMQP" in lost.suspect.cure
    assert [type(answer) for answer in receipts] == [TransportError]


def test_a_consumer_of_nobody_accuses_nobody(opened: Opened) -> None:
    """The end of a consumer that has ended here accuses neither a message nor a queue."""
    on_artemis(opened, 1, "queue://other")
    opened.link.on_error(Frame("ERROR", {}, ENDED.format("orders", "orders").encode()))
    (lost,) = opened.events
    assert isinstance(lost, ConnectionLost)
    assert (lost.consumer, lost.suspect) == (None, None)


@pytest.mark.parametrize("with_receipt", [False, True])
def test_an_acknowledgement_that_comes_after_the_end_of_its_consumer_accuses_the_queue(
    opened: Opened, with_receipt: bool
) -> None:
    """A message that Artemis has taken back before its ACK is not the cause; the head of its queue is."""
    delivery = on_artemis(opened, 1, "queue://orders")
    if with_receipt:
        opened.link.disconnect_cause.refused(delivery, takes_back=StompArtemis.takes_back)
        opened.link.lost("the broker closed the connection")
    else:
        opened.link.on_error(Frame("ERROR", {"message": "AMQ339018 Error acknowledging message 32,1"}, b""))
    (lost,) = opened.events
    assert isinstance(lost, ConnectionLost)
    assert isinstance(lost.suspect, HeadOfQueue)
    assert (lost.consumer, lost.suspect.destination) == (1, "queue://orders")


ABOUT_NOTHING = [
    (StompArtemis, "AMQ339025 failed to ack because no message with id 9,1"),
    (StompArtemis, "AMQ339018 Error acknowledging message 10,12"),
    (StompArtemis, "AMQ229014: Did not receive data from /127.0.0.1:1 within the 4000ms connection TTL."),
    (StompClassic, "Unexpected ACK received for message-id [null]"),
    (StompClassic, "Unexpected NACK received for message-id [null]"),
    (StompRabbitMQ, "Subscription not found"),
    (StompRabbitMQ, "No subscription found"),
    (StompRabbitMQ, "precondition_failed: PRECONDITION_FAILED - unknown delivery tag 1"),
    (StompRabbitMQ, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"),
]


@pytest.mark.parametrize(("broker", "said"), ABOUT_NOTHING)
def test_an_error_about_something_else_hits_nobody(
    opened: Opened, broker: type[StompProfile], said: str
) -> None:
    """An ERROR about an earlier ACK, or about heart-beats, refuses no SUBSCRIBE and accuses no other message."""
    opened.link.profile = broker()
    receipts: list[Any] = []
    opened.link.accepted([arrival(1, "10,1")])
    opened.link.receipt(receipts.append, "q")
    opened.link.on_error(Frame("ERROR", {"message": said}, b""))
    lost = opened.events[0] if opened.link.profile.closes else opened.lose()
    assert isinstance(lost, ConnectionLost)
    assert (lost.consumer, lost.suspect) == (None, None)
    assert [type(answer) for answer in receipts] == [TransportError]


@pytest.mark.parametrize("said", [said for broker, said in ABOUT_NOTHING if broker is not StompClassic])
def test_the_words_of_another_broker_mean_nothing(opened: Opened, said: str) -> None:
    """The text of another broker refuses a request, like any unknown text."""
    own = (
        StompRabbitMQ
        if any(said == text for broker, text in ABOUT_NOTHING if broker is StompArtemis)
        else StompArtemis
    )
    opened.link.profile = own()
    receipts: list[Any] = []
    opened.link.receipt(receipts.append, "q")
    opened.link.on_error(Frame("ERROR", {"message": said}, b""))
    opened.lose()
    assert [type(answer) for answer in receipts] == [AdapterError]


def test_an_error_about_an_acknowledgement_names_its_message(opened: Opened) -> None:
    """An ERROR names the message whose whole id it has, not one whose id is a part of that."""
    opened.link.accepted([arrival(1, "10,1"), arrival(2, "10,12"), arrival(3, "10,123")])
    opened.link.on_error(Frame("ERROR", {"message": "AMQ339018 Error acknowledging message 10,12"}, b""))
    assert opened.lose().consumer == 2


def test_an_old_accusation_holds_no_longer(opened: Opened) -> None:
    """A message that was accused more than a second ago did not end the connection."""
    opened.link.disconnect_cause.accuse(arrival(1, "ID-1"))
    opened.now += AT_ONCE
    assert opened.lose().suspect is None


def test_the_refusal_of_a_message_refuses_no_subscription(opened: Opened) -> None:
    """An ERROR that names no request may refuse a SUBSCRIBE without an answer, but no SEND."""
    opened.link.profile = StompArtemis()
    receipts: list[Any] = []
    opened.link.receipt(lambda error: receipts.append(("send", type(error))))
    opened.link.receipt(lambda error: receipts.append(("subscribe", type(error))), "q")
    opened.error()
    opened.lose()
    assert sorted(receipts) == [("send", TransportError), ("subscribe", AdapterError)]


def test_an_error_with_a_name_after_one_without_refuses_nothing_else(opened: Opened) -> None:
    """Only the last ERROR counts: it names its request, and refuses nothing else."""
    receipts: list[Any] = []
    named = opened.link.receipt(lambda _: None)[1]
    opened.link.receipt(receipts.append, "q")
    opened.error()
    opened.error(**{"receipt-id": named})
    opened.lose()
    assert [type(answer) for answer in receipts] == [TransportError]


def test_a_stream_is_not_sent_to_the_other_protocol() -> None:
    """RabbitMQ's refusal of a stream says what to do instead; AMQP, which refuses it too, is not named."""
    text = said(
        {
            "message": "inequivalent arg 'x-queue-type' for queue 'log': received 'classic' but current is 'stream'"
        },
        b"",
    )
    assert "bind a quorum or classic queue" in text
    assert "AMQP" not in text


def test_no_property_of_a_message_is_in_the_text_of_an_error() -> None:
    """Artemis prints a message that it refuses with all its properties; the text here has none of them."""
    dump = "CoreMessage[messageID=5, address=DLQ, properties=TypedProperties[token=s3cret, a=]@1]]@885514809"
    text = said({"message": f"AMQ339011 Error sending message {dump}"}, b"")
    assert text.startswith("AMQ339011 Error sending message: Artemis sends the reason over AMQP only")
    assert "s3cret" not in text
