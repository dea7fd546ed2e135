"""Scenes on the embedded broker, in virtual time, and the log of the library in each."""

from __future__ import annotations

import logging
import re
from typing import Any

import redelivery
from redelivery.testing import ManualClock, MemoryBroker

__all__ = ["FAST", "log"]

FAST = "jms.redeliveryPolicy.initialRedeliveryDelay=1000"


class _Lines(logging.Handler):
    """The log of the library, without ids, which are random."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = re.sub(
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", record.getMessage()
        )
        text = re.sub(r"broker-\d+(-[0-9a-f]{8})?", "BROKER", text)
        self.lines.append(f"{record.levelname} {record.name}: {text}")


class _Stage:
    """An embedded broker in virtual time, with the connection of a scene."""

    def __init__(self) -> None:
        self.clock = ManualClock(auto_advance=True)
        self.broker = MemoryBroker(clock=self.clock)

    def connect(self, uri_options: str = "", **arguments: Any) -> redelivery.Connection:
        return redelivery.connect(
            f"{self.broker.uri}?{FAST}&{uri_options}".rstrip("&"), clock=self.clock, **arguments
        )


def _received(consumer: redelivery.Consumer, timeout: float = 0) -> redelivery.Message:
    message = consumer.receive(timeout)
    assert message is not None
    return message


def _fails(stage: _Stage) -> None:
    """A handler fails until its message is poison."""
    with stage.connect("jms.redeliveryPolicy.maximumRedeliveries=1") as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        for _ in range(2):
            message = _received(consumer, 5)
            with message:
                raise ValueError("no stock")


def _steers(stage: _Stage) -> None:
    """A handler says what is to be done."""
    with stage.connect() as connection:
        consumer = connection.consumer("orders")
        for error in (redelivery.Poison("bad"), redelivery.Discard("old"), redelivery.Defer(60.0, "busy")):
            stage.broker.send("orders", "a")
            message = _received(consumer, 0)
            with message:
                raise error


def _defers_too_often(stage: _Stage) -> None:
    """A deferral past the maximum is charged."""
    with stage.connect("redelivery.maximumDeferrals=1") as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        for _ in range(2):
            message = _received(consumer, 5)
            with message:
                raise redelivery.Defer(0.5)


def _forwards(stage: _Stage) -> None:
    """A dead letter is forwarded, refused once."""
    options_ = "jms.redeliveryPolicy.maximumRedeliveries=0&redelivery.deadLetterDestination=broken"
    stage.broker.fail_forward(1)
    with stage.connect(options_) as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        message = _received(consumer, 0)
        message.fail("no stock")
        stage.clock.advance(5)


def _drops(stage: _Stage) -> None:
    """Dead letters are dropped, and counted in the log."""
    dropping = "redelivery.deadLetterStrategy=discarding&redelivery.reportInterval=1"
    with stage.connect(f"jms.redeliveryPolicy.maximumRedeliveries=0&{dropping}") as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        message = _received(consumer, 0)
        message.fail("no stock")


def _loses_its_connection(stage: _Stage) -> None:
    """A connection is lost while one message is parked and one is handled."""
    with stage.connect() as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        stage.broker.send("orders", "b")
        first, second = _received(consumer), _received(consumer)
        first.fail("no stock")
        stage.broker.cut()
        second.accept()
        stage.clock.advance(10)


def _raises_late(stage: _Stage) -> None:
    """A handler raises after it has settled its message."""
    with stage.connect() as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        message = _received(consumer, 0)
        with message:
            message.accept()
            raise ValueError("late")


def _holds_its_credit(stage: _Stage) -> None:
    """The application settles nothing."""
    with stage.connect("redelivery.credit=1") as connection:
        consumer = connection.consumer("orders")
        stage.broker.send("orders", "a")
        assert consumer.receive(0) is not None
        assert consumer.receive(1) is None


def _rolls_back(stage: _Stage) -> None:
    """A transacted session is rolled back until its messages are poison."""
    with (
        stage.connect("jms.redeliveryPolicy.maximumRedeliveries=1") as connection,
        connection.session("transacted") as session,
    ):
        consumer = session.consumer("orders")
        stage.broker.send("orders", "a")
        for _ in range(2):
            assert consumer.receive(5) is not None
            session.rollback()
        assert consumer.receive(5) is None


SCENES = [
    _fails,
    _steers,
    _defers_too_often,
    _forwards,
    _drops,
    _loses_its_connection,
    _raises_late,
    _holds_its_credit,
    _rolls_back,
]


def log() -> str:
    """Return the log of the library in each scene, at DEBUG."""
    handler = _Lines()
    lines: list[str] = []
    logger = logging.getLogger("redelivery")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        for scene in SCENES:
            handler.lines = []
            stage = _Stage()
            with stage.broker:
                scene(stage)
            # Two threads log after a connection is lost: their order is random.
            told = sorted(handler.lines) if scene is _loses_its_connection else handler.lines
            lines += [f"# {scene.__doc__}", *told]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    return "\n".join(lines)
