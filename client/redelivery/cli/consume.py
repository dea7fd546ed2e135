"""`redelivery consume`: run a function or a command for each message, or print them."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import redelivery
from redelivery.cli.common_options import output_option, uri_and_rest, verbose_option
from redelivery.cli.exit_codes import FAILED, OK, PARTLY, Failure
from redelivery.cli.failure_options import FailureOptions, failure_options
from redelivery.cli.formatting import note, to_json
from redelivery.cli.health_endpoint import Supervision, health_options
from redelivery.cli.param_types import number, one_of, seconds
from redelivery.cli.printer import Printer, report_line
from redelivery.core.credit_pace import MOST_CREDIT
from redelivery.core.delivery import Cause
from redelivery.uri.parser import parse_to_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from redelivery.cli.shell_handler import CommandHandler
    from redelivery.cli.stop_condition import StopCondition
    from redelivery.core.report import Report
    from redelivery.driver.port import ListenOptions
    from redelivery.message import Message

__all__ = ["consume"]

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
    from redelivery.cli.stop_condition import StopCondition  # noqa: PLC0415

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
    from redelivery.cli.handler_lookup import load_handler  # noqa: PLC0415

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
    from redelivery.cli.drain_notice import Consuming  # noqa: PLC0415
    from redelivery.core.async_callable import is_async_callable  # noqa: PLC0415

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
    from redelivery.cli.drain_notice import AsyncConsuming  # noqa: PLC0415

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
