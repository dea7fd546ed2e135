"""`redelivery consume`: run a function or a command for each message, or print them."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import click

import redelivery
from redelivery.async_connection import AsyncConnection
from redelivery.classifier import Classifier
from redelivery.cli.common_options import (
    number,
    one_of,
    output_option,
    seconds,
    statuses,
    uri_and_rest,
    verbose_option,
)
from redelivery.cli.exit_codes import FAILED, OK, PARTLY, Failure, log_in_refused
from redelivery.cli.formatting import Printer, note, report_line, to_json
from redelivery.cli.health_endpoint import Supervision, health_options
from redelivery.connection import Connection
from redelivery.core.application_functions import is_failure_type
from redelivery.core.breaker import Breaker
from redelivery.core.credit import MOST_CREDIT
from redelivery.core.delivery import Cause
from redelivery.errors import ConfigurationError
from redelivery.events import Finished, Started
from redelivery.handler_exceptions import Defer
from redelivery.uri.parser import parse_to_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from redelivery.cli.shell_handler import CommandHandler
    from redelivery.core.delivery import Delivery
    from redelivery.core.report import Report
    from redelivery.driver.port import ListenOptions
    from redelivery.events import Event
    from redelivery.message import Message


# ---- Failure options -------------------------------------------------------------------------------------
# Options of `consume` on failures of its handler: `--poison-on`, `--discard-on`, `--trip-on`, `--trip`.

Command = TypeVar("Command", bound="Callable[..., Any]")

# Argument of each option.
_STATUSES = {"--poison-on": "poison_on", "--discard-on": "discard_on", "--trip-on": "trip_on"}


def failure_options(command: Command) -> Command:
    """Add the options, which `FailureOptions.of` reads."""
    for option in (
        click.option(
            "--trip", multiple=True, metavar="MODULE:EXCEPTION",
            help="An exception of the function that says that a service is down: 3 in a row pause handling, and no "
            "redelivery is used up. May be repeated.",
        ),
        click.option(
            "--trip-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that say that a service is down: 3 in a row pause handling, and no "
            "redelivery is used up.",
        ),
        click.option(
            "--discard-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that discard the message.",
        ),
        click.option(
            "--poison-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that dead-letter the message at once.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


class FailureOptions(NamedTuple):
    """Meaning of exit statuses of a command, and of exceptions of a function."""

    poison_on: frozenset[int]
    discard_on: frozenset[int]
    trip_on: frozenset[int]
    errors: Classifier | None
    """Classifier of the listener; None: no exception is named."""

    def pauses(
        self, command: str | None, breaker: Breaker | None
    ) -> tuple[Classifier | None, Breaker | None]:
        """Return the classifier and the breaker of the listener. `breaker`: that of the URI, None: it is off.

        Off is about exit statuses. That the system starts no command is the fault of no message: handling pauses then.
        """
        if command is None or breaker is not None:
            return self.errors, breaker
        from redelivery.cli.shell_handler import NotStarted  # noqa: PLC0415 - for --exec alone

        return Classifier().trip(NotStarted), Breaker(failures=0)

    @classmethod
    def of(cls, given: dict[str, Any], handler: str | None, command: str | None) -> FailureOptions:
        """Remove the options from the arguments of a command, and return their meaning.

        Raises:
            UsageError: They make no sense together.
            ConfigurationError: A named exception does not exist, or is no exception.
        """
        trip = given.pop("trip")
        found: dict[str, frozenset[int] | None] = {name: given.pop(key) for name, key in _STATUSES.items()}
        for name, each in found.items():
            if each is not None and command is None:
                raise click.UsageError(f"{name} is about the exit status of a command: it needs --exec")
        if trip and handler is None:
            raise click.UsageError("--trip is about what a function raises: it needs --handler")
        named = {name: each or frozenset[int]() for name, each in found.items()}
        for one, other in combinations(named, 2):
            if both := named[one] & named[other]:
                raise click.UsageError(f"{one} and {other} both name exit status {min(both)}")
        errors = _errors(trip, of_command=command is not None)
        return cls(named["--poison-on"], named["--discard-on"], named["--trip-on"], errors)


def _errors(trip: tuple[str, ...], *, of_command: bool) -> Classifier | None:
    """Return the classifier. Raises ConfigurationError if a named exception does not exist, or is no exception."""
    if of_command:
        from redelivery.cli.shell_handler import ServiceDown  # noqa: PLC0415 - for --exec alone

        return Classifier().trip(ServiceDown)
    return Classifier().trip(*(_exception(name) for name in trip)) if trip else None


def _exception(name: str) -> type[BaseException]:
    from redelivery.cli.common_options import load_named  # noqa: PLC0415 - for --handler alone

    found = load_named(name, "--trip", "exception")
    if not is_failure_type(found):
        raise ConfigurationError(
            f"--trip {name}: not an exception; name a class of exceptions", option="--trip"
        )
    return found


# ---- Consume ---------------------------------------------------------------------------------------------

# What ends a worker and is no Ctrl-C: a handler that leaves the program, or cancels its own task.
_ENDS = (SystemExit, asyncio.CancelledError)


@click.command(
    short_help="Handle messages with a function or a command, or print them.",
    epilog="""\b
Examples:
  redelivery consume stomp://localhost:61613 orders --handler shop:handle
  redelivery consume stomp://localhost:61613 orders --workers 4 \\
      --exec 'curl -sf --data-binary @- http://shop/orders'
  export REDELIVERY_URL=stomp://localhost:61613
  redelivery consume orders --output jsonl --idle 2 | jq .body

\b
A command finds the message's properties in its environment:
REDELIVERY_MESSAGE_ID, _DESTINATION, _DELIVERY_COUNT, _REDELIVERED,
_CORRELATION_ID, _REPLY_TO, _CONTENT_TYPE, _PRIORITY, _GROUP, _TIMESTAMP,
_EXPIRATION, and REDELIVERY_HEADER_<name> for each application property.
REDELIVERY_LEFT_OUT names those that no environment can carry.

\b
Exit codes:
  0    drained
  1    the broker ended the consumer, the ledger failed, or a handler ended
       the program
  2    usage
  3    at the end of --drain-timeout handlers were still running, or dead
       letters were not confirmed; or a message was set aside
  69   broker unreachable
  70   a handler is stuck (--timeout)
  75   the breaker was open for too long: a service is down (with --idle or
       --count: for a minute, over failures of --trip or --trip-on)
  77   log-in refused
  78   bad configuration
  130, 143  interrupted before it was connected""",
)
@click.argument("words", nargs=-1, required=True, metavar="[URI] DEST")
@click.option("--handler", metavar="MODULE:FUNCTION", help="Call a Python function, plain or async def.")
@click.option(
    "--exec", "command", metavar="COMMAND",
    help="Run a shell command: the body on its stdin; exit status 0 accepts, any other fails, "
    "and the end of its stderr is the cause.",
)  # fmt: skip
@failure_options
@click.option(
    "--workers",
    type=number(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Messages handled at the same time.",
)
@click.option(
    "--count",
    type=number(1),
    metavar="N",
    help="Stop after this number of messages, or when the breaker has been open for a minute over "
    "failures that --trip or --trip-on names.",
)
@click.option(
    "--idle", type=seconds(positive=True), metavar="DURATION",
    help="Stop when no message arrived, was handled or was parked for this time, or when the breaker has been open for "
    "a minute over failures that --trip or --trip-on names.",
)  # fmt: skip
@click.option(
    "--timeout", type=seconds(positive=True), metavar="DURATION",
    help="Time for one message: then a command is killed, an async function cancelled, and it has failed. After twice "
    "as long, which only a plain function can reach, consuming ends with exit code 70.",
)  # fmt: skip
@click.option("--selector", help="JMS selector, evaluated by the broker.")
@click.option("--subscription", help="Durable topic subscription; needs jms.clientID in the URI.")
@click.option("--credit", type=number(1), metavar="N", help="Messages that may be unsettled here at once.")
@click.option(
    "--ordering",
    type=one_of("non_blocking", "blocking", "per_group"),
    metavar="ORDER",
    help="Order of messages: non_blocking (others overtake one that waits), blocking or per_group.",
)
@click.option(
    "--drain-timeout", type=seconds(), default="30s", show_default=True, metavar="DURATION",
    help="When stopping: time for running handlers to finish.",
)  # fmt: skip
@health_options
@output_option
@verbose_option
def consume(
    words: tuple[str, ...],
    handler: str | None,
    command: str | None,
    drain_timeout: float,
    output: str,
    **given: Any,
) -> int:
    """Consume messages: each goes through its destination's redelivery policy.

    With --handler or --exec each message is handled by your code: a return, or exit status 0, accepts it; anything
    else fails it, and the policy decides when it is redelivered. With neither, messages are printed and accepted.
    SIGTERM and Ctrl-C drain: no handler is started, running ones may finish. The report goes to stderr, or with
    --output json to stdout. Without URI, REDELIVERY_URL is used.
    """
    if handler is not None and command is not None:
        raise click.UsageError("give one of --handler and --exec, not both")
    failures = FailureOptions.of(given, handler, command)
    uri, rest = uri_and_rest(words)
    if len(rest) != 1:
        raise click.UsageError("give one destination, after the URI if there is one")
    settings = parse_to_connect(uri)
    given["errors"], given["breaker"] = failures.pauses(command, settings.breaker)
    count = given.pop("count")
    if given["credit"] is None and count is not None and count < (settings.credit or MOST_CREDIT):
        # More would be taken from other consumers for nothing.
        given["credit"] = count
    tally = StopCondition(count, scheduler=settings.scheduler)
    printer = Printer(output, tally.end) if handler is None and command is None else None
    if printer is not None and given["timeout"] is not None:
        raise click.UsageError("--timeout needs --handler or --exec")
    work, commands = _work(handler, command, printer, output, failures, given["timeout"])
    try:
        with _terminated_cleanly():
            report, error = _run(uri, rest[0], work, tally, drain_timeout, given)
    finally:
        if commands is not None:
            commands.kill()
    report = tally.without_own(report)
    # After an error a report without counts says nothing.
    if error is None or any(asdict(report).values()):
        _tell(report, output, printer)
    if error is not None:
        raise error
    return PARTLY if report.running or report.unconfirmed or report.set_aside else OK


def _listen_options(given: dict[str, Any]) -> ListenOptions:
    return {
        "workers": given["workers"],
        "selector": given["selector"],
        "subscription": given["subscription"],
        "credit": given["credit"],
        "ordering": given["ordering"],
        "timeout": given["timeout"],
        "errors": given["errors"],
        "breaker": given["breaker"],
    }


def _work(
    handler: str | None,
    command: str | None,
    printer: Printer | None,
    output: str,
    failures: FailureOptions,
    timeout: float | None,
) -> tuple[Callable[[Message], Any], CommandHandler | None]:
    """Return the handler, and the same as a command handler if it is one. No I/O with the broker."""
    if printer is not None:
        return printer, None
    if command is not None:
        from redelivery.cli.shell_handler import CommandHandler  # noqa: PLC0415

        commands = CommandHandler(
            command,
            own_stdout=output == "table",
            poison_on=failures.poison_on,
            discard_on=failures.discard_on,
            trip_on=failures.trip_on,
            timeout=timeout,
        )
        return commands, commands
    from redelivery.cli.common_options import load_handler  # noqa: PLC0415

    assert handler is not None
    return load_handler(handler), None


def _run(
    uri: str,
    destination: str,
    work: Callable[[Message], Any],
    tally: StopCondition,
    drain_timeout: float,
    given: dict[str, Any],
) -> tuple[Report, Exception | None]:
    from redelivery.core.application_functions import is_async_callable  # noqa: PLC0415

    if is_async_callable(work):
        return asyncio.run(_run_async(uri, destination, work, tally, drain_timeout, given))
    supervision = Supervision.of(given)
    observers = [tally, *supervision.observers()]
    connection = Consuming(uri, patient=supervision.patient, finite=tally.finite, observers=observers)
    tally.stop = connection.stop

    def admitted(message: Message) -> Any:
        tally.admit(message)
        # A plain function may return a coroutine, which the caller checks.
        return work(message)

    connection.listen(destination, admitted, **_listen_options(given))
    with supervision.of_connection(connection), connection:
        _say_ready(destination)
        try:
            return connection.run(drain_timeout=drain_timeout, until_idle=given["idle"]), None
        except redelivery.RedeliveryError as error:
            return connection.report(), error
        except _ENDS as error:
            return connection.report(), _ended_by_handler(error)


async def _run_async(
    uri: str,
    destination: str,
    work: Callable[[Message], Any],
    tally: StopCondition,
    drain_timeout: float,
    given: dict[str, Any],
) -> tuple[Report, Exception | None]:

    supervision = Supervision.of(given)
    observers = [tally, *supervision.observers()]
    connection = AsyncConsuming(uri, patient=supervision.patient, finite=tally.finite, observers=observers)
    tally.stop = connection.stop

    async def admitted(message: Message) -> None:
        tally.admit(message)
        await work(message)

    connection.listen(destination, admitted, **_listen_options(given))
    with supervision.of_connection(connection):
        async with connection:
            _say_ready(destination)
            try:
                return await connection.run(drain_timeout=drain_timeout, until_idle=given["idle"]), None
            except redelivery.RedeliveryError as error:
                return connection.report(), error
            except _ENDS as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    # Ctrl-C, not the handler.
                    raise
                return connection.report(), _ended_by_handler(error)


def _ended_by_handler(error: BaseException) -> Failure:
    return Failure(f"the handler ended the program: {Cause.of(error).text}", FAILED)


def _say_ready(destination: str) -> None:
    if sys.stderr.isatty():
        note(f"consuming {destination}; Ctrl-C drains and stops, a second one stops at once")


def _tell(report: Report, output: str, printer: Printer | None) -> None:
    if printer is not None:
        printer.finish(report)
    elif output == "table":
        note(f"report: {report_line(report)}")
    else:
        click.echo(to_json(asdict(report)))


class _Terminated(KeyboardInterrupt):
    """SIGTERM outside of draining: the connection is closed first."""


@contextmanager
def _terminated_cleanly() -> Generator[None]:
    """Close the connection and end with 143 at a SIGTERM before consuming, or at one that cuts a drain short."""

    def raise_it(_: int, __: FrameType | None) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, raise_it)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    except _Terminated:
        raise Failure("terminated", 128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- Drain notice ----------------------------------------------------------------------------------------
# Connections of `consume`: a refused log-in is an exit code, and stderr says what a drain waits for.

# Seconds in which most handlers end: no notice is needed.
SOON = 0.3


class Consuming(Connection):
    """Connection that writes a note if draining takes a while; a refused log-in has an exit code of its own."""

    def __init__(self, uri: str, *, patient: bool, finite: bool, observers: list[Any]) -> None:
        """Make a connection.

        `patient`: entering waits for a broker that is down; the URI may set a limit. `finite`: a breaker that stays
        open ends `run` with BreakerOpen.
        """
        super().__init__(uri, observers=observers)
        self._patient, self._finite = patient, finite

    def __enter__(self) -> Self:
        """Connect."""
        with log_in_refused():
            return super().__enter__()

    def drain(self, timeout: float = 30.0) -> Report:
        """Drain."""
        with _told(self.report, timeout):
            return super().drain(timeout)


class AsyncConsuming(AsyncConnection):
    """The same for asyncio."""

    def __init__(self, uri: str, *, patient: bool, finite: bool, observers: list[Any]) -> None:
        """Make a connection, as `Consuming`."""
        super().__init__(uri, observers=observers)
        self._patient, self._finite = patient, finite

    async def __aenter__(self) -> Self:
        """Connect."""
        with log_in_refused():
            return await super().__aenter__()

    async def drain(self, timeout: float = 30.0) -> Report:
        """Drain."""
        with _told(self.report, timeout):
            return await super().drain(timeout)


@contextmanager
def _told(report: Callable[[], Report], timeout: float) -> Generator[None]:
    def tell() -> None:
        running = report().running
        if running:
            many = "handler still runs" if running == 1 else "handlers still run"
            note(f"draining: {running} {many} (at most {timeout:g} s); again to end at once")

    timer = threading.Timer(SOON, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- Stop condition --------------------------------------------------------------------------------------
# Condition on which `consume --count` stops: a number of messages.

# Outcomes after which a message is not handled again: its dead letter can be unconfirmed, or set aside.
ENDS = ("accepted", "discarded", "poisoned")
# Seconds. Longer than any run: parked messages are released at its end.
LATER = 86400.0


class StopCondition:
    """Observer of one consumer; calls `stop` when the condition holds.

    A message is finished when it is accepted, discarded, dead-lettered or set aside. A parked one is not.
    """

    def __init__(self, count: int | None = None, *, scheduler: str = "client") -> None:
        if count is not None and scheduler == "broker":
            # Surplus messages are deferred until the end, which at the broker is a day; and copies have new ids.
            raise ConfigurationError(
                "--count needs redelivery.scheduler=client: with broker a failed message becomes another one; "
                "use --idle",
                option="--count",
            )
        self.stop: Callable[[], None] = lambda: None
        self._count = count
        self._finished = 0
        self._put_off = 0
        self._begun: set[Delivery] = set()
        self._admitted: set[Delivery] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def finite(self) -> bool:
        """True if the run is to end by itself."""
        return self._count is not None

    def __call__(self, event: Event) -> None:
        """Record an event of the connection."""
        if self._count is None:
            return
        with self._lock:
            match event:
                case Started():
                    self._begun.add(event.delivery)
                case Finished() if event.outcome in ENDS:
                    self._finish(event.delivery)
                case Finished() if event.outcome == "released":
                    # It comes back as another delivery.
                    self._begun.discard(event.delivery)
                    self._admitted.discard(event.delivery)
                case _:
                    pass
            done = self._finished >= self._count
        if done:
            self.end()

    def _finish(self, delivery: Delivery) -> None:
        # Only once: a confirmed copy is an acceptance, too. An expired message was never begun.
        if delivery in self._begun:
            self._begun.discard(delivery)
            self._finished += 1

    def admit(self, message: Message) -> None:
        """Return for the first `count` messages, at each of their deliveries. Raises Defer for the others.

        The others are parked, uncharged, until the end: the broker would redeliver released ones at once.
        """
        # Not its id: a producer may give one id to all messages, or none.
        delivery = message._delivery  # pyright: ignore[reportPrivateUsage]
        with self._lock:
            if not self._ended.is_set():
                if self._count is None or delivery in self._admitted:
                    return
                if len(self._admitted) < self._count or self._lost():
                    self._admitted.add(delivery)
                    return
            self._put_off += 1
        raise Defer(LATER, "not needed any more")

    def without_own(self, report: Report) -> Report:
        """Return the report without the messages that `admit` deferred: the handler never got them."""
        return replace(report, deferred=max(0, report.deferred - self._put_off))

    def _lost(self) -> bool:
        """True if a message was begun on a lost connection: its redelivery is another delivery."""
        return any(delivery.state == "lost" for delivery in self._begun)

    def end(self) -> None:
        """Admit no more messages, and stop."""
        self._ended.set()
        self.stop()
