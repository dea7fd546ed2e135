"""Default timeout of a send: `send_timeout=` and `redelivery.sendTimeout`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import redelivery

if TYPE_CHECKING:
    from tests.driver.twins import Twin


@pytest.mark.parametrize(
    ("options", "arguments", "limit"),
    [
        ("", {}, 30),
        ("?redelivery.sendTimeout=5000", {}, 5),
        ("", {"send_timeout": 5}, 5),
        ("", {"send_timeout": timedelta(seconds=5)}, 5),
    ],
)
def test_a_send_ends_at_its_time(twin: Twin, options: str, arguments: Any, limit: int) -> None:
    """A send ends after the call's timeout, else that of the connection or of the URI, else 30 s."""
    connection = twin.connect(options, **arguments)
    twin.broker.stall_confirmations()
    with pytest.raises(redelivery.TransportError, match=rf"within {limit} s; it may have been sent"):
        twin.call(connection.send("q", "a"), over=limit)
    with pytest.raises(redelivery.TransportError, match=r"within 2 s; it may have been sent"):
        twin.call(connection.send("q", "a", timeout=2), over=2)


def test_it_is_given_once() -> None:
    """A send timeout in the URI and as an argument is refused."""
    with pytest.raises(redelivery.ConfigurationError, match="give one of them"):
        redelivery.connect("memory://x?redelivery.sendTimeout=5000", send_timeout=5)


@pytest.mark.parametrize("given", [0, -1, "5", True])
def test_it_must_be_a_time(given: Any) -> None:
    """A wrong send timeout is refused before any I/O."""
    with pytest.raises(redelivery.ConfigurationError, match="send_timeout must be"):
        redelivery.connect("memory://x", send_timeout=given)


def test_the_uri_takes_no_zero() -> None:
    """A send timeout of 0 is refused: no send would be confirmed."""
    with pytest.raises(redelivery.ConfigurationError, match=r"redelivery\.sendTimeout"):
        redelivery.connect("memory://x?redelivery.sendTimeout=0")
