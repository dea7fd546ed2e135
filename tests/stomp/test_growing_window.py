"""The window of a consumer with credit `auto`: a wide subscription replaces a narrow one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_windows import answer_all, begun, came, subscribed

from redelivery.core.commands import Accept, Credit, Hold, Subscribe, Unsubscribe
from redelivery.core.events import ConnectionLost
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ

if TYPE_CHECKING:
    from tests.stomp.test_refused import Wire

AUTO = Subscribe(1, "queue://orders", window=4, room=1000, most=1000)
WIDER = Credit(1, 996, widens=True)
ENDING = pytest.mark.parametrize(
    ("profile", "narrow", "wide"), [(StompClassic(), 4, 1000), (StompArtemis(), 4 * 320, 1000 * 1024)]
)


def ended(wire: Wire) -> int:
    """Return how many subscriptions were ended since the last call."""
    many = wire.commands().count(b"UNSUBSCRIBE")
    wire.written.clear()
    return many


@ENDING
def test_the_wide_one_takes_the_place_of_the_narrow_one(
    monkeypatch: pytest.MonkeyPatch, profile: StompClassic | StompArtemis, narrow: int, wide: int
) -> None:
    """The narrow subscription ends after the acknowledgement of its last message; its late messages are dropped."""
    wire, first = begun(monkeypatch, profile, AUTO)
    assert first == [("1", narrow)]
    one, other = came(wire, "1", "1")
    wire.adapter.execute((WIDER,))
    assert subscribed(wire) == [("1.1", wide)]
    by_wide = came(wire, "1.1")
    wire.adapter.execute((Accept([one]),))
    assert ended(wire) == 0
    wire.adapter.execute((Accept([other, *by_wide]),))
    assert ended(wire) == 1
    # Messages are no longer counted.
    assert len(came(wire, "1.1", "1.1")) == 2
    assert came(wire, "1") == []
    window = wire.link.subscriptions["1.1"].window
    assert window is not None
    assert not window.watches  # type: ignore[attr-defined]
    assert not window.known  # type: ignore[attr-defined]


@ENDING
def test_nothing_ends_before_the_wide_one_stands(
    monkeypatch: pytest.MonkeyPatch, profile: StompClassic | StompArtemis, narrow: int, wide: int
) -> None:
    """No subscription ends before the wide one is confirmed: after a refusal the consumer would have none."""
    del narrow, wide
    wire, _ = begun(monkeypatch, profile, AUTO)
    (one,) = came(wire, "1")
    wire.adapter.execute((WIDER,))
    assert wire.commands() == [b"SUBSCRIBE"]
    wire.adapter.execute((Accept([one]),))
    assert b"UNSUBSCRIBE" not in wire.commands()
    answer_all(wire)
    wire.written.clear()
    wire.adapter.execute((Accept(came(wire, "1")),))
    assert ended(wire) == 1


@ENDING
def test_a_message_of_an_ended_one_that_was_read_before_is_dropped(
    monkeypatch: pytest.MonkeyPatch, profile: StompClassic | StompArtemis, narrow: int, wide: int
) -> None:
    """A message of an ended subscription is dropped, even if the reading thread read it before the end."""
    del narrow, wide
    wire, _ = begun(monkeypatch, profile, AUTO)
    wire.adapter.execute((WIDER,))
    subscribed(wire)
    window = wire.link.subscriptions["1"].window
    wire.adapter.execute((Accept(came(wire, "1.1")),))
    assert ended(wire) == 1
    assert window is not None
    assert window.watches  # type: ignore[attr-defined]
    came(wire, "1.1")
    assert not window.watches  # type: ignore[attr-defined]


@ENDING
def test_a_window_grows_in_steps(
    monkeypatch: pytest.MonkeyPatch, profile: StompClassic | StompArtemis, narrow: int, wide: int
) -> None:
    """Each wider subscription has room for all messages needed so far; those without unsettled messages end."""
    del narrow
    unit = wide // 1000
    wire, _ = begun(monkeypatch, profile, AUTO)
    wire.adapter.execute((Credit(1, 32, widens=True),))
    assert subscribed(wire) == [("1.1", 36 * unit)]
    wire.adapter.execute((Accept(came(wire, "1")),))
    assert ended(wire) == 1
    one = came(wire, "1.1")
    wire.adapter.execute((Credit(1, 100, widens=True),))
    assert subscribed(wire) == [("1.2", 136 * unit)]
    wire.adapter.execute((Accept([*one, *came(wire, "1.2")]),))
    assert ended(wire) == 1
    assert list(wire.link.subscriptions) == ["1.2"]


@ENDING
def test_the_widest_one_stays_when_more_is_parked(
    monkeypatch: pytest.MonkeyPatch, profile: StompClassic | StompArtemis, narrow: int, wide: int
) -> None:
    """The widest subscription does not end, as its messages are not counted; the next one adds the lacking room."""
    del narrow
    wire, _ = begun(monkeypatch, profile, AUTO)
    wire.adapter.execute((WIDER,))
    subscribed(wire)
    wire.adapter.execute((Accept(came(wire, "1.1")),))
    assert ended(wire) == 1
    wire.adapter.execute((Credit(1, 250, widens=True),))
    assert subscribed(wire) == [("1.2", wide // 4)]
    wire.adapter.execute((Accept(came(wire, "1.1", "1.2")),))
    assert ended(wire) == 0
    assert list(wire.link.subscriptions) == ["1.1", "1.2"]
    assert not wire.link.subscriptions["1.2"].window.watches  # type: ignore[union-attr]


def test_on_rabbitmq_a_further_one_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """On RabbitMQ no subscription ends: the broker releases no message before the connection ends."""
    wire, first = begun(monkeypatch, StompRabbitMQ(), AUTO)
    assert first == [("1", 4)]
    wire.adapter.execute((WIDER,))
    assert subscribed(wire) == [("1.1", 996)]
    wire.adapter.execute((Accept(came(wire, "1", "1.1")),))
    assert ended(wire) == 0


def test_on_artemis_a_wide_one_is_as_large_as_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wide subscription on Artemis has the bytes of messages of the usual size, up to 16 MB."""
    for size, expected in ((8_000, 8_000_000), (100_000, 16 << 20)):
        wire, _ = begun(monkeypatch, StompArtemis(), AUTO)
        for _ in range(60):
            came(wire, "1", size=size)
        subscribed(wire)
        wire.adapter.execute((WIDER,))
        ((_, wide),) = subscribed(wire)
        assert expected <= wide <= expected * 1.1


def test_on_artemis_groups_come_by_the_wide_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message with a group begins the wide subscription; a narrow one without other messages ends."""
    wire, _ = begun(monkeypatch, StompArtemis(), AUTO)
    assert came(wire, "1", group=True) == []
    assert subscribed(wire) == [("1.1", 1004 * 1024)]
    came(wire, "1.1", "1.1", group=True)
    wire.adapter.execute((WIDER,))
    assert subscribed(wire) == []


@pytest.mark.parametrize("profile", [StompClassic(), StompArtemis(), StompRabbitMQ()])
def test_the_consumer_ends_all_that_stand(
    monkeypatch: pytest.MonkeyPatch, profile: StompClassic | StompArtemis | StompRabbitMQ
) -> None:
    """The end of a consumer ends its narrow and wide subscriptions."""
    wire, _ = begun(monkeypatch, profile, AUTO)
    came(wire, "1")
    wire.adapter.execute((WIDER,))
    subscribed(wire)
    wire.adapter.execute((Unsubscribe(1),))
    assert ended(wire) == 2
    assert came(wire, "1", "1.1") == []


def test_many_workers_begin_with_a_window_of_their_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 32 workers begin with 1 kB for each message, as with a credit in numbers."""
    command = Subscribe(1, "queue://orders", window=202, room=1000, most=1000)
    wire, first = begun(monkeypatch, StompArtemis(), command)
    assert first == [("1", 202 * 1024)]
    wire.adapter.execute((Credit(1, 798, widens=True),))
    assert subscribed(wire) == [("1.1", 1000 * 1024)]


def test_one_read_may_bring_messages_of_an_ended_subscription_and_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One read may bring messages of an ended subscription and of another: each is found by its own header."""
    wire, _ = begun(monkeypatch, StompArtemis(), AUTO)
    wire.adapter.execute((WIDER,))
    subscribed(wire)
    wire.adapter.execute((Accept(came(wire, "1.1")),))
    assert ended(wire) == 1
    assert len(came(wire, "1.1", "1.1")) == 2
    assert came(wire, "1") == []
    assert len(came(wire, "1.1")) == 1
    wire.adapter.execute((Credit(1, 250, widens=True),))
    subscribed(wire)
    assert len(came(wire, "1.2", "1.1", "1", "1.2")) == 3
    wire.adapter.execute((Unsubscribe(1),))
    assert came(wire, "1.1", "1.2") == []


def at_its_widest(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return a connection to Artemis whose consumer has its widest subscription, and no other."""
    wire, _ = begun(monkeypatch, StompArtemis(), AUTO)
    wire.adapter.execute((WIDER,))
    assert subscribed(wire) == [("1.1", 1000 * 1024)]
    wire.adapter.execute((Accept(came(wire, "1.1", size=200)),))
    assert ended(wire) == 1
    return wire


def test_large_messages_that_are_parked_keep_no_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two large parked messages use up a window for a thousand small ones: a further subscription adds their bytes."""
    wire = at_its_widest(monkeypatch)
    one, other = came(wire, "1.1", "1.1", size=600_000)
    wire.adapter.execute((Hold(one, 1e9, 1e9, 1, None),))
    wire.adapter.execute((Hold(other, 1e9, 1e9, 1, None),))
    ((name, further),) = subscribed(wire)
    assert name == "1.2"
    assert further >= 1000 * 1024
    # It stays: other messages are not counted, and it is not known when it could end.
    wire.adapter.execute((Accept([one, other, *came(wire, "1.2")]),))
    assert subscribed(wire) == []
    assert ended(wire) == 0
    assert not wire.link.subscriptions["1.2"].window.known  # type: ignore[union-attr]


def test_messages_that_become_large_get_a_wider_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that become larger get a wider window, up to 16 MB: one message of each read is measured."""
    wire = at_its_widest(monkeypatch)
    for _ in range(60):
        wire.adapter.execute((Accept(came(wire, "1.1", size=100_000)),))
    windows = [window for _, window in subscribed(wire)]
    assert 1 <= len(windows) <= 6
    assert 10_000_000 <= sum(windows) <= 2 * (16 << 20)


def test_a_window_on_its_way_is_widened_for_large_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wider subscription replaces one that fewer messages than needed use up, however few of them are parked."""
    wire, _ = begun(monkeypatch, StompArtemis(), AUTO)
    wire.adapter.execute((Credit(1, 32, widens=True),))
    assert subscribed(wire) == [("1.1", 36 * 1024)]
    wire.adapter.execute((Accept(came(wire, "1")),))
    assert ended(wire) == 1
    came(wire, "1.1", size=50_000)
    ((name, wide),) = subscribed(wire)
    assert name == "1.2"
    assert wide > 36 * 1024


LIMITED = b"ERROR\nmessage:AMQ339016 Error creating subscription TOKEN-1.1\n\n\0"


@pytest.mark.parametrize("command", [AUTO, Subscribe(1, "queue://orders", window=4, room=1000)])
def test_a_queue_that_takes_one_consumer_gets_one_subscription(
    monkeypatch: pytest.MonkeyPatch, command: Subscribe
) -> None:
    """A queue limited to one consumer gets one subscription after Artemis refused a second; no message is accused."""
    wire, _ = begun(monkeypatch, StompArtemis(), command)
    wire.adapter.execute((Accept(came(wire, "1")),))
    came(wire, "1", "1", "1", "1", size=20_000)
    wire.adapter.execute((WIDER,))
    assert b"SUBSCRIBE" in wire.commands()
    wire.read(LIMITED)
    (lost,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert (lost.suspect, lost.consumer) == (None, None)
    wire.again().adapter.execute((command,))
    assert subscribed(wire) == [("1", (command.most or 4) * 1024 + 1000 * 1024)]
    first = came(wire, "1", size=900_000)
    wire.adapter.execute((WIDER, Hold(first[0], 1e9, 1e9, 1, None)))
    came(wire, "1", "1", size=900_000)
    assert subscribed(wire) == []
