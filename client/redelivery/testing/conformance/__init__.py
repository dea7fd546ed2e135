"""Conformance suite: tests that every adapter must pass on every broker.

The tests are pytest classes to inherit::

    from redelivery.testing.conformance import BrokerUnderTest, Conformance

    class TestMine(Conformance):
        @pytest.fixture
        def broker_under_test(self):
            with MyBroker() as broker:  # a BrokerUnderTest
                yield broker

`docs/adapters.md` shows a complete one. A part of the suite can be inherited by itself: `Counts`, `Schedules`
and so on. It needs pytest.
"""

from __future__ import annotations

from redelivery.testing.conformance.bench import Bench, Suite
from redelivery.testing.conformance.bodies import Bodies
from redelivery.testing.conformance.broker_under_test import (
    FEATURES,
    KINDS,
    Arrival,
    BrokerUnderTest,
    Direction,
    Feature,
    Found,
    Kind,
)
from redelivery.testing.conformance.browsing import Browsing
from redelivery.testing.conformance.counts import Counts
from redelivery.testing.conformance.destinations import Destinations
from redelivery.testing.conformance.draining import Draining
from redelivery.testing.conformance.expected_log import EXPECTED_LOG, Attempt, AttemptLog, attempt_log
from redelivery.testing.conformance.expiry import Expiry
from redelivery.testing.conformance.holding import Holding
from redelivery.testing.conformance.orders import Orders
from redelivery.testing.conformance.poisoning import DeadLetters
from redelivery.testing.conformance.reconnects import Reconnects
from redelivery.testing.conformance.scheduled import Scheduled
from redelivery.testing.conformance.schedules import Schedules
from redelivery.testing.conformance.sending import Sending
from redelivery.testing.conformance.sessions import Sessions
from redelivery.testing.conformance.steering import Steering

__all__ = [
    "EXPECTED_LOG",
    "FEATURES",
    "KINDS",
    "Arrival",
    "Attempt",
    "AttemptLog",
    "Bench",
    "Bodies",
    "BrokerUnderTest",
    "Browsing",
    "Conformance",
    "Counts",
    "DeadLetters",
    "Destinations",
    "Direction",
    "Draining",
    "Expiry",
    "Feature",
    "Found",
    "Holding",
    "Kind",
    "Orders",
    "Reconnects",
    "Scheduled",
    "Schedules",
    "Sending",
    "Sessions",
    "Steering",
    "Suite",
    "attempt_log",
]


class Conformance(
    AttemptLog,
    Counts,
    Schedules,
    Scheduled,
    Orders,
    DeadLetters,
    Expiry,
    Bodies,
    Browsing,
    Destinations,
    Steering,
    Sending,
    Sessions,
    Holding,
    Draining,
    Reconnects,
):
    """Whole suite."""
