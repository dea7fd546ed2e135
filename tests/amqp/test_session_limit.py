"""Sessions of a connection: at most as many as the broker allows, one for each link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.amqp.test_declarations import Asked, Node

from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Iterator

LINKS = 4


class Few(Node):
    """A node that allows few sessions; one is for its management."""

    sessions = LINKS + 1
    ends_at_once = True


@pytest.fixture
def node() -> Iterator[Few]:
    """Return a node without queues."""
    with Few() as peer:
        yield peer


def test_a_consumer_too_many_is_refused_and_the_others_stay(node: Few) -> None:
    """A consumer above the limit is refused, and the others go on: proton would write nothing more otherwise."""
    asked = Asked(node)
    for number in range(LINKS - 1):
        assert asked.subscribed(f"queue://{number}", number).error is None
    refused = asked.subscribed("queue://last", LINKS).error
    assert isinstance(refused, AdapterError)
    assert f"the broker allows {LINKS + 1} sessions on a connection" in str(refused)
    # Dead letters are still sent.
    assert asked.sent("queue://0") is None
    asked.events.clear()
    assert asked.sent("queue://DLQ") is None
    assert node.connections == 1


def test_a_sender_that_is_not_used_makes_room(node: Few) -> None:
    """An idle sender ends to make room for another link; its next message attaches it again."""
    asked = Asked(node)
    for number in range(3 * LINKS):
        assert asked.sent(f"queue://{number % (LINKS + 2)}") is None
        asked.events.clear()
    assert asked.subscribed("queue://orders").error is None
    assert node.connections == 1


def test_the_sender_that_was_asked_for_longest_ago_goes_first(node: Few) -> None:
    """The sender whose last use was the longest ago ends first; the others need no new declaration."""
    asked = Asked(node)
    for name in ("0", "1", "2", "3", "0", "new", "0"):
        assert asked.sent(f"queue://{name}") is None
        asked.events.clear()
    assert [path for _, path in node.requests].count("/queues/0") == 2
    assert asked.sent("queue://1") is None
    assert [method for method, path in node.requests if path == "/queues/1"] == ["GET", "PUT", "GET"]
