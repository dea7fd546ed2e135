"""Workplace of each test of the suite: its queues, connections, and waiting by the pair's clock."""

from __future__ import annotations

import re
import threading
import time
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest

import redelivery
from redelivery.clock import pass_time
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from redelivery import Connection, Consumer, Message, RedeliveryPolicyMap
    from redelivery.core.engine import Engine
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.testing.conformance.broker_under_test import BrokerUnderTest, Found

__all__ = ["GIVEN_AGAIN", "PATIENCE", "QUICK", "QUIET", "Bench", "Suite", "as_text", "refused"]

T = TypeVar("T")
# Seconds to wait for an event that must happen. A broker may pause for ten (Artemis, after a cut connection).
PATIENCE = 60.0
# Seconds to wait for an event that must not happen.
QUIET = 0.1
# Seconds after a cut within which a broker on a busy machine redelivers the messages of the lost connection.
GIVEN_AGAIN = 1.0
POLL = 0.01
# Property that marks the messages of a test.
MARK = "conformance"
QUICK = redelivery.RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.05, redelivery_delay=0.05
)


class Bench:
    """Workplace of one test with a pair. Connections that it makes are closed at its end."""

    def __init__(self, broker: BrokerUnderTest, name: str) -> None:
        self.broker = broker
        self.clock = broker.clock
        self.capabilities = broker.capabilities
        self.run = uuid.uuid4().hex[:8]
        stem = re.sub(r"\W+", ".", name).strip(".")[:60]
        self.queue = f"{broker.prefix}conformance.{stem}.{self.run}"
        self.dead_letter_queue = broker.capabilities.dead_letter_destination.partition("://")[2]
        self._connections: list[Connection] = []
        self._found: dict[str, list[Found]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    # By the library.

    def connect(
        self, policy: Policy | RedeliveryPolicyMap | None = QUICK, /, **options: object
    ) -> Connection:
        """Return an open connection.

        Args:
            policy: Policy or map; None: those of the URI.
            **options: Options of the URI, with `__` for a dot; `dead_letters` and `errors` are the arguments of
                `redelivery.connect`.
        """
        policies = policy
        if policies is not None and not isinstance(policies, redelivery.RedeliveryPolicyMap):
            policies = redelivery.RedeliveryPolicyMap(default=policies)
        given: dict[str, Any] = {name: options.pop(name, None) for name in ("dead_letters", "errors")}
        uri = self.broker.uri(**options)
        connection = redelivery.connect(uri, policies=policies, clock=self.clock, **given)
        connection.__enter__()
        self._connections.append(connection)
        return connection

    def post(
        self, connection: Connection, body: str | bytes, queue: str | None = None, **options: Any
    ) -> str:
        """Send a marked message through the library; return its id."""
        options["headers"] = {**(options.get("headers") or {}), MARK: self.run}
        return connection.send(queue or self.queue, body, **options)

    def leave(self) -> None:
        """Close all connections. No command of the library is on its way afterwards."""
        while self._connections:
            self._connections.pop().close()

    def prefetched(self, connection: Connection, count: int) -> None:
        """Wait until this number of deliveries has arrived on this connection, dispatched or not."""
        self.eventually(lambda: self.arrived(connection) >= count, f"{count} are prefetched")

    def arrived(self, connection: Connection) -> int:
        """Return the number of deliveries that have arrived on this connection, dispatched or not."""
        return sum(engine.arrived for engine in _engines(connection))

    def connection_number(self, message: Message) -> int:
        """Return the number of the connection over which a message arrived. Attempts to connect count, too."""
        return message._delivery.epoch  # pyright: ignore[reportPrivateUsage]

    def unsettled(self, connection: Connection) -> bool:
        """True if poison acknowledgements are not confirmed yet."""
        return any(engine.load.unconfirmed for engine in _engines(connection))

    def cut(self, connection: Connection) -> None:
        """Cut the connections; return when this one has noticed it and is open again."""
        before = {engine: engine.state.epoch for engine in _engines(connection) if engine.state.epoch != -1}
        assert self.broker.cut() >= 1, "there was no link to cut"

        def again() -> bool:
            return connection.connected and all(e.state.epoch not in (-1, old) for e, old in before.items())

        self.eventually(again, "the connection stands again")

    # By the other client.

    def send(
        self,
        body: object,
        queue: str | None = None,
        *,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Send a marked message to a queue by the other client."""
        self.broker.send(queue or self.queue, body, headers={**(headers or {}), MARK: self.run}, **options)

    def left(self, queue: str | None = None, at_least: int = 0) -> list[Found]:
        """Close all connections, and return all messages that were found on the test's queue so far.

        Args:
            queue: Name of another queue.
            at_least: Number of messages to wait for.
        """
        self.leave()
        return self._look(queue or self.queue, at_least)

    def found(self) -> list[Found]:
        """Return all messages that were found on the test's queue so far; connections stay open."""
        return self._look(self.queue)

    def letters(self) -> list[Found]:
        """Return the dead letters of this test so far, on the broker's own dead-letter queue."""
        return self._look(self.dead_letter_queue)

    def buried(self, connection: Connection, count: int, queue: str | None = None) -> list[Found]:
        """Wait until `count` messages are poisoned; close all connections, and return all dead letters."""
        self.settled(connection, count)
        self.leave()
        return self._look(queue or self.dead_letter_queue, count)

    def settled(self, connection: Connection, count: int) -> None:
        """Wait until `count` messages of this connection are poisoned, and their dead letters confirmed."""
        self.eventually(lambda: connection.report().poisoned >= count, f"{count} poisoned")
        self.eventually(lambda: not self.unsettled(connection), "no poison acknowledgement is in doubt")

    def _look(self, queue: str, at_least: int = 0) -> list[Found]:
        found = self._found.setdefault(queue, [])

        def enough() -> bool:
            found.extend(one for one in self.broker.take(queue) if one.headers.get(MARK) == self.run)
            return len(found) >= at_least

        self.eventually(enough, f"{at_least} messages are on {queue}")
        return found

    # Time.

    def eventually(
        self, predicate: Callable[[], T], what: str = "it happens", timeout: float = PATIENCE
    ) -> T:
        """Wait until `predicate` is true, and return its value; AssertionError after `timeout` seconds."""
        deadline = self.clock.monotonic() + timeout
        while not (value := predicate()):
            assert self.clock.monotonic() < deadline, f"not within {timeout:g} s: {what} (last: {value!r})"
            self.pass_time(POLL)
        return value

    def perhaps(self, predicate: Callable[[], object], timeout: float = 5 * QUIET) -> bool:
        """Wait for `predicate`, at most `timeout` seconds; return True if it became true."""
        deadline = self.clock.monotonic() + timeout
        while not (found := predicate()) and self.clock.monotonic() < deadline:
            self.pass_time(POLL)
        return bool(found)

    def really(self, predicate: Callable[[], bool], timeout: float = PATIENCE) -> bool:
        """Wait for `predicate` in real time, also on a manual clock; return True if it became true."""
        deadline = time.monotonic() + timeout
        while not (found := predicate()) and time.monotonic() < deadline:
            time.sleep(POLL)
        return found

    def pass_time(self, seconds: float) -> None:
        """Wait: on a real clock as long as it takes, on a manual one at once."""
        pass_time(self.clock, seconds)

    def beside(self, action: Callable[[], T]) -> Future[T]:
        """Call a function on another thread, which the pair's clock counts: time jumps only when it waits."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                value = action()
            except BaseException as error:  # noqa: BLE001 - the test asks the future
                self.clock.detach()
                done.set_exception(error)
            else:
                self.clock.detach()
                done.set_result(value)

        self.clock.attach()
        threading.Thread(target=run, name="conformance-beside", daemon=True).start()
        return done

    def pull(self, consumer: Consumer) -> Message:
        """Return the next message; AssertionError if none arrives."""
        message = consumer.receive(timeout=PATIENCE)
        assert message is not None, f"no message came from {consumer.destination}"
        return message

    def pull_all(self, consumer: Consumer, quiet: float = 2 * QUIET, at_least: int = 0) -> list[Message]:
        """Return all messages, unsettled, until none arrives for `quiet` seconds.

        Args:
            consumer: Consumer to pull from.
            quiet: Seconds without a message.
            at_least: Number of messages to wait for.
        """
        found: list[Message] = []
        deadline = self.clock.monotonic() + PATIENCE
        while True:
            message = consumer.receive(timeout=quiet)
            if message is not None:
                found.append(message)
            elif len(found) >= at_least or self.clock.monotonic() >= deadline:
                return found

    def nothing(self, consumer: Consumer, quiet: float = QUIET) -> None:
        """Check that no message arrives for `quiet` seconds.

        After a cut, wait first for an event that proves that the broker has nothing more to redeliver: all that it
        had sent has arrived again, or is settled. Without such an event, `quiet` is GIVEN_AGAIN. A later message would
        prove nothing: it overtakes those of a connection whose end the broker has not noticed yet.
        """
        message = consumer.receive(timeout=quiet)
        assert message is None, f"{message!r} came"


class Suite:
    """Base of all classes of the suite: the fixtures. A pair overrides `broker_under_test`."""

    @pytest.fixture
    def broker_under_test(self) -> BrokerUnderTest:
        """Return the pair. To be overridden, with any scope."""
        raise NotImplementedError(
            f"{type(self).__name__} inherits the conformance suite: give it a fixture broker_under_test"
        )

    @pytest.fixture
    def bench(self, broker_under_test: BrokerUnderTest, request: pytest.FixtureRequest) -> Iterator[Bench]:
        """Return the workplace of one test."""
        with Bench(broker_under_test, request.node.name) as bench:
            yield bench


def refused(action: Callable[[], object], *words: str) -> None:
    """Check that a call is refused, in one sentence that has these words."""
    with pytest.raises((AdapterError, ConfigurationError)) as caught:
        action()
    text = str(caught.value)
    assert text.strip(), "a refusal says why"
    assert "\n" not in text, f"one sentence, not {text!r}"
    for word in words:
        assert word in text, f"{text!r} does not name {word!r}"


def as_text(value: object) -> str:
    """Return a header's value as protocols without types write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _engines(connection: Connection) -> list[Engine]:
    """Return the engines of a connection's consumers, which are private."""
    return [dispatcher.engine for dispatcher in connection._dispatchers]  # pyright: ignore[reportPrivateUsage]
