"""Long handlers, frozen and killed brokers, stalled connections: heart-beats continue; a loss is noticed in time."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.tiers import amount

import redelivery
from integration.eventually import SLACK, eventually, never
from integration.sending import send_again
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integration.brokers import Broker
    from integration.java_client import JavaClient
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("heart-beats of whole seconds beside handlers of 20 s")

LONG = amount("REDELIVERY_LONG", quick=6, ci=20, full=60)  # seconds of a slow handler
HEARTBEAT = "2000"  # milliseconds
NOTICED = 7.0 + SLACK  # seconds in which a loss must be noticed with these heart-beats
DELAY_MS = 400
POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=2, initial_redelivery_delay=DELAY_MS / 1000)
)
LARGE = b"x" * 30_000_000  # more than kernels buffer


class Losses(logging.Handler):
    """Times at which the library logged that a connection was lost, and that one was made."""

    def __init__(self) -> None:
        """Begin without times."""
        super().__init__(logging.INFO)
        self.lost: list[float] = []
        self.made: list[float] = []
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Record the time."""
        text = record.getMessage()
        if text.startswith("connection lost"):
            self.reasons.append(text)
            self.lost.append(time.monotonic())
        elif text.startswith("connected to"):
            self.made.append(time.monotonic())


@pytest.fixture
def losses() -> Iterator[Losses]:
    """The losses of connections during the test."""
    handler, logger = Losses(), logging.getLogger("redelivery")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def secure(broker: Broker, *, tls: bool, **options: Any) -> str:
    """Return the URI, with short heart-beats."""
    options |= {"redelivery__tlsCaFile": broker.ca_pem} if tls else {}
    return broker.uri(
        tls=tls, redelivery__heartbeat=HEARTBEAT, redelivery__connectTimeout=3000, maxReconnectDelay=500,
        startupMaxReconnectAttempts=5, **options,
    ).replace("stomp", "failover:(stomp", 1).replace("?", ")?", 1)  # fmt: skip


@pytest.mark.own_broker(
    "others' cuts would keep Artemis' heart-beats back: it stands still for 10 s after some"
)
def test_a_long_handler_keeps_its_connection(
    artemis: Broker, activemq: Broker, rabbitmq: Broker, new_queue: Callable[[], str], losses: Losses
) -> None:
    """A long handler causes no loss and no second delivery, on all brokers, also over TLS; others are on time."""
    work, slow = Work(), Work()

    def handle(message: redelivery.Message) -> None:
        if message.text == "long":
            threading.Event().wait(LONG)
            slow(message)
        else:
            work(message)

    queue, sent = new_queue(), 0
    with contextlib.ExitStack() as stack:
        connections = []
        for broker, tls in [(b, t) for b in (artemis, activemq, rabbitmq) for t in (False, True)]:
            connection = stack.enter_context(redelivery.connect(secure(broker, tls=tls), policies=POLICIES))
            connection.listen(f"{queue}.{tls}", handle, workers=2)
            stack.enter_context(Running(connection, drain=30))
            connection.send(f"{queue}.{tls}", "long", headers={"key": f"{broker.name}-{tls}"})
            connections.append((connection, f"{queue}.{tls}"))
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            for connection, name in connections:
                connection.send(name, f"once-{sent}", persistent=False)
                sent += 1
            never(lambda: losses.lost, 1.0)
        eventually(lambda: len(slow.done) == 6 and len(work.done) == sent)
    assert losses.lost == []
    assert set(slow.counts().values()) == {1}
    late = [x for key in work.counts() for x in work.lateness(key, [DELAY_MS])]
    print(f"\n{sent} redeliveries during {LONG:g} s: late {min(late):.4f}..{max(late):.4f} s")
    assert min(late) >= 0
    assert max(late) <= SLACK, "none has waited for the slow handler"


@pytest.mark.own_broker("freezes it")
@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_a_frozen_broker_is_noticed(
    broker: Broker, java: JavaClient, unique_queue: str, losses: Losses, *, tls: bool
) -> None:
    """A frozen broker is noticed within a few heart-beats; when it continues, the consumer loses no message."""
    work = Work()
    with redelivery.connect(secure(broker, tls=tls), policies=POLICIES) as connection:
        connection.listen(unique_queue, work)
        with Running(connection):
            connection.send(unique_queue, "before")
            eventually(lambda: work.done["before"])
            java.send(unique_queue, b"once-frozen")
            eventually(lambda: work.attempts["once-frozen"])
            frozen = time.monotonic()
            broker.pause()
            eventually(lambda: losses.lost, 60)
            noticed = losses.lost[0] - frozen
            broker.resume()
            # The log reports the loss before it fails what is being sent.
            send_again(connection, unique_queue, "after")
            eventually(lambda: work.done["after"] and work.done["once-frozen"], 60)
    print(f"\n{broker.name}: noticed after {noticed:.1f} s")
    assert noticed <= NOTICED
    assert work.counts()["once-frozen"] == 2
    assert java.count(unique_queue) == 0


@pytest.mark.own_broker("kills it")
def test_a_killed_broker_is_noticed_over_tls(
    broker: Broker, java: JavaClient, unique_queue: str, losses: Losses
) -> None:
    """A killed broker is noticed by the end of the stream, not by heart-beats; unsettled messages are redelivered."""
    work = Work()
    with redelivery.connect(secure(broker, tls=True), policies=POLICIES) as connection:
        connection.listen(unique_queue, work)
        with Running(connection):
            connection.send(unique_queue, "bad")
            eventually(lambda: work.attempts["bad"])
            killed = broker.kill()
            eventually(lambda: losses.lost, 60)
            noticed = losses.lost[0] - killed
            broker.start()
            # The log reports the loss before it fails what is being sent.
            send_again(connection, unique_queue, "after")
            eventually(lambda: work.done["after"] and len(work.attempts["bad"]) == 3, 60)
            eventually(lambda: connection.report().poisoned == 1)
    print(f"\n{broker.name}: noticed after {noticed:.2f} s")
    assert "heart-beats" not in losses.reasons[0]
    assert java.count(unique_queue) == 0


@pytest.mark.own_broker("freezes it")
@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_a_write_that_a_frozen_broker_blocks_ends(broker: Broker, unique_queue: str, *, tls: bool) -> None:
    """A write that a frozen broker blocks ends with a TransportError by the heart-beats; later sends succeed."""
    with redelivery.connect(secure(broker, tls=tls)) as connection:
        connection.send(unique_queue, "before")
        broker.pause()
        began = time.monotonic()
        with pytest.raises(redelivery.TransportError):
            connection.send(unique_queue, LARGE, timeout=60)
        took = time.monotonic() - began
        broker.resume()
        connection.send(unique_queue, "after", timeout=20)
    print(f"\n{broker.name}: ended after {took:.1f} s")
    assert took <= NOTICED


def test_a_link_that_stalls_is_given_up(broker: Broker, proxy: LinkProxy, unique_queue: str) -> None:
    """A stalled connection ends with a TransportError, and a new one is made when it flows again."""
    with redelivery.connect(secure(broker, tls=False, port=proxy.port)) as connection:
        connection.send(unique_queue, "before")
        proxy.stall()
        began = time.monotonic()
        with pytest.raises(redelivery.TransportError):
            connection.send(unique_queue, b"x" * 1_000_000, timeout=60)
        took = time.monotonic() - began
        proxy.resume()
        connection.send(unique_queue, "after", timeout=20)
    assert took <= NOTICED
