"""Ctrl-C in the main thread, at every call of a pull loop: nothing that was taken in hand is lost."""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.eventually import eventually

import redelivery
import redelivery_memory.adapter
from redelivery.adapter_support import keyboard_interrupts
from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class Interrupt:
    """Delivers SIGINT to the calling thread at its n-th look for signals: Python looks at the begin of a function, and
    behind a call of C. `reached`: whether there were so many.
    """

    def __init__(self, number: int) -> None:
        self.reached = False
        self.where = ""
        self._left = number

    def __enter__(self) -> Self:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(HERE):
            return
        self._left -= 1
        if self._left == 0:
            self.reached = True
            self.where = f"{frame.f_code.co_qualname} {event} {frame.f_lineno}"
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)


HERE = redelivery.__file__.rsplit("client", 1)[0]
OF_THE_APPLICATION = ("Message.__enter__ call", "Message.__exit__ call", "Consumer.receive call")
"""Before these run, nothing is in the library's hands yet, or any more: the message is the application's."""


@pytest.fixture(params=[False, True], ids=["at once", "in batches"])
def consumer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MemoryBroker, redelivery.Consumer]]:
    """Return a broker and a consumer of its queue `q`, in real time; `in batches`: as over the network."""
    able = dataclasses.replace(redelivery_memory.adapter.CAPABILITIES, batch=request.param)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            MemoryBroker() as broker,
            redelivery.connect(broker.uri) as connection,
            connection.consumer("q") as made,
        ):
            yield broker, made
    finally:
        signal.signal(signal.SIGINT, before)


def each_place(once: Callable[[], object]) -> Iterator[str]:
    """Do something again and again, each time interrupted one place later, until it has no more; tell where."""
    number = 0
    while True:
        number += 1
        try:
            with Interrupt(number) as interrupt:
                once()
        except KeyboardInterrupt:
            pass
        sys.setprofile(None)
        if not interrupt.reached:
            return
        yield interrupt.where


def test_a_pull_loop_is_interrupted_anywhere(consumer: tuple[MemoryBroker, redelivery.Consumer]) -> None:
    """A message that was received and settled is accepted; one that was not returned comes to the next call."""
    broker, pulls = consumer

    def once() -> None:
        with pulls.receive(60) as message:  # type: ignore[union-attr]
            assert message.text == "a"

    broker.send("q", "a")
    places = 0
    for where in each_place(once):
        places += 1
        if where.startswith(OF_THE_APPLICATION):
            # Settle what the application has lost.
            for delivery in pulls._dispatcher.engine.attempts():
                redelivery.Message(delivery, pulls._dispatcher).accept()
        while (left := pulls.receive(0)) is not None:
            left.accept()
        assert (where, pulls._dispatcher.engine.running) == (where, 0)
        eventually(lambda: broker.depth("q") == 0)
        broker.send("q", "a")
    assert places > 50


def test_a_send_is_interrupted_anywhere(redelivery_broker: MemoryBroker) -> None:
    """What the embedded broker has taken in is handed over, whatever interrupts the thread that sent it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with redelivery.connect(redelivery_broker.uri) as connection, connection.consumer("q") as pulls:
            for where in each_place(lambda: redelivery_broker.send("q", "a")):
                got = 0
                while (message := pulls.receive(0)) is not None:
                    message.accept()
                    got += 1
                assert (where, redelivery_broker.depth("q"), got <= 1) == (where, 0, True)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_waiting_receive_is_interrupted(consumer: tuple[MemoryBroker, redelivery.Consumer]) -> None:
    """Ctrl-C ends a wait for a message, and the consumer goes on afterwards."""
    broker, pulls = consumer
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        eventually(lambda: pulls._dispatcher._waiting == 1)
        signal.pthread_kill(main, signal.SIGINT)

    other = threading.Thread(target=press)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        pulls.receive()
    other.join()
    assert pulls._dispatcher._waiting == 0
    broker.send("q", "a")
    message = pulls.receive(60)
    assert message is not None
    message.accept()


def test_another_interrupt_breaks_into_a_block_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT is held back to the end of a block, however often it comes; one that comes much later acts at once."""
    calls: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append("handler"))
    own = signal.getsignal(signal.SIGINT)
    try:
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            calls.append("block")
        monkeypatch.setattr(keyboard_interrupts, "HANGS", 0.0)
        with Uninterrupted(), Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            calls.append("second block")
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == ["block", "handler", "handler", "second block"]


def test_a_thread_has_no_interrupts() -> None:
    """In another thread than the main one the block leaves the handler of SIGINT alone."""
    seen: list[object] = []

    def look() -> None:
        with Uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
