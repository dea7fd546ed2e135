"""Exceptions of handlers: only those that end the program end the worker, all others go to the policy."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import AsyncTwin, SyncTwin, body_of, eventually
from tests.eventually import eventually as wait_for
from tests.matrix import some

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from pathlib import Path

    from redelivery import Message
    from redelivery.testing import ManualClock, MemoryBroker

    Twin = Any

ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Falsy(Exception):
    def __len__(self) -> int:
        return 0


class Odd(BaseException):
    """BaseException that is neither an Exception nor one of Python's own."""


class OddUnprintable(BaseException):
    def __str__(self) -> str:
        raise SystemExit("no text")

    def __len__(self) -> int:
        return 0


class Unaskable(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class OfNoName(Exception, metaclass=Nameless):
    pass


FAILURES: list[Callable[[], BaseException]] = [
    lambda: ValueError("x"),
    StopIteration,
    StopAsyncIteration,
    concurrent.futures.CancelledError,
    TimeoutError,
    Unprintable,
    Falsy,
    lambda: ExceptionGroup("both", [ValueError("x"), KeyError("y")]),
]
# As `gevent.Timeout` and `greenlet.GreenletExit`, which are no `Exception` either.
ODD: list[Callable[[], BaseException]] = [
    GeneratorExit,
    asyncio.CancelledError,
    Odd,
    OddUnprintable,
    lambda: BaseExceptionGroup("both", [ValueError("x"), Odd()]),
]
FAULTY: list[Callable[[], BaseException]] = [Unaskable, OfNoName]
ENDS: list[Callable[[], BaseException]] = [
    KeyboardInterrupt,
    lambda: SystemExit(3),
    lambda: BaseExceptionGroup("both", [ValueError("x"), BaseExceptionGroup("in", [KeyboardInterrupt()])]),
]
STYLES = ["def", "asyncio def", "asyncio async def"]


def named(make: Callable[[], BaseException]) -> str:
    return type.__repr__(type(make())).split(".")[-1].split("'")[-2]


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    """Return the kind of connection and of handler."""
    made: str = request.param
    return made


@pytest.fixture
def own(style: str, redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> Iterator[Twin]:
    """Return the twin for the style."""
    twin = (SyncTwin if style == "def" else AsyncTwin)(redelivery_broker, redelivery_clock)
    yield twin
    twin.close()


class Raises:
    """Handler that raises on "bad", and calls `then` on "good"."""

    def __init__(self, error: BaseException, then: Callable[[], object] = bool) -> None:
        self.handled: list[str] = []
        self._error = error
        self._then = then

    def __call__(self, message: Message) -> None:
        self.handled.append(message.text)
        if message.text == "bad":
            raise self._error
        self._then()

    def styled(self, style: str) -> Callable[[Message], Any]:
        if style != "asyncio async def":
            return self

        async def handle(message: Message) -> None:
            self(message)

        return handle


OPTIONS = [{}, {"workers": 3}, {"timeout": 60.0}, {"workers": 3, "timeout": 60.0}]
FEW = some(OPTIONS, [OPTIONS[0], OPTIONS[3]])
ONE = some(OPTIONS, [OPTIONS[3]])


@pytest.mark.parametrize("options", ONE, ids=str)
@pytest.mark.parametrize("make", [*FAILURES, *ODD, *FAULTY], ids=named)
@pytest.mark.parametrize("how", ["run", "start"])
def test_an_exception_goes_to_the_policy(
    own: Twin, style: str, make: Callable[[], BaseException], how: str, options: dict[str, Any]
) -> None:
    """An exception of any kind charges the message, here dead-lettered, and the next one is handled."""
    own.broker.send("q", "bad")
    own.broker.send("q", "good")
    connection = own.connect(policies=ONCE)
    handler = Raises(make(), connection.stop)
    connection.listen("q", handler.styled(style), **options)
    if how == "run":
        report = own.call(connection.run())
    else:
        own.call(connection.start())
        eventually(own, lambda: connection.report().accepted and connection.report().poisoned)
        report = connection.report()
    assert sorted(handler.handled) == ["bad", "good"]
    assert (report.accepted, report.poisoned, report.released, report.running) == (1, 1, 0, 0)
    assert [letter.text for letter in own.broker.dead_letters()] == ["bad"]


@pytest.mark.parametrize("options", FEW, ids=str)
@pytest.mark.parametrize("make", ENDS, ids=named)
@pytest.mark.parametrize("how", ["run", "start"])
def test_an_exception_that_ends_the_program_ends_the_consumer(
    own: Twin,
    style: str,
    make: Callable[[], BaseException],
    how: str,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that ends the program releases the message, is logged, stops the consumer, and is raised by `run`."""
    error = make()
    own.broker.send("q", "bad")
    connection = own.connect(policies=ONCE)
    handler = Raises(error)
    connection.listen("q", handler.styled(style), **options)
    dispatchers = connection._dispatchers
    if how == "run":
        with pytest.raises(type(error)) as raised:
            own.call(connection.run())
        assert raised.value is error
    else:
        own.call(connection.start())
        eventually(own, lambda: not dispatchers)
        assert connection.error is error
    listener = connection._listeners[0]
    dispatcher = listener.dispatcher
    assert dispatcher.closed
    assert dispatcher.error.__cause__ is error
    eventually(own, lambda: not any(runner.alive for runner in listener.runners))
    assert [runner.run.now_running() for runner in listener.runners if runner.run.now_running()] == []
    assert connection.report().running == 0
    assert own.broker.dead_letters() == []
    assert own.broker.depth("q") == 1
    lines = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert {record.exc_info[1] for record in lines if record.exc_info} == {error}
    assert all("queue://q: a worker has ended (" in record.getMessage() for record in lines)
    # Another worker may have taken the released message before the consumer stopped.
    assert 1 <= len(lines) <= options.get("workers", 1)


@pytest.mark.parametrize("make", FAILURES, ids=named)
def test_a_block_swallows_an_exception(twin: Twin, make: Callable[[], BaseException]) -> None:
    """An `Exception` in `with message:` goes to the policy, and the loop goes on."""
    twin.broker.send("q", "bad")
    twin.broker.send("q", "good")
    consumer = twin.call(twin.connect(policies=ONCE).consumer("q"))
    for expected in ("bad", "good"):
        message = twin.receive(consumer)
        assert body_of(message) == expected
        twin.inside(message, Raises(make()))
    assert [letter.text for letter in twin.broker.dead_letters()] == ["bad"]
    assert consumer._dispatcher.engine.load.running == 0


def raising(error: BaseException) -> None:
    raise error


def left(twin: Twin, message: Message, error: BaseException) -> BaseException | None:
    """Raise an exception in a `with message:` block of the twin's style; return what leaves the block."""

    async def leave() -> BaseException | None:
        try:
            async with message:
                raising(error)
        except BaseException as through:  # noqa: BLE001 - SystemExit, too, must not end the loop
            return through
        return None

    if isinstance(twin, AsyncTwin):
        return twin.runner.run(leave())
    try:
        with message:
            raising(error)
    except BaseException as through:  # noqa: BLE001 - it is what the test is about
        return through
    return None


def ledger_in(folder: Path) -> str:
    return f"?redelivery.ledger=sqlite:///{folder}/ledger.db"


@pytest.mark.parametrize("make", ENDS, ids=named)
def test_a_block_that_ends_the_program_releases_its_message(
    twin: Twin, make: Callable[[], BaseException]
) -> None:
    """An exception in `with message:` that ends the program releases the message, uncounted, and is passed on."""
    error = make()
    twin.broker.send("q", "bad")
    consumer = twin.call(twin.connect().consumer("q"))
    for _ in range(2):
        message = twin.receive(consumer)
        assert left(twin, message, error) is error
        assert (message.outcome, message.redelivery_count, message.broker_count) == ("released", 0, 0)


@pytest.mark.parametrize("make", ODD, ids=named)
@pytest.mark.parametrize("ledger", [False, True], ids=["memory", "ledger"])
def test_a_block_charges_and_passes_on_any_other_exception(
    twin: Twin, make: Callable[[], BaseException], ledger: bool, tmp_path: Path
) -> None:
    """Any other exception in `with message:` goes to the policy, also one that is no `Exception`, and is passed on."""
    error = make()
    twin.broker.send("q", "bad")
    uri = ledger_in(tmp_path) if ledger else ""
    consumer = twin.call(twin.connect(uri, policies=ONCE).consumer("q"))
    message = twin.receive(consumer)
    assert left(twin, message, error) is error
    assert message.outcome == "poisoned"
    assert [letter.text for letter in twin.broker.dead_letters()] == ["bad"]


@pytest.mark.parametrize("make", ENDS, ids=named)
def test_with_a_ledger_a_block_that_ends_each_program_is_charged(
    twin: Twin, make: Callable[[], BaseException], tmp_path: Path
) -> None:
    """With a ledger a pulled message whose block ends each program is dead after its redeliveries."""
    twin.broker.send("q", "bad")
    policies = RedeliveryPolicyMap(
        default=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.0)
    )
    counts: list[int] = []
    while not twin.broker.dead_letters() and len(counts) < 3:
        connection = twin.connect(ledger_in(tmp_path), policies=policies)
        message = twin.receive(twin.call(connection.consumer("q")))
        counts.append(message.delivery_count)
        error = make()
        assert left(twin, message, error) is error
        twin.leave(connection)
    assert counts == [1, 2]
    assert twin.broker.depth("q") == 0


def test_in_a_session_a_block_that_ends_the_program_is_not_charged(twin: Twin, tmp_path: Path) -> None:
    """In a session such a message is released also with a ledger, as a handler's is."""
    twin.broker.send("q", "bad")
    connection = twin.connect(ledger_in(tmp_path), policies=ONCE)
    session = twin.call(connection.session("individual"))
    message = twin.receive(twin.call(session.consumer("q")))
    assert isinstance(left(twin, message, SystemExit(3)), SystemExit)
    assert message.outcome == "released"


@pytest.mark.parametrize("make", [*ENDS, *ODD], ids=named)
def test_a_message_that_its_block_has_settled_stays_settled(
    twin: Twin, make: Callable[[], BaseException], tmp_path: Path
) -> None:
    """A message that is accepted before its block raises stays accepted, whatever is raised."""
    twin.broker.send("q", "good")
    connection = twin.connect(ledger_in(tmp_path), policies=ONCE)
    message = twin.receive(twin.call(connection.consumer("q")))
    message.accept()
    error = make()
    assert left(twin, message, error) is error
    assert message.outcome == "accepted"


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel the running task, and wait for that."""
    task.cancel()
    await asyncio.Event().wait()


async def cancelled_in(message: Message, style: str, task: asyncio.Task[Any]) -> None:
    """Cancel the running task in a block."""
    if style == "with":
        with message:
            await cancelled(task)
    async with message:
        await cancelled(task)


@pytest.mark.parametrize("style", ["with", "async with"])
def test_a_cancelled_task_releases_the_message_of_its_block(
    redelivery_broker: MemoryBroker, tmp_path: Path, style: str
) -> None:
    """The cancellation of the task that runs the block releases the message, uncharged, also with a ledger."""
    redelivery_broker.send("q", "good")

    async def main() -> None:
        uri = redelivery_broker.uri + ledger_in(tmp_path)
        async with redelivery.connect_async(uri, policies=ONCE) as connection:
            message = await (await connection.consumer("q")).receive()
            assert message is not None
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(asyncio.CancelledError):
                await cancelled_in(message, style, task)
            task.uncancel()
            assert message.outcome == "released"

    asyncio.run(main())
    assert redelivery_broker.depth("q") == 1


def test_a_cancellation_that_was_swallowed_before_the_block_excuses_no_message(
    redelivery_broker: MemoryBroker,
) -> None:
    """A task may swallow its cancellation; a later block that awaits what was cancelled is charged."""
    redelivery_broker.send("q", "bad")

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, policies=ONCE) as connection:
            message = await (await connection.consumer("q")).receive()
            assert message is not None
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(asyncio.CancelledError):
                await cancelled(task)
            with pytest.raises(asyncio.CancelledError):
                async with message:
                    raise asyncio.CancelledError
            assert message.outcome == "poisoned"

    asyncio.run(main())


def test_a_coroutine_that_is_closed_with_its_loop_releases_its_message(
    redelivery_broker: MemoryBroker,
) -> None:
    """A block whose coroutine is closed outside of its task releases its message, uncharged."""
    redelivery_broker.send("q", "good")
    connection = redelivery.connect_async(redelivery_broker.uri, policies=ONCE)

    async def block(message: Message) -> None:
        async with message:
            await asyncio.Event().wait()

    async def main() -> tuple[Message, Coroutine[Any, Any, None]]:
        await connection.__aenter__()
        message = await (await connection.consumer("q")).receive()
        assert message is not None
        running = block(message)
        running.send(None)
        return message, running

    with asyncio.Runner() as runner:
        message, running = runner.run(main())
        running.close()
        assert message.outcome == "released"
        runner.run(connection.close())


def test_a_generator_that_is_closed_in_its_block_charges_its_message(
    redelivery_broker: MemoryBroker,
) -> None:
    """A plain generator that is closed in its `with message:` charges the message: its caller has not gone on."""
    redelivery_broker.send("q", "bad")
    with (
        redelivery.connect(redelivery_broker.uri, policies=ONCE) as connection,
        connection.consumer("q") as consumer,
    ):

        def messages() -> Generator[Message, None, None]:
            for message in consumer:
                with message:
                    yield message

        generator = messages()
        message = next(generator)
        generator.close()
        assert message.outcome == "poisoned"


def test_a_handler_that_settled_before_it_ended_its_worker(own: Twin, style: str) -> None:
    """A message that the handler settled before it ended its worker stays settled."""
    own.broker.send("q", "bad")
    connection = own.connect(policies=ONCE)

    def handle(message: Message) -> None:
        message.accept()
        raise SystemExit(3)

    async def handle_async(message: Message) -> None:
        handle(message)

    connection.listen("q", handle_async if style == "asyncio async def" else handle)
    with pytest.raises(SystemExit):
        own.call(connection.run())
    report = connection.report()
    assert (report.accepted, report.released, own.broker.depth("q")) == (1, 0, 0)


@pytest.mark.parametrize("make", ENDS, ids=named)
def test_with_a_ledger_the_end_of_the_program_is_charged(
    own: Twin, style: str, make: Callable[[], BaseException], tmp_path: Path
) -> None:
    """With a ledger a message whose handler ends each program is dead-lettered, as one that kills its process."""
    own.broker.send("q", "bad")
    own.broker.send("q", "good")
    policy = RedeliveryPolicyMap(
        default=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.0)
    )
    uri = f"?redelivery.ledger=sqlite:///{tmp_path}/ledger.db"
    counts: list[int] = []
    while own.broker.dead_letters() == []:
        connection = own.connect(uri, policies=policy)
        raises = Raises(make(), connection.stop).styled(style)

        def counting(message: Message, raises: Callable[[Message], Any] = raises) -> Any:
            if message.text == "bad":
                counts.append(message.delivery_count)
            return raises(message)

        async def counting_async(message: Message, counting: Callable[[Message], Any] = counting) -> None:
            await counting(message)

        connection.listen("q", counting_async if style == "asyncio async def" else counting)
        with pytest.raises(BaseException):  # noqa: B017, PT011 - the one that the handler raised
            own.call(connection.run())
        connection.close() if style == "def" else own.call(connection.close())
        assert len(counts) <= 2
    assert counts == [1, 2]
    assert own.broker.depth("q") == 1


def test_the_others_of_a_connection_go_on(own: Twin, style: str) -> None:
    """Under `start` a worker that ends stops its own consumer; other listeners go on."""
    connection = own.connect(policies=ONCE)
    other = Raises(SystemExit(4))
    connection.listen("q", Raises(SystemExit(3)).styled(style))
    connection.listen("other", other.styled(style))
    own.call(connection.start())
    own.broker.send("q", "bad")
    eventually(own, lambda: len(connection._dispatchers) == 1)
    own.broker.send("other", "good")
    eventually(own, lambda: other.handled == ["good"])


def test_a_result_that_cannot_be_looked_at_is_accepted(own: Twin, style: str) -> None:
    """A handler may return anything, also a proxy that raises when it is asked for its class."""

    class Unbound:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise RuntimeError("unbound")

    def handle(message: Message) -> object:
        connection.stop()
        return Unbound()

    async def handle_async(message: Message) -> object:
        return handle(message)

    own.broker.send("q", "a")
    connection = own.connect()
    connection.listen("q", handle_async if style == "asyncio async def" else handle)
    assert own.call(connection.run()).accepted == 1


def test_a_cancelled_worker_whose_handler_ends_it(redelivery_broker: MemoryBroker) -> None:
    """A plain handler that calls `sys.exit` during the close has its message released, and is logged."""

    async def main() -> redelivery.Report:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            loop = asyncio.get_running_loop()

            def cancel() -> None:
                # The loop does not know yet that the thread has ended its call: this test has run on it since before.
                pool = connection._pool
                assert pool is not None
                wait_for(lambda: pool._idle == 1)
                connection._listeners[0].runners[0].task.cancel()

            def handle(message: Message) -> None:
                loop.call_soon_threadsafe(cancel)
                raise SystemExit(3)

            redelivery_broker.send("q", "a")
            connection.listen("q", handle)
            await connection.start()
            # Raise it here as `run` would; else leaving the connection would.
            with pytest.raises(SystemExit):
                await connection.wait()
            return connection.report()

    report = asyncio.run(main())
    assert (report.accepted, report.poisoned, report.running) == (0, 0, 0)
    assert redelivery_broker.depth("q") == 1
