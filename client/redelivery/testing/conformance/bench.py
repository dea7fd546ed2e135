"""What each test of the suite works with: queues of its own, connections, and waiting by the pair's clock."""

from __future__ import annotations

import re
import threading
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

__all__ = ["GIVEN_AGAIN", "PATIENCE", "QUICK", "QUIET", "Bench", "Gate", "Suite", "as_text", "refused"]

T = TypeVar("T")
# Seconds for what must happen: a broker may stand still for ten of them (Artemis, after a cut connection).
PATIENCE = 60.0
# Seconds for what must not happen.
QUIET = 0.1
# Seconds after a cut within which a broker on a busy machine gives again what the link held.
GIVEN_AGAIN = 1.0
POLL = 0.01
# The property that tells a test's messages from others'.
MARK = "conformance"
QUICK = redelivery.RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.05, redelivery_delay=0.05
)


class Gate:
    """Where a handler waits until the test opens it. Unlike an event it lets a manual clock see the waiting."""

    def __init__(self, bench: Bench) -> None:
        self._clock = bench.clock
        self._changed = threading.Condition()
        self._open = False

    def open(self) -> None:
        """Let all through, now and later."""
        with self._changed:
            self._open = True
            self._clock.notify(self._changed, 1000)

    def wait(self) -> None:
        """Wait until it is open."""
        with self._changed:
            while not self._open:
                self._clock.wait(self._changed, None)


class Bench:
    """One test's workplace at a pair. Connections that it makes are closed at its end."""

    def __init__(self, broker: BrokerUnderTest, name: str) -> None:
        self.broker = broker
        self.clock = broker.clock
        self.capabilities = broker.capabilities
        self.run = uuid.uuid4().hex[:8]
        stem = re.sub(r"\W+", ".", name).strip(".")[:60]
        self.queue = f"{broker.prefix}conformance.{stem}.{self.run}"
        self.dead_letter_queue = broker.capabilities.dead_letter_destination.partition("://")[2]
        self._connections: list[Connection] = []
        self._gates: list[Gate] = []
        self._found: dict[str, list[Found]] = {}
        self._cut_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    # The library's side.

    def connect(
        self, policy: Policy | RedeliveryPolicyMap | None = QUICK, /, **options: object
    ) -> Connection:
        """Return an open connection; `options` are the URI's, with `__` for a dot. `policy=None`: the URI's own."""
        policies = policy
        if policies is not None and not isinstance(policies, redelivery.RedeliveryPolicyMap):
            policies = redelivery.RedeliveryPolicyMap(default=policies)
        connection = redelivery.connect(self.broker.uri(**options), policies=policies, clock=self.clock)
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
        """Close all connections; nothing of the library is on its way afterwards."""
        for gate in self._gates:
            gate.open()
        while self._connections:
            self._connections.pop().close()

    def prefetched(self, connection: Connection, count: int) -> None:
        """Wait until so many deliveries have come to this connection's consumers so far, dispatched or not."""
        self.eventually(
            lambda: sum(engine.arrived for engine in _engines(connection)) >= count, f"{count} are prefetched"
        )

    def unsettled(self, connection: Connection) -> bool:
        """Whether poison acknowledgements are not confirmed yet."""
        return any(engine.load.unconfirmed for engine in _engines(connection))

    def cut(self, connection: Connection) -> None:
        """Cut the links; return when this connection has noticed, and stands again."""
        before = {engine: engine.epoch for engine in _engines(connection) if engine.epoch != -1}
        assert self.broker.cut() >= 1, "there was no link to cut"
        self._cut_at = self.clock.monotonic()

        def again() -> bool:
            return connection.connected and all(e.epoch not in (-1, old) for e, old in before.items())

        self.eventually(again, "the connection stands again")

    def gate(self) -> Gate:
        """Return a gate, which is opened at the end of the test if nobody has opened it."""
        self._gates.append(Gate(self))
        return self._gates[-1]

    # The other client's side.

    def send(
        self,
        body: object,
        queue: str | None = None,
        *,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Put a marked message on a queue by the other client."""
        self.broker.send(queue or self.queue, body, headers={**(headers or {}), MARK: self.run}, **options)

    def left(self, queue: str | None = None) -> list[Found]:
        """Leave, and return what is on the test's queue: taken once, and kept for the next call."""
        self.leave()
        return self._look(queue or self.queue)

    def found(self) -> list[Found]:
        """Return what the other client has found on the test's queue so far, with the library still there."""
        return self._look(self.queue)

    def letters(self) -> list[Found]:
        """Return the dead letters of this test at the broker's own dead-letter queue, so far."""
        return self._look(self.dead_letter_queue)

    def buried(self, connection: Connection, count: int, queue: str | None = None) -> list[Found]:
        """Wait until so many are poisoned; return all dead letters there are when the library has left."""
        self.eventually(lambda: connection.report().poisoned >= count, f"{count} poisoned")
        self.eventually(lambda: not self.unsettled(connection), "no poison acknowledgement is in doubt")
        self.leave()
        return self._look(queue or self.dead_letter_queue)

    def _look(self, queue: str) -> list[Found]:
        found = self._found.setdefault(queue, [])
        found += [one for one in self.broker.take(queue) if one.headers.get(MARK) == self.run]
        return found

    # Time.

    def eventually(
        self, predicate: Callable[[], T], what: str = "it happens", timeout: float = PATIENCE
    ) -> T:
        """Wait until `predicate` is true, and return that value; AssertionError after `timeout` seconds."""
        deadline = self.clock.monotonic() + timeout
        while not (value := predicate()):
            assert self.clock.monotonic() < deadline, f"not within {timeout:g} s: {what} (last: {value!r})"
            self.pass_time(POLL)
        return value

    def perhaps(self, predicate: Callable[[], object], timeout: float = 5 * QUIET) -> bool:
        """Wait for `predicate` at most so long; return whether it became true."""
        deadline = self.clock.monotonic() + timeout
        while not (found := predicate()) and self.clock.monotonic() < deadline:
            self.pass_time(POLL)
        return bool(found)

    def pass_time(self, seconds: float) -> None:
        """Let time pass: as long as it takes on a real clock, at once on a manual one."""
        pass_time(self.clock, seconds)

    def beside(self, action: Callable[[], T]) -> Future[T]:
        """Run it on another thread, which the pair's clock counts in: time jumps on only when this one waits."""
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
        """Return the next message, which must come."""
        message = consumer.receive(timeout=PATIENCE)
        assert message is not None, f"no message came from {consumer.destination}"
        return message

    def pull_all(self, consumer: Consumer, quiet: float = 2 * QUIET, at_least: int = 0) -> list[Message]:
        """Return all messages until none comes for `quiet` seconds, unsettled; `at_least` so many are waited for."""
        found: list[Message] = []
        deadline = self.clock.monotonic() + PATIENCE
        while True:
            message = consumer.receive(timeout=quiet)
            if message is not None:
                found.append(message)
            elif len(found) >= at_least or self.clock.monotonic() >= deadline:
                return found

    def nothing(self, consumer: Consumer) -> None:
        """Nothing comes; behind a cut not even what a broker gives again late."""
        message = consumer.receive(timeout=max(QUIET, self._cut_at + GIVEN_AGAIN - self.clock.monotonic()))
        assert message is None, f"{message!r} came"


class Suite:
    """What every class of the suite inherits: the fixtures. A pair overrides `broker_under_test`."""

    @pytest.fixture
    def broker_under_test(self) -> BrokerUnderTest:
        """Return the pair; to be overridden, with any scope."""
        raise NotImplementedError(
            f"{type(self).__name__} inherits the conformance suite: give it a fixture broker_under_test"
        )

    @pytest.fixture
    def bench(self, broker_under_test: BrokerUnderTest, request: pytest.FixtureRequest) -> Iterator[Bench]:
        """Return the workplace of one test."""
        with Bench(broker_under_test, request.node.name) as bench:
            yield bench


def refused(action: Callable[[], object], *words: str) -> None:
    """The action raises one of the library's refusals, whose one sentence has these words."""
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
    """Return the engines behind a connection's consumers: the one place that looks behind the public face."""
    return [dispatcher.engine for dispatcher in connection._dispatchers]  # pyright: ignore[reportPrivateUsage]
