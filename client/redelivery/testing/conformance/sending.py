"""Sending: confirmed, with an id, and with all given properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redelivery.testing.conformance.bench import Suite, as_text, refused

if TYPE_CHECKING:
    from redelivery import Connection, Consumer
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Sending"]

DELAY = 0.3
# Seconds. Schedulers of brokers look for due messages at intervals.
BROKERS_OWN = 1.5
HEADERS = {"colon": "a:b", "lines": "one\ntwo", "unicode": "Grüße", "number": 3, "flag": True}


class Sending(Suite):
    """Promises of `Connection.send`."""

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    def test_a_confirmed_message_is_there_with_all_it_was_given(
        self, bench: Bench, *, persistent: bool
    ) -> None:
        """A sent message is on the broker when `send` returns.

        The other client finds it, with all properties and the id returned.
        """
        connection = bench.connect()
        began = bench.clock.time()
        identity = bench.post(
            connection, "body", headers=HEADERS, priority=8, correlation_id="c: 1", ttl=60, persistent=persistent
        )  # fmt: skip
        (found,) = bench.left(at_least=1)
        kept = persistent or not bench.broker.persistence
        assert (found.body, found.kind, found.persistent) == (b"body", "text", kept)
        assert (found.priority, found.correlation_id) == (8, "c: 1")
        assert found.headers["redeliveryId"] == identity
        assert {name: as_text(found.headers[name]) for name in HEADERS} == {
            name: as_text(value) for name, value in HEADERS.items()
        }
        assert found.expires_at is not None
        assert began - 1 < found.expires_at - 60 < bench.clock.time() + 1

    def test_the_library_reads_what_it_sends(self, bench: Bench) -> None:
        """Each argument of `send` is a property of the received message."""
        connection = bench.connect()
        began = bench.clock.time()
        identity = bench.post(
            connection, '{"n": 1}', headers=HEADERS, priority=8, correlation_id="c: 1", ttl=60,
            reply_to="answers", content_type="application/json", persistent=False,
        )  # fmt: skip
        message = bench.pull(connection.consumer(bench.queue))
        assert message.headers["redeliveryId"] == identity
        assert {name: as_text(message.headers[name]) for name in HEADERS} == {
            name: as_text(value) for name, value in HEADERS.items()
        }
        assert (message.json(), message.content_type) == ({"n": 1}, "application/json")
        assert (message.priority, message.correlation_id) == (8, "c: 1")
        assert (message.reply_to, message.persistent) == ("queue://answers", not bench.broker.persistence)
        assert message.expiration is not None
        assert began - 1 < message.expiration.timestamp() - 60 < bench.clock.time() + 1
        assert message.accept() is True
        assert bench.left() == []

    def test_a_group_is_told_where_the_pair_tells_groups(self, bench: Bench) -> None:
        """A message has its group if the pair reports groups.

        On other pairs it is None, and an order per group is refused.
        """
        connection = bench.connect()
        bench.post(connection, "grouped", group="g: 1")
        message = bench.pull(connection.consumer(bench.queue))
        assert message.group == ("g: 1" if bench.capabilities.groups else None)
        message.accept()

    def test_a_delayed_message_comes_later(self, bench: Bench) -> None:
        """A delayed message arrives after `delay`, and others overtake it.

        A broker that cannot delay refuses it.
        """
        connection = bench.connect()
        if "delay" not in bench.broker.features:
            refused(lambda: bench.post(connection, "later", delay=DELAY), "delay")
            assert bench.left() == []
            return
        consumer = connection.consumer(bench.queue)
        # On a machine that stands still the short delay may be over before the other message is there.
        orders = (_with_a_delay(bench, connection, consumer, delay) for delay in (DELAY, 10 * DELAY))
        assert ["now", "later"] in orders

    def test_ids_are_new(self, bench: Bench) -> None:
        """Each message has its own id; all are there in the order in which they were sent."""
        connection = bench.connect()
        ids = [bench.post(connection, str(number)) for number in range(20)]
        assert len(set(ids)) == 20
        found = bench.left(at_least=20)
        assert [one.headers["redeliveryId"] for one in found] == ids
        assert [one.text for one in found] == [str(number) for number in range(20)]


def _with_a_delay(bench: Bench, connection: Connection, consumer: Consumer, delay: float) -> list[str]:
    """Send a message with a delay, and one without; check the time of the first, and return both, in order."""
    began = bench.clock.monotonic()
    bench.post(connection, "later", delay=delay)
    bench.post(connection, "now")
    texts: list[str] = []
    for _ in range(2):
        message = bench.pull(consumer)
        texts.append(message.text)
        if message.text == "later":
            waited = bench.clock.monotonic() - began
            assert delay - 1e-6 <= waited <= delay + BROKERS_OWN + bench.broker.late
        assert message.accept() is True
    return texts
