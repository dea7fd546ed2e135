"""Lists of messages that bypass the engine, on real brokers: received, stored, restored, accepted."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.restored import again, shown_by

from integration.peers import PAIRS, fill, take
from redelivery.driver.port import BulkIntake, ConnectionPort, ConsumerHooks, restorer

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.conftest import Session
    from redelivery.driver.port import ConsumerPort

pytestmark = [
    pytest.mark.ci("thousands of messages in lists"),
    pytest.mark.own_broker("uses a queue of a fixed name"),
]

MESSAGES = 3000
CREDIT = 1000
QUEUE = "bulk.intake"
PATIENCE = 30.0
# All sizes up to 2 kB, each body different.
BODIES = [b"%d " % number + b"\0\xff\r\n" * (number % 500) for number in range(MESSAGES)]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Return a running broker, and the protocol."""
    name, protocol = request.param
    return session.broker(name), protocol


def consumed(
    stack: ExitStack, pair: tuple[Broker, str], queue: str
) -> tuple[ConnectionPort, BulkIntake, ConsumerPort]:
    """Start a consumer in lists."""
    broker, protocol = pair
    port = stack.enter_context(ConnectionPort(broker.uri(protocol=protocol)))
    intake = BulkIntake(port.clock)
    plan = port.plan(queue, {}, settings=replace(port.settings, credit=CREDIT))
    hooks = ConsumerHooks(bulk=intake, keeps_history=False)
    return port, intake, stack.enter_context(port.consume(plan, hooks))


def test_lists_are_restored_and_accepted(pair: tuple[Broker, str]) -> None:
    """All messages arrive, each restored delivery equals the original, and the queue is empty after the acceptances."""
    broker, protocol = pair
    queue = f"{QUEUE}.{protocol}"
    fill(broker, protocol, queue, BODIES)
    found: list[bytes] = []
    with ExitStack() as stack:
        _, intake, consumer = consumed(stack, pair, queue)
        while len(found) < MESSAGES and (taken := intake.take(500, 1 << 20, PATIENCE)):
            wire = consumer.wire()
            assert intake.epoch == taken[0].epoch
            restore = restorer(wire)
            for delivery in taken:
                restored = again(restore, delivery, getattr(delivery, "arrived", 0.0))
                assert shown_by(restored) == shown_by(delivery)
            found += [each.body for each in taken]
            consumer.accept_bulk(taken)
        assert consumer.engine.arrived == 0
    assert sorted(found) == sorted(BODIES)
    assert take(broker, protocol, queue, timeout=1.0) is None


def test_what_is_not_accepted_comes_again(pair: tuple[Broker, str]) -> None:
    """Messages that are not accepted when the connection ends are released; exactly the accepted ones are gone."""
    broker, protocol = pair
    queue = f"{QUEUE}.again.{protocol}"
    fill(broker, protocol, queue, BODIES[:300])
    with ExitStack() as stack:
        _, intake, consumer = consumed(stack, pair, queue)
        accepted = intake.take(40, 1 << 20, PATIENCE)
        consumer.accept_bulk(accepted)
        assert intake.take(40, 1 << 20, PATIENCE)
    left: list[bytes] = []
    with ExitStack() as stack:
        _, intake, consumer = consumed(stack, pair, queue)
        while len(left) + len(accepted) < 300 and (taken := intake.take(500, 1 << 20, PATIENCE)):
            left += [each.body for each in taken]
            consumer.accept_bulk(taken)
    assert sorted([*left, *(each.body for each in accepted)]) == sorted(BODIES[:300])
    assert take(broker, protocol, queue, timeout=1.0) is None
