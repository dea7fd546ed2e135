"""Three orders: the messages that wait behind a parked one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import redelivery
from redelivery.testing.conformance.bench import Suite, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.testing.conformance.bench import Bench

__all__ = ["Orders"]

DELAY = 0.4  # seconds
POLICY = redelivery.RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=DELAY, redelivery_delay=DELAY
)


class Delivered(NamedTuple):
    """One delivery: `body#delivery`; its order's key, whose messages block each other; and if its redelivery was not
    due yet when it was asked for.
    """

    name: str
    key: str
    waited: bool


def deliveries(
    bench: Bench, ordering: str, messages: Sequence[tuple[str, str | None]], count: int
) -> list[Delivered]:
    """Send messages (body, group) and handle `count` deliveries; return them in order.

    "bad" fails always, "once" the first time, all others never.
    """
    connection = bench.connect(POLICY, redelivery__ordering=ordering)
    for body, group in messages:
        bench.post(connection, body, group=group)
    consumer = connection.consumer(bench.queue)
    # All messages have arrived when the first one fails: none of the others has a reason to wait.
    bench.prefetched(connection, len(messages))
    groups = dict(messages)
    found: list[Delivered] = []
    due: dict[str, float] = {}
    for _ in range(count):
        asked = bench.clock.monotonic()
        message = bench.pull(consumer)
        body = message.text
        key = "all" if ordering == "blocking" else groups[body] or body
        found.append(Delivered(f"{body}#{message.delivery_count}", key, asked < due.get(body, asked)))
        if body == "bad" or (body == "once" and message.delivery_count == 1):
            due[body] = bench.clock.monotonic() + DELAY
            message.fail("no")
        else:
            message.accept()
    bench.nothing(consumer)
    poison = [body for body, _ in messages].count("bad")
    assert len(bench.buried(connection, poison)) == poison
    assert bench.left() == []
    return found


def check_order(found: Sequence[Delivered], expected: Sequence[str]) -> None:
    """Check that the deliveries are in this order.

    On a machine that stands still, a redelivery may be due before another message is asked for, and come first then.
    """
    place = {name: at for at, name in enumerate(expected)}
    assert sorted(each.name for each in found) == sorted(expected)
    for at, each in enumerate(found):
        for other in found[at + 1 :]:
            if place[other.name] < place[each.name]:
                assert not each.waited, f"{other.name} waited for {each.name}"
                assert other.key != each.key, f"{each.name} overtook {other.name}"


class Orders(Suite):
    """Non-blocking, blocking, and per group."""

    def test_non_blocking_lets_others_overtake(self, bench: Bench) -> None:
        """Other messages overtake a parked one, which is redelivered when it is due."""
        messages = [("bad", None), ("a", None), ("once", None), ("b", None)]
        expected = ["bad#1", "a#1", "once#1", "b#1", "bad#2", "once#2", "bad#3"]
        check_order(deliveries(bench, "non_blocking", messages, 7), expected)

    def test_blocking_keeps_strict_order(self, bench: Bench) -> None:
        """All messages wait behind a failing one until it succeeds or is poison."""
        messages = [("once", None), ("a", None), ("bad", None), ("b", None)]
        expected = ["once#1", "once#2", "a#1", "bad#1", "bad#2", "bad#3", "b#1"]
        check_order(deliveries(bench, "blocking", messages, 7), expected)

    def test_per_group_holds_the_group_only(self, bench: Bench) -> None:
        """A failing message blocks its group only.

        A pair that does not report groups refuses this order.
        """
        if not bench.capabilities.groups:
            connection = bench.connect()
            refused(lambda: connection.consumer(bench.queue, ordering="per_group"), "per_group")
            return
        messages = [("once", "g"), ("g2", "g"), ("h1", "h"), ("free", None), ("g3", "g"), ("h2", "h")]
        expected = ["once#1", "h1#1", "free#1", "h2#1", "once#2", "g2#1", "g3#1"]
        check_order(deliveries(bench, "per_group", messages, 7), expected)

    def test_per_group_goes_on_behind_poison(self, bench: Bench) -> None:
        """A group continues with its next message after poison.

        A pair that does not report groups refuses this order.
        """
        if not bench.capabilities.groups:
            connection = bench.connect(redelivery__ordering="per_group")
            refused(lambda: connection.consumer(bench.queue), "per_group")
            return
        messages = [("bad", "g"), ("g2", "g"), ("h1", "h")]
        expected = ["bad#1", "h1#1", "bad#2", "bad#3", "g2#1"]
        check_order(deliveries(bench, "per_group", messages, 5), expected)
