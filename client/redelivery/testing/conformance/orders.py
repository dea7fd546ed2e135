"""Three orders: the messages that wait behind a parked one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redelivery
from redelivery.testing.conformance.bench import Suite, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.testing.conformance.bench import Bench

__all__ = ["Orders"]

POLICY = redelivery.RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=1, redelivery_delay=1)


def deliveries(
    bench: Bench, ordering: str, messages: Sequence[tuple[str, str | None]], count: int
) -> list[str]:
    """Send messages (body, group) and handle `count` deliveries; return them as `body#delivery`, in order.

    "bad" fails always, "once" the first time, all others never.
    """
    connection = bench.connect(POLICY, redelivery__ordering=ordering)
    for body, group in messages:
        bench.post(connection, body, group=group)
    consumer = connection.consumer(bench.queue)
    # All messages have arrived when the first one fails: the others must be handled within its delay.
    bench.prefetched(connection, len(messages))
    found: list[str] = []
    for _ in range(count):
        message = bench.pull(consumer)
        found.append(f"{message.text}#{message.delivery_count}")
        if message.text == "bad" or (message.text == "once" and message.delivery_count == 1):
            message.fail("no")
        else:
            message.accept()
    bench.nothing(consumer)
    poison = [body for body, _ in messages].count("bad")
    assert len(bench.buried(connection, poison)) == poison
    assert bench.left() == []
    return found


class Orders(Suite):
    """Non-blocking, blocking, and per group."""

    def test_non_blocking_lets_others_overtake(self, bench: Bench) -> None:
        """Other messages overtake a parked one, which is redelivered when it is due."""
        messages = [("bad", None), ("a", None), ("once", None), ("b", None)]
        assert deliveries(bench, "non_blocking", messages, 7) == [
            "bad#1", "a#1", "once#1", "b#1", "bad#2", "once#2", "bad#3",
        ]  # fmt: skip

    def test_blocking_keeps_strict_order(self, bench: Bench) -> None:
        """All messages wait behind a failing one until it succeeds or is poison."""
        messages = [("once", None), ("a", None), ("bad", None), ("b", None)]
        assert deliveries(bench, "blocking", messages, 7) == [
            "once#1", "once#2", "a#1", "bad#1", "bad#2", "bad#3", "b#1",
        ]  # fmt: skip

    def test_per_group_holds_the_group_only(self, bench: Bench) -> None:
        """A failing message blocks its group only.

        A pair that does not report groups refuses this order.
        """
        if not bench.capabilities.groups:
            connection = bench.connect()
            refused(lambda: connection.consumer(bench.queue, ordering="per_group"), "per_group")
            return
        messages = [("once", "g"), ("g2", "g"), ("h1", "h"), ("free", None), ("g3", "g"), ("h2", "h")]
        assert deliveries(bench, "per_group", messages, 7) == [
            "once#1", "h1#1", "free#1", "h2#1", "once#2", "g2#1", "g3#1",
        ]  # fmt: skip

    def test_per_group_goes_on_behind_poison(self, bench: Bench) -> None:
        """A group continues with its next message after poison.

        A pair that does not report groups refuses this order.
        """
        if not bench.capabilities.groups:
            connection = bench.connect(redelivery__ordering="per_group")
            refused(lambda: connection.consumer(bench.queue), "per_group")
            return
        messages = [("bad", "g"), ("g2", "g"), ("h1", "h")]
        assert deliveries(bench, "per_group", messages, 5) == ["bad#1", "h1#1", "bad#2", "bad#3", "g2#1"]
