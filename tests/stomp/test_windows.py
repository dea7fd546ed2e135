"""The window over STOMP is the credit; further subscriptions add room for parked messages, and end after them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_refused import Wire

from redelivery.core.commands import Accept, Credit, Subscribe, Unsubscribe
from redelivery.core.events import Arrived
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery
    from redelivery_stomp.profile_base import StompProfile

WINDOW = re.compile(rb"(?:prefetchSize|window-size|prefetch-count):(\d+)\n")
ID = re.compile(rb"\nid:TOKEN-([^\n]+)\n")


def answer_all(wire: Wire) -> None:
    """Answer each SUBSCRIBE and UNSUBSCRIBE, including those that follow an answer."""
    done = 0
    while done < len(wire.written):
        frame = wire.written[done]
        done += 1
        if frame.startswith((b"SUBSCRIBE", b"UNSUBSCRIBE")) and b"\nreceipt:" in frame:
            head, _, tail = frame.partition(b"\nreceipt:")
            wire.read(b"RECEIPT\nreceipt-id:%b\n\n\0" % tail.partition(b"\n")[0])
            assert head


def subscribed(wire: Wire) -> list[tuple[str, int]]:
    """Return id and window of each SUBSCRIBE that was written since the last call."""
    answer_all(wire)
    found = [
        (ID.findall(each)[0].decode(), int(WINDOW.findall(each)[0]))
        for each in wire.written
        if each.startswith(b"SUBSCRIBE")
    ]
    wire.written.clear()
    return found


def begun(
    monkeypatch: pytest.MonkeyPatch, profile: StompProfile, command: Subscribe
) -> tuple[Wire, list[tuple[str, int]]]:
    """Return a connection with a consumer, and the subscriptions that it started with."""
    wire = Wire(monkeypatch, profile)
    wire.adapter.execute((command,))
    return wire, subscribed(wire)


def came(wire: Wire, *names: str, group: bool = False, size: int = 1) -> list[Delivery]:
    """Make a message arrive on each of these subscriptions; return those that the consumer gets."""
    before = len(wire.events)
    for number, name in enumerate(names):
        wire.read(
            b"MESSAGE\nsubscription:TOKEN-%b\nmessage-id:%b,%d\nack:a-%d%d\ndestination:orders\n%b\n%b\0"
            % (name.encode(), name.encode(), number, len(wire.events), number,
               b"_AMQ_GROUP_ID:g\n" if group else b"", b"x" * size)
        )  # fmt: skip
    return [each for event in wire.events[before:] if isinstance(event, Arrived) for each in event.deliveries]


QUEUE = Subscribe(1, "queue://orders", window=4, room=1000)


@pytest.mark.parametrize(
    ("profile", "windows"),
    [
        (StompClassic(), [("1", 4)]),
        (StompRabbitMQ(), [("1", 4)]),
        (StompArtemis(), [("1", 4 * 320)]),
    ],
)
def test_the_window_is_the_credit(
    monkeypatch: pytest.MonkeyPatch, profile: StompProfile, windows: list[tuple[str, int]]
) -> None:
    """The window is the credit, without the messages that may be parked; on Artemis, the bytes of small messages."""
    assert begun(monkeypatch, profile, QUEUE)[1] == windows


@pytest.mark.parametrize("number", [33, 1000])
def test_a_wide_window_is_in_bytes_on_artemis(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A wide window on Artemis has 1 kB for each message of the credit, in one subscription."""
    command = Subscribe(1, "queue://orders", window=number, room=1000)
    assert begun(monkeypatch, StompArtemis(), command)[1] == [("1", 1024 * number)]


@pytest.mark.parametrize(
    ("destination", "ordering", "windows"),
    [
        ("topic://news", "non_blocking", {"activemq": 1004, "artemis": 1004 * 1024, "rabbitmq": 1004}),
        ("queue://orders", "blocking", {"activemq": 4, "artemis": 4 * 1024, "rabbitmq": 4}),
        ("queue://orders", "per_group", {"activemq": 4, "artemis": 1004 * 1024, "rabbitmq": 4}),
        ("native:///queue/a", "non_blocking", {"activemq": 1004, "artemis": 1004 * 1024, "rabbitmq": 1004}),
    ],
)
@pytest.mark.parametrize("profile", [StompClassic(), StompArtemis(), StompRabbitMQ()])
def test_one_subscription_where_order_or_copies_need_it(
    monkeypatch: pytest.MonkeyPatch,
    profile: StompProfile,
    destination: str,
    ordering: str,
    windows: dict[str, int],
) -> None:
    """A consumer starts with one subscription, with its whole window if further ones would copy or reorder messages."""
    command = Subscribe(1, destination, window=4, room=1000, ordering=ordering)  # type: ignore[arg-type]
    wire, first = begun(monkeypatch, profile, command)
    assert first == [("1", windows[profile.capabilities.broker])]
    wire.adapter.execute((Credit(1, 5),))
    assert bool(subscribed(wire)) is profile.grows(command)


def test_an_exclusive_subscription_has_all_its_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exclusive subscription has its whole window from the begin: Classic sends nothing to a further one."""
    command = Subscribe(1, "queue://orders?consumer.exclusive=true", window=4, room=160)
    assert begun(monkeypatch, StompClassic(), command)[1] == [("1", 164)]


def test_room_for_parked_messages_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parked message gets one subscription, which ends after the acknowledgement of its message."""
    wire, first = begun(monkeypatch, StompClassic(), QUEUE)
    wire.adapter.execute((Credit(1, 2),))
    further = [f"1.{number}" for number in range(len(first), len(first) + 2)]
    assert subscribed(wire) == [(name, 1) for name in further]
    by_first, *others = came(wire, "1", *further)
    wire.adapter.execute((Credit(1, -2),))
    assert wire.written == []
    wire.adapter.execute((Accept([by_first]),))
    assert wire.commands() == [b"ACK"]
    wire.written.clear()
    wire.adapter.execute((Accept(others),))
    assert wire.commands() == [b"ACK", b"ACK", b"UNSUBSCRIBE", b"UNSUBSCRIBE"]
    assert came(wire, *further) == []
    answer_all(wire)
    # Artemis sends some messages after the RECEIPT.
    assert came(wire, "1.1") == []
    wire.written.clear()
    wire.adapter.execute((Credit(1, 1),))
    assert [name for name, _ in subscribed(wire)] == [f"1.{len(first) + 2}"]


def test_room_that_is_needed_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription that has not ended is used again when room is needed."""
    wire, _ = begun(monkeypatch, StompClassic(), QUEUE)
    wire.adapter.execute((Credit(1, 3),))
    assert len(subscribed(wire)) == 3
    wire.adapter.execute((Credit(1, -2), Credit(1, 3)))
    assert subscribed(wire) == [("1.4", 1)]
    wire.adapter.execute((Accept(came(wire, "1.1", "1.2")),))
    assert wire.commands() == [b"ACK", b"ACK"]


def test_on_rabbitmq_room_comes_in_one_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ has one further subscription, which stays; all end before the first message is released."""
    wire, _ = begun(monkeypatch, StompRabbitMQ(), QUEUE)
    wire.adapter.execute((Credit(1, 3),))
    assert subscribed(wire) == [("1.1", 3)]
    one, _ = came(wire, "1.1", "1")
    wire.adapter.execute((Credit(1, -3), Accept([one])))
    assert wire.commands() == [b"ACK"]
    wire.written.clear()
    wire.adapter.execute((Unsubscribe(1),))
    assert wire.commands() == [b"UNSUBSCRIBE"] * 2 + [b"SUBSCRIBE"] * 2 + [b"NACK"]


def test_a_consumer_without_room_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credit for a consumer without room to grow, such as a browse, or an ended one begins no subscription."""
    wire, _ = begun(monkeypatch, StompClassic(), Subscribe(1, "queue://orders", window=1))
    wire.adapter.execute((Credit(1, 5), Credit(7, 5)))
    assert wire.written == []
    wire, _ = begun(monkeypatch, StompClassic(), QUEUE)
    wire.adapter.execute((Unsubscribe(1), Credit(1, 5)))
    assert wire.commands() == [b"UNSUBSCRIBE"]


@pytest.mark.parametrize(
    ("name", "selector", "kind"),
    [
        ("native://a::q", "x = 1", "ANYCAST"),
        ("queue://a::q", "x = 1", "ANYCAST"),
        ("native://a::q", None, None),
        ("native://a", "x = 1", None),
        ("topic://a", "x = 1", "MULTICAST"),
    ],
)
def test_a_selector_on_a_queue_with_its_address_on_artemis(
    name: str, selector: str | None, kind: str | None
) -> None:
    """It asks as the consumer of a queue: of a queue's subscriber Artemis ignores the selector."""
    headers = StompArtemis().subscribe_headers(Subscribe(1, name, window=10, selector=selector))
    assert dict(headers)["subscription-type"] == kind
