"""Ctrl-C in the main thread, at every call of a pull loop: no message is lost."""

from __future__ import annotations

import dataclasses
import math
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.eventually import eventually
from tests.interrupts import default_interrupts

import redelivery
import redelivery_memory
import redelivery_memory.adapter
from redelivery.adapter_support import keyboard_interrupts
from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class Interrupt:
    """Sends SIGINT to the calling thread at its n-th check for signals: Python checks at the begin of a function, and
    after a call of C. `reached`: True if there were so many checks.
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
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(OURS):
            return
        self._left -= 1
        if self._left == 0:
            self.reached = True
            self.where = f"{frame.f_code.co_qualname} {event} {frame.f_lineno}"
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)


OURS = tuple(str(Path(init).parent) for init in (redelivery.__file__, redelivery_memory.__file__))
"""Folders of the library's code, which an installed library has elsewhere than the repository."""
OF_THE_APPLICATION = ("Message.__enter__ call", "Message.__exit__ call", "Consumer.receive call")
"""Functions before which the library does not have the message yet, or not any more: the application has it."""


@pytest.fixture(params=[False, True], ids=["at once", "in batches"])
def consumer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MemoryBroker, redelivery.Consumer]]:
    """Return a broker and a consumer of its queue `q`, in real time; `in batches`: as over the network."""
    able = dataclasses.replace(redelivery_memory.adapter.CAPABILITIES, batch=request.param)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    with (
        default_interrupts(),
        MemoryBroker() as broker,
        redelivery.connect(broker.uri) as connection,
        connection.consumer("q") as made,
    ):
        yield broker, made


def each_place(once: Callable[[], object]) -> Iterator[str]:
    """Repeat an action, each time interrupted one place later, until there is no further place; yield the place."""
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
    """A message that was received and settled is accepted; one that was not returned is returned by the next call."""
    broker, pulls = consumer

    def once() -> None:
        with pulls.receive(60) as message:  # type: ignore[union-attr]
            assert message.text == "a"

    broker.send("q", "a")
    places = 0
    for where in each_place(once):
        places += 1
        if where.startswith(OF_THE_APPLICATION):
            # Settle messages that the interrupted application has lost.
            for delivery in pulls._dispatcher.engine.attempts():
                redelivery.Message(delivery, pulls._dispatcher).accept()
        while (left := pulls.receive(0)) is not None:
            left.accept()
        assert (where, pulls._dispatcher.engine.load.running) == (where, 0)
        eventually(lambda: broker.depth("q") == 0)
        broker.send("q", "a")
    assert places > 50


def test_a_send_is_interrupted_anywhere(redelivery_broker: MemoryBroker) -> None:
    """A message that the embedded broker has accepted is delivered, wherever its sending thread is interrupted."""
    with (
        default_interrupts(),
        redelivery.connect(redelivery_broker.uri) as connection,
        connection.consumer("q") as pulls,
    ):
        for where in each_place(lambda: redelivery_broker.send("q", "a")):
            got = 0
            while (message := pulls.receive(0)) is not None:
                message.accept()
                got += 1
            assert (where, redelivery_broker.depth("q"), got <= 1) == (where, 0, True)


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
    """SIGINT is held back to the end of a block, however often it is sent; one that is sent much later acts at once."""
    calls: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append("handler"))
    own = signal.getsignal(signal.SIGINT)
    # "Much later" does not depend on the machine's speed.
    monkeypatch.setattr(keyboard_interrupts, "HANGS", math.inf)
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
    """In another than the main thread the block leaves the handler of SIGINT unchanged."""
    seen: list[object] = []

    def look() -> None:
        with Uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.fixture
def handled() -> Iterator[list[str]]:
    """Set the application's handler of SIGINT, which records its calls; return these."""
    calls: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append("handler"))
    try:
        yield calls
    finally:
        signal.signal(signal.SIGINT, before)


def one_message(broker: MemoryBroker, connection: redelivery.Connection) -> None:
    """Send a message, receive it, and call a function with it."""
    broker.send("q", "a")
    with connection.consumer("q") as consumer:
        message = consumer.receive(60)
        assert message is not None
        message.accept()


def test_the_handler_is_put_back_with_the_last_connection(
    redelivery_broker: MemoryBroker, handled: list[str]
) -> None:
    """SIGINT goes through the library to the application's handler while a connection is open, and directly later."""
    own = signal.getsignal(signal.SIGINT)
    with redelivery.connect(redelivery_broker.uri) as first:
        with redelivery.connect(redelivery_broker.uri) as second:
            one_message(redelivery_broker, second)
        assert signal.getsignal(signal.SIGINT) is not own
        signal.raise_signal(signal.SIGINT)
        assert handled == ["handler"]
        one_message(redelivery_broker, first)
    assert signal.getsignal(signal.SIGINT) is own


def test_a_handler_that_is_set_meanwhile_stays(redelivery_broker: MemoryBroker, handled: list[str]) -> None:
    """A handler that the application sets meanwhile, and that calls the earlier one, stays set at the end."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        one_message(redelivery_broker, connection)
        previous = signal.getsignal(signal.SIGINT)
        assert callable(previous)

        def another(number: int, frame: FrameType | None) -> None:
            handled.append("another")
            previous(number, frame)

        signal.signal(signal.SIGINT, another)
        one_message(redelivery_broker, connection)
        signal.raise_signal(signal.SIGINT)
        assert handled == ["another", "handler"]
    assert signal.getsignal(signal.SIGINT) is another


def test_handlers_set_and_put_back_make_no_chain(redelivery_broker: MemoryBroker, handled: list[str]) -> None:
    """An application that sets its own handler around a part of each message has one at the end, not thousands."""
    own = signal.getsignal(signal.SIGINT)
    with redelivery.connect(redelivery_broker.uri) as connection, connection.consumer("q") as consumer:
        for _ in range(1200):
            redelivery_broker.send("q", "a")
            message = consumer.receive(60)
            assert message is not None
            previous = signal.signal(signal.SIGINT, lambda *_: handled.append("inner"))
            message.accept()
            signal.signal(signal.SIGINT, previous)
        signal.raise_signal(signal.SIGINT)
        assert handled == ["handler"]
    assert signal.getsignal(signal.SIGINT) is own


def test_a_connection_that_another_thread_closes_leaves_a_handler_that_hands_on(
    redelivery_broker: MemoryBroker, handled: list[str]
) -> None:
    """A library handler that another thread's close leaves set passes SIGINT on: only the main thread may reset it."""
    connection = redelivery.connect(redelivery_broker.uri)
    connection.__enter__()
    one_message(redelivery_broker, connection)
    thread = threading.Thread(target=connection.close)
    thread.start()
    thread.join()
    signal.raise_signal(signal.SIGINT)
    assert handled == ["handler"]
    own = signal.getsignal(signal.SIGINT)
    with Uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is not own
