"""The pytest plugin: a broker in the process and a clock to move, as fixtures.

    def test_gives_up_after_a_week(redelivery_broker, redelivery_clock):
        with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("orders", handle)
            connection.start()
            redelivery_broker.send("orders", "bad")
            redelivery_clock.advance(timedelta(days=7))
        assert redelivery_broker.dead_letters()[0].original_destination == "queue://orders"

pytest finds it by its entry point. It imports nothing but pytest until a test asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.testing.manual_clock import ManualClock
    from redelivery_memory import MemoryBroker

__all__ = ["redelivery_broker", "redelivery_clock"]

# It is imported by whoever inherits it.
pytest.register_assert_rewrite("redelivery.testing.conformance")


@pytest.fixture
def redelivery_clock() -> ManualClock:
    """Return a clock that stands still until it is moved, or until the test itself waits for the library.

    `advance(timedelta(days=7))` moves it; so does a `consumer.receive(timeout=3600)`, which returns at once.
    """
    from redelivery.testing.manual_clock import ManualClock  # noqa: PLC0415 - only where a test asks for it

    return ManualClock(auto_advance=True)


@pytest.fixture
def redelivery_broker(redelivery_clock: ManualClock) -> Iterator[MemoryBroker]:
    """Return an empty broker of a name of its own, on `redelivery_clock`; it is closed after the test.

    `redelivery_broker.uri` is what to connect to.
    """
    from redelivery.testing import MemoryBroker  # noqa: PLC0415

    with MemoryBroker(clock=redelivery_clock) as broker:
        yield broker
