"""The brokers of the integration tests: local processes, or containers on request."""

from __future__ import annotations

from tests.needs import required

from integration.brokers.activemq import ActiveMQ
from integration.brokers.artemis import Artemis
from integration.brokers.base import Broker
from integration.brokers.brokerj import BrokerJ
from integration.brokers.choice import containers_wanted
from integration.brokers.ports import free_ports
from integration.brokers.rabbitmq import RabbitMQ, RabbitMQ4
from integration.brokers.toolchain import LIGHT_JVM, BrokerError, Progress

__all__ = [
    "ALL_BROKERS",
    "BROKERS",
    "LIGHT_JVM",
    "STOMP_BROKERS",
    "ActiveMQ",
    "Artemis",
    "Broker",
    "BrokerError",
    "BrokerJ",
    "Progress",
    "RabbitMQ",
    "RabbitMQ4",
    "containers_wanted",
    "free_ports",
    "required",
]

BROKERS: dict[str, type[Broker]] = {kind.name: kind for kind in (Artemis, ActiveMQ, BrokerJ, RabbitMQ)}
# Also those that only a few tests run, in addition to an older version.
ALL_BROKERS: dict[str, type[Broker]] = {**BROKERS, RabbitMQ4.name: RabbitMQ4}
# Brokers with STOMP, which the STOMP tests run on.
STOMP_BROKERS: dict[str, type[Broker]] = {kind.name: kind for kind in (Artemis, ActiveMQ, RabbitMQ)}
