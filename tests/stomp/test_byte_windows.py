"""Windows in bytes on Artemis: few subscriptions, and about as many messages as the credit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_windows import QUEUE, answer_all, begun, came, subscribed

from redelivery.core.commands import Accept, Credit, Hold, Subscribe, Unsubscribe
from redelivery.core.delivery import Cause
from redelivery_stomp.byte_windows import ByteWindow
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.profiles import StompArtemis

if TYPE_CHECKING:
    from tests.stomp.test_refused import Wire

LARGE = b"x" * 1_000_000


def counted(monkeypatch: pytest.MonkeyPatch, credit: int) -> Wire:
    """Return a connection to Artemis with a consumer whose every message is counted."""
    command = Subscribe(1, "queue://orders", window=credit, room=1000)
    return begun(monkeypatch, StompArtemis(), command)[0]


def test_on_artemis_one_subscription_does_while_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No further subscription is begun while the first has room: with each, a cut may lose one more message."""
    wire = counted(monkeypatch, 4)
    came(wire, "1", size=200)
    wire.adapter.execute((Credit(1, 1),))
    came(wire, "1", "1", size=200)
    assert subscribed(wire) == []


def test_on_artemis_room_for_parked_messages_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One subscription has room for several times the credit; it ends when it is empty and the first suffices."""
    wire = counted(monkeypatch, 4)
    first = came(wire, "1", "1", "1", "1", size=270)
    assert subscribed(wire) == []
    wire.adapter.execute((Credit(1, 1),))
    assert subscribed(wire) == [("1.1", 7 * 1024)]
    wire.adapter.execute((Credit(1, 3),))
    assert subscribed(wire) == []
    others = came(wire, "1.1", "1.1", size=270)
    wire.adapter.execute((Credit(1, -4), Accept(first), Accept(others[:1])))
    assert wire.commands() == [b"ACK"] * 5
    wire.written.clear()
    wire.adapter.execute((Accept(others[1:]),))
    assert wire.commands() == [b"ACK", b"UNSUBSCRIBE"]
    assert came(wire, "1.1") == []
    answer_all(wire)
    # Artemis sends some messages after the RECEIPT.
    assert came(wire, "1.1") == []


def test_on_artemis_as_many_large_messages_as_the_credit_says_are_in_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large first message proves the guess too small: one further subscription has room for all the others."""
    wire = counted(monkeypatch, 4)
    came(wire, "1", size=10_000)
    (further,) = subscribed(wire)
    assert further == ("1.1", 30 * 1024)
    came(wire, "1.1", "1.1", "1.1", size=10_000)
    assert subscribed(wire) == []


def test_on_artemis_room_is_for_no_more_than_may_be_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that may park three messages has no window for eighteen."""
    command = Subscribe(1, "queue://orders", window=4, room=3)
    wire = begun(monkeypatch, StompArtemis(), command)[0]
    came(wire, *["1"] * 4, size=270)
    wire.adapter.execute((Credit(1, 1),))
    assert subscribed(wire) == [("1.1", 2 * 1024)]


def test_on_artemis_room_is_given_back_although_the_engine_counts_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A further subscription ends when no message is unsettled, even if the engine still counts one as parked."""
    wire = counted(monkeypatch, 4)
    first = came(wire, "1", "1", "1", "1", size=270)
    wire.adapter.execute((Credit(1, 1),))
    (further,) = subscribed(wire)
    last = came(wire, further[0], size=270)
    wire.adapter.execute((Accept(first),))
    assert wire.commands() == [b"ACK"] * 4
    wire.written.clear()
    wire.adapter.execute((Accept(last),))
    assert wire.commands() == [b"ACK", b"UNSUBSCRIBE"]


@pytest.mark.parametrize("credit", [1, 4, 32, 33])
def test_on_artemis_there_is_always_room_for_another_message(credit: int) -> None:
    """Room for one more message remains while small ones succeed and large ones are parked, with few subscriptions."""
    command = Subscribe(1, "queue://orders", window=credit, room=1000)
    source = Subscription(command, 1, StompArtemis(), "1.2")
    window = source.window
    assert isinstance(window, ByteWindow)
    left = {0: window.parts[0].size}

    def begin() -> None:
        left.update((number, further.window * 1024) for number, further in window.further())

    for size in ([200] * 16 + [1_000_000]) * 100:
        one = StompDelivery(source, b"", LARGE[:size])
        # Raises if there is no room: the consumer would get no message.
        number = next(each for each, room in left.items() if room > 0)
        left[number] -= size
        window.sampled(one)
        window.came(one, number)
        begin()
        if size > 200:
            window.parks(one, number)
            window.grow(1)
            begin()
        else:
            left[number] += size
            window.accepted([one])
            for end in window.ending(()):
                window.ended(end)
                del left[end]
        assert len(left) <= 16


@pytest.mark.parametrize("credit", [1, 4, 32, 33, 1000])
def test_on_artemis_one_huge_message_widens_little(monkeypatch: pytest.MonkeyPatch, credit: int) -> None:
    """A parked message of 20 MB uses up one window: one further subscription of the usual size is added."""
    wire, ((_, size),) = begun(
        monkeypatch, StompArtemis(), Subscribe(1, "queue://orders", window=credit, room=1000)
    )
    for _ in range(20):
        one = came(wire, "1")
        wire.adapter.execute((Accept(one),))
    wire.written.clear()
    (huge,) = came(wire, "1", size=20_000_000)
    wire.adapter.execute((Hold(huge, 1.0, 1.0, 1, Cause("bad")), Credit(1, max(1, credit // 4))))
    widened = subscribed(wire)
    assert len(widened) == 1
    assert widened[0][1] <= max(2 * size, 64 * 1024)


def test_on_artemis_a_large_credit_follows_the_size_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger messages lead to few further subscriptions, limited in bytes; each ends when messages are small again."""
    wire, _ = begun(monkeypatch, StompArtemis(), Subscribe(1, "queue://orders", window=100, room=1000))
    first = came(wire, *["1"] * 20, size=20_000)
    sizes = [size for _, size in subscribed(wire)]
    assert len(sizes) == 5
    assert 1 << 20 < sum(sizes) < 3 << 20
    wire.adapter.execute((Accept(first),))
    assert wire.commands() == [b"ACK"] * 20
    wire.written.clear()
    small = came(wire, *["1.1", "1.4"] * 30)
    wire.adapter.execute((Accept(small),))
    assert wire.commands() == [b"ACK"] * 60 + [b"UNSUBSCRIBE"] * 5
    wire, _ = begun(monkeypatch, StompArtemis(), Subscribe(1, "queue://orders", window=1000, room=1000))
    came(wire, *["1"] * 60, size=1_000_000)
    assert sum(size for _, size in subscribed(wire)) < 32 << 20


def test_on_artemis_parked_messages_widen_a_large_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parked messages count with their own size; those that are not reported one by one, with the usual size."""
    wire, _ = begun(monkeypatch, StompArtemis(), Subscribe(1, "queue://orders", window=100, room=1000))
    many = came(wire, *["1"] * 20)
    for one in many:
        one.body = b"x" * 4_000
        wire.adapter.execute((Hold(one, 1.0, 1.0, 1, Cause("bad")), Hold(one, 1.0, 1.0, 2, Cause("bad"))))
    assert subscribed(wire) == []
    wire.adapter.execute((Credit(1, 100),))
    assert subscribed(wire) == [("1.1", 100 * 1024)]
    wire.adapter.execute((Credit(1, -100), Accept(many)))
    assert wire.commands() == [b"ACK"] * 20 + [b"UNSUBSCRIBE"]


def test_groups_come_by_one_wide_subscription_on_artemis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message with a group begins a wide subscription, and the narrow one ends: without room it blocks the queue."""
    wire, _ = begun(monkeypatch, StompArtemis(), QUEUE)
    assert came(wire, "1", group=True) == []
    assert wire.commands() == [b"SUBSCRIBE", b"UNSUBSCRIBE"]
    assert subscribed(wire) == [("1.1", 1004 * 1024)]
    (one,) = came(wire, "1.1", group=True)
    wire.adapter.execute((Credit(1, 3), Accept([one])))
    assert wire.commands() == [b"ACK"]
    wire.written.clear()
    # The consumer ends as a whole, also after its first subscription has ended.
    wire.adapter.execute((QUEUE,))
    assert wire.written == []
    wire.adapter.execute((Unsubscribe(1),))
    assert wire.commands() == [b"UNSUBSCRIBE"]


def test_a_narrow_subscription_with_other_messages_ends_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow subscription with other unsettled messages stays: they would be redelivered, and handled twice."""
    wire, _ = begun(monkeypatch, StompArtemis(), QUEUE)
    (plain,) = came(wire, "1")
    (one,) = came(wire, "1", group=True)
    assert subscribed(wire) == [("1.1", 1004 * 1024)]
    wire.adapter.execute((Accept([plain]),))
    assert wire.commands() == [b"ACK"]
    wire.written.clear()
    wire.adapter.execute((Accept([one]),))
    assert wire.commands() == [b"ACK", b"UNSUBSCRIBE"]
