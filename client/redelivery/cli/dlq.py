"""`redelivery dlq`: look after dead letters."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

import redelivery
from redelivery.cli.common_options import output_option, uri_and_rest, verbose_option
from redelivery.cli.dlq_view import (
    details,
    nothing_meant,
    print_groups,
    print_letters,
    report,
    report_redrive,
)
from redelivery.cli.formatting import note
from redelivery.cli.param_types import number, one_of, seconds
from redelivery.cli.progress import counted, progress, stopping
from redelivery.cli.usage_errors import SuggestingGroup
from redelivery.dlq.queue_browser import IDLE
from redelivery.dlq.results import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redelivery.dlq.dead_letter_queue import DeadLetterQueue

__all__ = ["dlq"]

Command = TypeVar("Command", bound="Callable[..., Any]")


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    short_help="Look after dead letters: count, show, put back, drop, export.",
    epilog="""\b
Examples:
  export REDELIVERY_URL=amqp://localhost:5672
  redelivery dlq summary
  redelivery dlq list --cause ValueError --younger-than 3600
  redelivery dlq redrive --cause ValueError --rate 500 --dry-run

\b
Exit codes: 0 ok, 1 failed, 2 usage, 3 some of what was meant was left, or
nothing was meant, 69 broker unreachable, 78 bad configuration.""",
)
@click.pass_context
def dlq(ctx: click.Context) -> None:
    """Look after dead letters: count, show, put back, drop, export."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _common(command: Command) -> Command:
    """Add the options of every command; the queue and how it is read."""
    for option in (
        click.option(
            "--take", is_flag=True,
            help="Read by receiving and giving back, where the broker cannot show a queue without taking.",
        ),
        click.option(
            "--idle", type=seconds(positive=True), default=IDLE, show_default=True, metavar="SECONDS",
            help="The queue is at its end when nothing has come for so long, where the broker does not tell.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _filters(command: Command) -> Command:
    """Add the options that say which dead letters are meant."""
    age = seconds()
    for option in (
        click.option("--younger-than", type=age, metavar="SECONDS", help="Died at most so long ago."),
        click.option("--older-than", type=age, metavar="SECONDS", help="Died at least so long ago."),
        click.option("--id", multiple=True, metavar="ID", help="Message id, now or before; repeatable."),
        click.option("--destination", multiple=True, metavar="DEST", help="Where from; may have *; repeatable."),
        click.option("--cause", multiple=True, metavar="CAUSE", help="Exception type, or cause with *; repeatable."),
    ):  # fmt: skip
        command = option(command)
    return _common(command)


def _ledger(command: Command) -> Command:
    """Add the option that says who remembers."""
    return click.option(
        "--ledger", metavar="URL",
        help="Whoever consumed has this ledger (sqlite:///path): causes of what the broker poisoned itself.",
    )(command)  # fmt: skip


@contextmanager
def _opened(
    words: tuple[str, ...], *, take: bool, idle: float, ledger: str | None = None
) -> Generator[DeadLetterQueue]:
    uri, rest = uri_and_rest(words)
    if len(rest) > 1:
        raise click.UsageError("give at most one dead-letter queue, after the URI if there is one")
    tools = redelivery.dead_letters(uri, rest[0] if rest else None, take=take, idle=idle, ledger=ledger)
    with tools:
        yield tools
        if tools.limit is not None:
            note(tools.limit)


def _meant(given: dict[str, Any]) -> dict[str, Any]:
    """Return the filters that were given."""
    names = ("cause", "destination", "id", "older_than", "younger_than")
    return {name: given[name] for name in names if given.get(name) not in (None, ())}


@dlq.command(short_help="Count dead letters by origin, cause and day.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@_filters
@_ledger
@output_option
@verbose_option
def summary(
    words: tuple[str, ...], take: bool, idle: float, ledger: str | None, output: str, **given: Any
) -> None:
    """Count dead letters by where they came from, the type of their cause, and the day they died on (UTC).

    QUEUE is the broker's own dead-letter queue if it is not given.
    """
    with _opened(words, take=take, idle=idle, ledger=ledger) as tools:
        steps = progress("counted")
        with steps.shown():
            groups = summarise(counted(tools.list(**_meant(given)), steps))
        print_groups(groups, tools.queue, output)
        if not groups and _meant(given):
            raise nothing_meant(tools.contents(), tools.queue)


@dlq.command("list", short_help="List dead letters.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@_filters
@click.option("--limit", type=number(1), metavar="N", help="List so many at most.")
@_ledger
@output_option
@verbose_option
def list_letters(
    words: tuple[str, ...],
    take: bool,
    idle: float,
    limit: int | None,
    ledger: str | None,
    output: str,
    **given: Any,
) -> None:
    """List dead letters, in the broker's order. They stay where they are."""
    with _opened(words, take=take, idle=idle, ledger=ledger) as tools:
        found = print_letters(tools.list(**_meant(given)), limit, output)
        if not found and _meant(given):
            raise nothing_meant(tools.contents(), tools.queue)
        if not found and output == "table":
            note(f"no dead letters in {tools.queue}")


@dlq.command(short_help="Show one dead letter, with its body.")
@click.argument("words", nargs=-1, required=True, metavar="[URI] [QUEUE] ID")
@_common
@_ledger
@output_option
@verbose_option
def show(words: tuple[str, ...], take: bool, idle: float, ledger: str | None, output: str) -> None:
    """Show the dead letter with this id, now or before it died: cause, headers, and a preview of its body."""
    *others, identity = words
    if "://" in identity:
        raise click.UsageError("give the id of a dead letter as the last argument; dlq list shows them")
    with _opened(tuple(others), take=take, idle=idle, ledger=ledger) as tools:
        details(tools.show(identity), output)


@dlq.command(
    short_help="Put dead letters back where they came from.",
    epilog="""\b
A dead letter leaves only after the broker has confirmed its copy. Stopped or
killed in the middle, the same command goes on where it was; at most one
message is then there twice. Exit code 3: some of what was meant was left, it
was broken off after some had gone, or nothing was meant.""",
)
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@_filters
@click.option("--to", metavar="DEST", help="Where they all go instead.")
@click.option("--rate", type=seconds(positive=True), metavar="N", help="Messages a second at most.")
@click.option(
    "--in-flight",
    type=number(1),
    metavar="N",
    help="Copies unconfirmed at once on brokers without transactions: faster, but a kill may leave N twice. [1]",
)
@click.option("--quarantine", metavar="QUEUE", help="Where those go that were put back --max-redrives times.")
@click.option(
    "--max-redrives", type=number(1), default=3, show_default=True, metavar="N", help="See --quarantine."
)
@click.option("--dry-run", is_flag=True, help="Send nothing; say what would be done.")
@click.option("--yes", is_flag=True, help="Also put back what came from topics: every subscriber gets it.")
@click.option("--native", is_flag=True, help="Also put back to native://…: addresses that nothing can check.")
@_ledger
@output_option
@verbose_option
def redrive(
    words: tuple[str, ...], take: bool, idle: float, output: str, max_redrives: int, yes: bool, **given: Any
) -> None:
    """Put dead letters back where they came from, or where --to says."""
    to: str | None = given["to"]
    if to is not None and to.startswith(("topic://", "temp-topic://")) and not yes:
        raise click.UsageError(
            f"--to {to} is a topic: every subscriber gets each message; add --yes if that is meant"
        )
    options: dict[str, Any] = {
        name: given[name] for name in ("to", "rate", "in_flight", "quarantine", "native")
    } | _meant(given)
    options |= {"maximum_redrives": max_redrives, "topics": yes}
    with (
        _opened(words, take=take, idle=idle, ledger=given["ledger"]) as tools,
        stopping("redriven") as steps,
        steps.shown(),
    ):
        if steps.live and tools.browses and not given["dry_run"]:
            planned = tools.redrive(**options, dry_run=True)
            if planned.incomplete is None:
                steps.expect(planned.redriven)
        done = tools.redrive(**options, dry_run=given["dry_run"], told=steps)
        nothing = (
            None if done.matched or done.incomplete else nothing_meant(tools.contents(take=True), tools.queue)
        )
    report_redrive(done, output)
    if nothing is not None:
        raise nothing


@dlq.command(short_help="Drop dead letters for ever.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@_filters
@click.option("--dry-run", is_flag=True, help="Drop nothing; say what would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@verbose_option
def purge(
    words: tuple[str, ...], take: bool, idle: float, output: str, dry_run: bool, yes: bool, **given: Any
) -> None:
    """Drop dead letters for ever. Asks before, unless --yes is given."""
    with _opened(words, take=take, idle=idle) as tools, stopping("purged") as steps:
        if not (yes or dry_run):
            if not sys.stdin.isatty():
                raise click.UsageError(
                    "purge drops messages for ever: add --yes, or --dry-run to see what it would"
                )
            what = "those that the filters mean" if _meant(given) else "ALL dead letters"
            if tools.browses:
                planned = tools.purge(dry_run=True, **_meant(given))
                at_least = "" if planned.incomplete is None else "at least "
                what += f" ({at_least}{planned.purged})"
            click.confirm(f"Drop {what} in {tools.queue} for ever?", abort=True, err=True)
        with steps.shown():
            done = tools.purge(dry_run=dry_run, told=steps, **_meant(given))
        nothing = (
            None if done.purged or done.incomplete else nothing_meant(tools.contents(take=True), tools.queue)
        )
    verb = "would be dropped" if done.dry_run else "dropped"
    report(done, output, [f"{done.purged} {verb}"], {"left: not meant": done.skipped})
    if nothing is not None:
        raise nothing


@dlq.command(short_help="Write dead letters to a file.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@_filters
@click.option(
    "--file", "target", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="FILE",
    help="Default: stdout. It gets its name when all is written.",
)  # fmt: skip
@click.option(
    "--format", "form", type=one_of("jsonl", "parquet"), metavar="jsonl|parquet",
    help="JSON Lines, or Parquet (needs pyarrow). Default: by the file's name, else jsonl.",
)  # fmt: skip
@_ledger
@verbose_option
def export(
    words: tuple[str, ...],
    take: bool,
    idle: float,
    target: str,
    form: str | None,
    ledger: str | None,
    **given: Any,
) -> None:
    """Write dead letters with their bodies as JSON Lines or Parquet. They stay where they are."""
    form = form or ("parquet" if target.endswith(".parquet") else "jsonl")
    if form == "parquet" and target == "-":
        raise click.UsageError("--format parquet needs --file")
    # A pipe has what was written to it.
    whole = None if target == "-" or (os.path.exists(target) and not os.path.isfile(target)) else target
    with (
        _opened(words, take=take, idle=idle, ledger=ledger) as tools,
        stopping("exported", whole=whole) as steps,
        steps.shown(),
    ):
        where = click.open_file("-", "wb") if target == "-" else target
        count = tools.export(where, form, told=steps, **_meant(given))
        nothing = None if count else nothing_meant(tools.contents(), tools.queue)
    note(f"{count} exported")
    if nothing is not None:
        raise nothing
