"""`redelivery send`: sends messages to a queue or topic."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import click

import redelivery
from redelivery.cli.common_options import milliseconds, number, output_option, uri_and_rest, verbose_option
from redelivery.cli.exit_codes import PARTLY, Failure, log_in_refused
from redelivery.cli.formatting import clean, console, note, to_json
from redelivery.driver.port import single

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from redelivery import Connection

__all__ = ["send"]

# Messages from which on a terminal gets a progress bar.
MANY = 20


@dataclass(slots=True)
class _Batch:
    """Bodies to send, their number, and the ids of those sent."""

    bodies: Iterable[bytes | str]
    total: int | None
    ids: list[str] = field(default_factory=list[str])


@click.command(
    short_help="Send messages to a queue or topic.",
    epilog="""\b
Examples:
  redelivery send stomp://localhost:61613 orders '{"id": 7}' \\
      --content-type application/json
  redelivery send stomp://localhost:61613 orders --file a.pdf --header nr=42
  export REDELIVERY_URL=stomp://localhost:61613
  seq 1000 | redelivery send orders --lines

\b
A body that is UTF-8 arrives as a JMS TextMessage, any other, and all with
--bytes, as a BytesMessage. An id is the message's property redeliveryId.

\b
Exit codes: 0 all confirmed by the broker, 1 refused, 3 some were sent before
the failure, 69 broker unreachable, 77 log-in refused, 78 bad configuration.""",
)
@click.argument("words", nargs=-1, required=True, metavar="[URI] DEST [BODY]")
@click.option("--file", "source", type=click.File("rb"), help="Read the body from a file; - is stdin.")
@click.option("--lines", is_flag=True, help="Send each line of the file, or of stdin, as a message.")
@click.option("--bytes", "as_bytes", is_flag=True, help="Send a BytesMessage even if the body is text.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Application property; repeatable."
)
@click.option("--content-type", metavar="TYPE", help="MIME type of the body.")
@click.option("--correlation-id", metavar="ID", help="Correlation id.")
@click.option("--reply-to", metavar="DEST", help="Where an answer is expected.")
@click.option("--priority", type=number(0, 9), metavar="N", help="0 to 9; 4 if not given.")
@click.option(
    "--ttl", type=milliseconds(1), metavar="DURATION", help="Time until it expires; a number alone: ms."
)
@click.option(
    "--delay",
    type=milliseconds(0),
    metavar="DURATION",
    help="Time until delivery; a number alone: ms.",
)
@click.option("--group", metavar="GROUP", help="Message group (JMSXGroupID).")
@click.option("--non-persistent", is_flag=True, help="Let the broker lose it when it restarts.")
@click.option("--count", type=number(1), default=1, metavar="N", help="Send each body this number of times.")
@output_option
@verbose_option
def send(
    words: tuple[str, ...],
    source: IO[bytes] | None,
    lines: bool,
    as_bytes: bool,
    headers: tuple[str, ...],
    ttl: int | None,
    delay: int | None,
    non_persistent: bool,
    count: int,
    output: str,
    **given: Any,
) -> None:
    """Send messages, and print the id of each once the broker has confirmed it.

    The body is the argument, a file, or stdin. Without URI, REDELIVERY_URL is used.
    """
    uri, rest = uri_and_rest(words)
    if len(rest) not in (1, 2):
        raise click.UsageError("give a destination and at most one body, after the URI if there is one")
    body = rest[1] if len(rest) == 2 else None
    options = {
        **given,
        "headers": _headers(headers),
        "ttl": None if ttl is None else ttl / 1000,
        "delay": None if delay is None else delay / 1000,
        "persistent": not non_persistent,
    }
    batch = _batch(body, source, lines=lines, as_bytes=as_bytes, count=count)
    connection = redelivery.connect(uri)
    if connection.settings.scheme == "memory":
        note("memory:// ends with this process: no other process can receive the messages")
    # The form in which the broker's tools, and our log, name it.
    destination = str(single(rest[0]))
    with ExitStack() as stack:
        with log_in_refused():
            stack.enter_context(connection)
        advance = stack.enter_context(_progress(batch.total))
        _send_all(
            connection, destination, batch, options, lambda sent: _show(sent, destination, output, advance)
        )
    if output == "json":
        click.echo(
            to_json({"sent": len(batch.ids), "destination": destination, "message_ids": batch.ids}, indent=2)
        )


def _headers(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter("write NAME=VALUE", param_hint="--header")
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint="--header")
        found[name] = value
    return found


def _batch(body: str | None, source: IO[bytes] | None, *, lines: bool, as_bytes: bool, count: int) -> _Batch:
    """Return the messages to send, from the one place where they are given."""
    if body is not None and (source is not None or lines):
        raise click.UsageError("give the body once: as an argument, or by --file or --lines")
    if body is not None:
        return _Batch(_repeated([body.encode() if as_bytes else body], count), count)
    # Python has no stdin if it is closed.
    if source is None and (sys.stdin is None or sys.stdin.isatty()):  # pyright: ignore[reportUnnecessaryComparison]
        raise click.UsageError("no body: give it as an argument, by --file, or on stdin")
    stream = source or sys.stdin.buffer
    if lines:
        stripped = (line.rstrip(b"\r\n") for line in stream)
        return _Batch(_repeated((_typed(line, as_bytes=as_bytes) for line in stripped), count), None)
    return _Batch(_repeated([_typed(stream.read(), as_bytes=as_bytes)], count), count)


def _typed(body: bytes, *, as_bytes: bool) -> bytes | str:
    if as_bytes:
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _repeated(bodies: Iterable[bytes | str], count: int) -> Iterator[bytes | str]:
    return (body for body in bodies for _ in range(count))


def _send_all(
    connection: Connection,
    destination: str,
    batch: _Batch,
    options: dict[str, Any],
    told: Callable[[str], None],
) -> None:
    try:
        for body in batch.bodies:
            batch.ids.append(connection.send(destination, body, **options))
            told(batch.ids[-1])
    except redelivery.RedeliveryError as error:
        if not batch.ids:
            raise
        of = "" if batch.total is None else f" of {batch.total}"
        raise Failure(f"sent {len(batch.ids)}{of}, then: {error}", PARTLY) from error


def _show(identity: str, destination: str, output: str, advance: Callable[[], None]) -> None:
    if output == "table":
        click.echo(clean(identity))
    elif output == "jsonl":
        click.echo(to_json({"message_id": identity, "destination": destination}))
    advance()


@contextmanager
def _progress(total: int | None) -> Generator[Callable[[], None]]:
    """Show a bar on stderr while many messages are sent, if stderr is a terminal and stdout is not."""
    many = total is None or total >= MANY
    if not many or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(err=True), redirect_stdout=False, transient=True) as progress:
        task = progress.add_task("sending", total=total)
        yield lambda: progress.advance(task)
