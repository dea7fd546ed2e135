"""A consumer process that freezes: another consumer gets its message when the broker misses its heart-beats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.matrix import some

import redelivery
from integration.availability import own_settings
from integration.brokers import ALL_BROKERS, STOMP_BROKERS
from integration.eventually import SLACK

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.conftest import Session

HEARTBEAT = 1000  # milliseconds
IDLE = 2  # seconds: the setting of the broker
# Seconds: brokers look for missing heart-beats at intervals of their own, and wait for up to two of them.
NOTICED = 8.0 + 2 * SLACK
CHILD = """
import sys, threading, redelivery
with redelivery.connect(sys.argv[1]) as connection:
    message = connection.consumer(sys.argv[2]).receive(timeout=60)
    print("got", message.text, flush=True)
    threading.Event().wait()
"""


def seconds_until_another_has_it(uri: str, queue: str) -> float:
    """Freeze a process that has a message, and return the seconds until another consumer gets it."""
    with redelivery.connect(uri) as connection:
        other = connection.consumer(queue)
        other.close()  # RabbitMQ has the queue now
        connection.send(queue, "one")
        argv = [sys.executable, "-c", CHILD, uri, queue]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                assert child.stdout.readline() == "got one\n"
                os.kill(child.pid, signal.SIGSTOP)
                began = time.monotonic()
                with connection.consumer(queue) as consumer:
                    message = consumer.receive(timeout=60)
                    took = time.monotonic() - began
                    assert message is not None, "it stayed with the frozen process"
                    message.accept()
            finally:
                child.kill()
    return took


@pytest.mark.ci("a frozen process on each broker: 5 s")
@pytest.mark.parametrize("name", sorted(STOMP_BROKERS))
def test_over_stomp_our_heart_beats_decide(session: Session, name: str, unique_queue: str) -> None:
    """Over STOMP a frozen process loses its messages soon: `redelivery.heartbeat` decides."""
    broker = session.broker(name)
    took = seconds_until_another_has_it(
        broker.uri(protocol="stomp", redelivery__heartbeat=HEARTBEAT), unique_queue
    )
    print(f"\n{name} over STOMP: {took:.1f} s")
    assert took < NOTICED


@pytest.mark.parametrize(
    "name",
    some(
        ["activemq", "artemis", "brokerj", "rabbitmq", "rabbitmq4"], [], ci=["brokerj"],
        why="a broker of its own for each: half a minute",
    ),
)  # fmt: skip
def test_over_amqp_the_brokers_setting_decides(name: str, unique_queue: str) -> None:
    """Over AMQP the broker's own idle time-out, which `doctor` names, decides when a frozen process loses them."""
    impatient: type[Broker] = type("Impatient", (ALL_BROKERS[name],), {"idle": IDLE})
    with own_settings(impatient) as broker:
        took = seconds_until_another_has_it(broker.uri(protocol="amqp"), unique_queue)
    print(f"\n{name} over AMQP: {took:.1f} s")
    assert took < NOTICED
