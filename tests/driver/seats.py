"""Sessions with a consumer, for the tests of both kinds of connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redelivery

if TYPE_CHECKING:
    from tests.driver.twins import Twin

__all__ = ["POLICY", "pull", "seated"]

POLICY = redelivery.RedeliveryPolicyMap(
    default=redelivery.RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=5.0, redelivery_delay=5.0
    )
)


def seated(twin: Twin, mode: str, *bodies: str, options: str = "") -> tuple[Any, Any, Any]:
    """Return a connection, a session and its consumer of a queue with these messages."""
    for body in bodies:
        twin.broker.send("q", body)
    connection: Any = twin.connect(options, policies=POLICY)
    session = connection.session(mode)
    return connection, session, twin.call(session.consumer("q"))


def pull(twin: Twin, consumer: Any, count: int) -> list[Any]:
    return [twin.receive(consumer) for _ in range(count)]
