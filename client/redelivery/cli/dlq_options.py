"""Options that the commands of `redelivery dlq` share, and the connection that they make."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

import redelivery
from redelivery.cli.common_options import uri_and_rest
from redelivery.cli.formatting import note
from redelivery.cli.log_in_refused import log_in_refused
from redelivery.cli.param_types import seconds
from redelivery.dlq.queue_browser import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redelivery.dlq.dead_letter_queue import DeadLetterQueue

__all__ = [
    "answers",
    "connected",
    "filter_options",
    "filters_of",
    "ledger_option",
    "limit_option",
    "opened",
    "reading_options",
    "refuse_topic",
    "selecting_options",
]

Command = TypeVar("Command", bound="Callable[..., Any]")


def reading_options(command: Command) -> Command:
    """Add the options of every command: how the queue is read."""
    for option in (
        click.option(
            "--take", is_flag=True,
            help="Read by receiving and releasing, on brokers that cannot browse a queue.",
        ),
        click.option(
            "--idle", type=seconds(positive=True), default=f"{IDLE:g}s", show_default=True, metavar="DURATION",
            help="On brokers that do not mark a queue's end: time without a message after which it is read.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def limit_option(command: Command) -> Command:
    """Add `--yes` to a command that only reads."""
    return click.option(
        "--yes", is_flag=True,
        help="With --take: also on a queue that drops a message after a number of looks.",
    )(command)  # fmt: skip


def filter_options(command: Command) -> Command:
    """Add the options that select dead letters, and those of `reading_options`."""
    return reading_options(selecting_options(command))


def selecting_options(command: Command) -> Command:
    """Add the options that select dead letters."""
    age = seconds()
    for option in (
        click.option("--younger-than", type=age, metavar="DURATION", help="Dead for at most this time: 15m, 2h, 30d."),
        click.option("--older-than", type=age, metavar="DURATION", help="Dead for at least this time: 15m, 2h, 30d."),
        click.option("--id", multiple=True, metavar="ID", help="Its id, the original's, or as sent; repeatable."),
        click.option("--destination", multiple=True, metavar="DEST", help="Origin; may have *; repeatable."),
        click.option("--cause", multiple=True, metavar="CAUSE", help="Exception type, or cause with *; repeatable."),
    ):  # fmt: skip
        command = option(command)
    return command


def ledger_option(command: Command) -> Command:
    """Add the option that names the consumer's ledger."""
    return click.option(
        "--ledger", metavar="URL",
        help="The consumer's ledger (sqlite:///path): it has the causes of dead letters that the broker made itself.",
    )(command)  # fmt: skip


def filters_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the filters that were given."""
    names = ("cause", "destination", "id", "older_than", "younger_than")
    return {name: given[name] for name in names if given.get(name) not in (None, ())}


def answers() -> bool:
    """True if a user can answer a question: stdin is a terminal. Python has no stdin if it is closed."""
    return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def refuse_topic(to: str | None, *, yes: bool) -> None:
    """Raise UsageError if all messages are to go to a topic, and the user has not said yes."""
    if to is not None and to.startswith(("topic://", "temp-topic://")) and not yes:
        raise click.UsageError(
            f"--to {to} is a topic: every subscriber gets each message; add --yes to send them"
        )


@contextmanager
def connected(tools: DeadLetterQueue) -> Generator[DeadLetterQueue]:
    """Connect the tools meanwhile."""
    with ExitStack() as stack:
        with log_in_refused():
            stack.enter_context(tools)
        yield tools


@contextmanager
def opened(
    words: tuple[str, ...], *, take: bool, idle: float, yes: bool, ledger: str | None = None
) -> Generator[DeadLetterQueue]:
    """Connect to the dead-letter queue that the arguments name; note at the end why a look was not complete.

    `yes`: also where the broker drops a message after a number of looks.
    """
    uri, rest = uri_and_rest(words)
    if len(rest) > 1:
        raise click.UsageError("give at most one dead-letter queue, after the URI if there is one")
    found = redelivery.dead_letters(
        uri, rest[0] if rest else None, take=take, idle=idle, ledger=ledger, despite_limit=yes
    )
    with connected(found) as tools:
        yield tools
        if tools.limit is not None:
            note(tools.limit)
        if tools.node is not None:
            note(
                f"of {tools.node} alone: in a cluster each node keeps dead letters of its own; give the address of each"
                " one (a pair of which one listens has them in common)"
            )
