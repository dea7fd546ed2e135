"""Pytest plugin: fixtures for a broker in the process and for a clock that a test moves.

An example::

    def test_gives_up_after_a_week(redelivery_broker, redelivery_clock):
        with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("orders", handle)
            connection.start()
            redelivery_broker.send("orders", "bad")
            redelivery_clock.advance(timedelta(days=7))
        assert redelivery_broker.dead_letters()[0].original_destination == "queue://orders"

pytest finds it by its entry point. It imports nothing but pytest until a test requests a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.testing.manual_clock import ManualClock
    from redelivery_memory import MemoryBroker

__all__ = ["redelivery_broker", "redelivery_clock"]

# The plugin does not import the suite: test modules that inherit it do.
pytest.register_assert_rewrite("redelivery.testing.conformance")


@pytest.fixture
def redelivery_clock() -> ManualClock:
    """Return a clock that stands still until it is moved, or until the test itself waits for the library.

    `advance(timedelta(days=7))` moves it. A `consumer.receive(timeout=3600)` moves it, too, and returns at
    once.
    """
    from redelivery.testing.manual_clock import ManualClock  # noqa: PLC0415 - only if a test requests it

    return ManualClock(auto_advance=True)


@pytest.fixture
def redelivery_broker(redelivery_clock: ManualClock) -> Iterator[MemoryBroker]:
    """Return an empty broker with its own name, on `redelivery_clock`. It is closed after the test.

    Connect to `redelivery_broker.uri`.
    """
    from redelivery.testing import MemoryBroker  # noqa: PLC0415

    with MemoryBroker(clock=redelivery_clock) as broker:
        yield broker
