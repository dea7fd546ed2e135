"""Log-in with a password that has backslashes, colons and other signs of the two protocols."""

from __future__ import annotations

from urllib.parse import quote

import pytest

import redelivery
from integration.brokers import Broker, RabbitMQ

pytestmark = pytest.mark.ci("log-in by each spelling of a password")

PASSWORDS = ["a\\b", "a\\nb", "a\\\\b", "a\\", "\\c:x", "a:b"]
RABBITS = [(name, protocol) for name in ("rabbitmq", "rabbitmq4") for protocol in ("stomp", "amqp")]


@pytest.mark.own_broker("adds users")
@pytest.mark.parametrize("peer", RABBITS, ids="-".join, indirect=True)
def test_a_password_with_a_backslash_logs_in(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A user whose password has a backslash can send on RabbitMQ, over both protocols."""
    broker, protocol = peer
    assert isinstance(broker, RabbitMQ)
    bare = broker.uri(protocol=protocol).partition("?")[0]
    for number, password in enumerate(PASSWORDS):
        queue = user = f"{unique_queue}.{number}"
        broker.control("add_user", user, password)
        broker.control("set_permissions", user, ".*", ".*", ".*")
        uri = f"{bare}?jms.userName={quote(user)}&jms.password={quote(password, safe='')}"
        with redelivery.connect(uri) as connection:
            assert connection.send(queue, "text")
