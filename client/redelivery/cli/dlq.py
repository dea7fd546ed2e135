"""`redelivery dlq`: count, show, redrive, purge, export and resend dead letters."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

import redelivery
from redelivery.cli.app import SuggestingGroup
from redelivery.cli.common_options import (
    number,
    one_of,
    output_option,
    rate,
    seconds,
    uri_and_rest,
    verbose_option,
)
from redelivery.cli.dlq_view import (
    details,
    is_message_id,
    no_letters,
    no_such_letter,
    nothing_matched,
    nothing_there,
    print_groups,
    print_letters,
    report,
    report_redrive,
    report_resend,
)
from redelivery.cli.exit_codes import log_in_refused
from redelivery.cli.formatting import counted, note, progress, stopping
from redelivery.dlq.dead_letter import summarise
from redelivery.dlq.dlq_connection import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redelivery.dlq.dead_letter_queue import DeadLetterQueue


# ---- Dlq options -----------------------------------------------------------------------------------------
# Options that the commands of `redelivery dlq` share, and the connection that they make.

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


# ---- Dlq -------------------------------------------------------------------------------------------------


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    short_help="Count, show, redrive, purge, export and resend dead letters.",
    epilog="""\b
Examples:
  export REDELIVERY_URL=amqp://localhost:5672
  redelivery dlq summary
  redelivery dlq list --cause ValueError --younger-than 2h
  redelivery dlq redrive --cause ValueError --rate 500 --dry-run

\b
Exit codes: 0 ok, 1 failed, 2 usage, 3 some that matched stay, or nothing
matched, 69 broker unreachable, 77 log-in refused, 78 bad configuration.""",
)
@click.pass_context
def dlq(ctx: click.Context) -> None:
    """Count, show, redrive, purge, export and resend dead letters."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@dlq.command(short_help="Count dead letters by origin, cause and day.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@filter_options
@limit_option
@ledger_option
@output_option
@verbose_option
def summary(
    words: tuple[str, ...],
    take: bool,
    idle: float,
    yes: bool,
    ledger: str | None,
    output: str,
    **given: Any,
) -> None:
    """Count dead letters by where they came from, the type of their cause, and the day they died on (UTC).

    Without QUEUE: all places where the dead letters of the URI go.
    """
    with opened(words, take=take, idle=idle, yes=yes, ledger=ledger) as tools:
        steps = progress("counted")
        with steps.shown():
            groups = summarise(counted(tools.list(**filters_of(given)), steps))
        # Of a table without rows, only the queue would be named: as empty, which it need not be.
        unmatched = not groups and filters_of(given)
        if not unmatched or output != "table":
            print_groups(groups, tools.places(**filters_of(given)), output)
        if unmatched:
            raise nothing_matched(tools.contents(), tools.queue, filters_of(given))


@dlq.command("list", short_help="List dead letters.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@filter_options
@click.option("--limit", type=number(1), metavar="N", help="List N dead letters at most.")
@limit_option
@ledger_option
@output_option
@verbose_option
def list_letters(
    words: tuple[str, ...],
    take: bool,
    idle: float,
    limit: int | None,
    yes: bool,
    ledger: str | None,
    output: str,
    **given: Any,
) -> None:
    """List dead letters, in the broker's order. They stay where they are."""
    with opened(words, take=take, idle=idle, yes=yes, ledger=ledger) as tools:
        filters = filters_of(given)
        found = print_letters(tools.list(**filters), limit, output, lambda: tools.places(**filters))
        if not found and filters_of(given):
            raise nothing_matched(tools.contents(), tools.queue, filters_of(given))
        if not found and output == "table":
            note(no_letters(tools.queue))


@dlq.command(short_help="Show one dead letter, with its body.")
@click.argument("words", nargs=-1, required=True, metavar="[URI] [QUEUE] ID")
@reading_options
@limit_option
@ledger_option
@output_option
@verbose_option
def show(words: tuple[str, ...], take: bool, idle: float, yes: bool, ledger: str | None, output: str) -> None:
    """Show the dead letter with this id, now or before it died: cause, headers, and a preview of its body."""
    *others, identity = words
    if "://" in identity:
        raise click.UsageError("give the id of a dead letter as the last argument; dlq list shows them")
    _, rest = uri_and_rest(tuple(others))
    if rest and is_message_id(rest[-1]) and not is_message_id(identity):
        raise click.UsageError(f"the queue comes before the id: redelivery dlq show {identity} {rest[-1]}")
    with opened(tuple(others), take=take, idle=idle, yes=yes, ledger=ledger) as tools:
        try:
            letter = tools.show(identity)
        except redelivery.AdapterError as error:
            raise no_such_letter(error, rest) from None
        details(letter, output)


@dlq.command(
    short_help="Send dead letters back to their original destinations.",
    epilog="""\b
A dead letter leaves only after the broker has confirmed its copy. Stopped or
killed in the middle, the same command goes on where it was; at most one
message is then there twice. Exit code 3: some dead letters that matched stay,
it was broken off after some had gone, or nothing matched.""",
)
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@filter_options
@click.option("--to", metavar="DEST", help="Send all of them there instead.")
@click.option("--rate", type=rate, metavar="N", help="Most messages a second.")
@click.option(
    "--in-flight",
    type=number(1),
    metavar="N",
    help="Copies unconfirmed at once on brokers without transactions: faster, but a kill may leave N twice. [1]",
)
@click.option(
    "--quarantine", metavar="QUEUE", help="Queue for dead letters that were redriven --max-redrives times."
)
@click.option(
    "--max-redrives", type=number(1), default=3, show_default=True, metavar="N", help="See --quarantine."
)
@click.option("--dry-run", is_flag=True, help="Send nothing; show what would be sent.")
@click.option(
    "--yes",
    is_flag=True,
    help="Also redrive to topics: every subscriber gets the message. With filters: also on a queue that drops what "
    "does not match after a number of runs.",
)
@click.option("--native", is_flag=True, help="Also redrive to native://… addresses, which nothing can check.")
@ledger_option
@output_option
@verbose_option
def redrive(
    words: tuple[str, ...], take: bool, idle: float, output: str, max_redrives: int, yes: bool, **given: Any
) -> None:
    """Send dead letters back to their original destinations, or to --to."""
    refuse_topic(given["to"], yes=yes)
    filters = filters_of(given)
    options: dict[str, Any] = {
        name: given[name] for name in ("to", "rate", "in_flight", "quarantine", "native")
    } | filters
    options |= {"maximum_redrives": max_redrives, "topics": yes}
    with (
        opened(words, take=take, idle=idle, yes=yes, ledger=given["ledger"]) as tools,
        stopping("redriven") as steps,
        steps.shown(),
    ):
        if steps.live and tools.browses and not given["dry_run"]:
            planned = tools.redrive(**options, dry_run=True)
            if planned.incomplete is None:
                steps.expect(planned.redriven)
        done = tools.redrive(**options, dry_run=given["dry_run"], progress=steps)
        nothing = None if done.matched or done.incomplete else nothing_there(tools, filters)
        passed_over = tools.limit
    report_redrive(done, output)
    if passed_over is not None:
        note(passed_over)
    if nothing is not None:
        raise nothing


@dlq.command(short_help="Delete dead letters.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@filter_options
@click.option("--dry-run", is_flag=True, help="Delete nothing; show what would be deleted.")
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask. With filters: also on a queue that drops what does not match after a number of runs.",
)
@output_option
@verbose_option
def purge(
    words: tuple[str, ...], take: bool, idle: float, output: str, dry_run: bool, yes: bool, **given: Any
) -> None:
    """Delete dead letters for ever. Asks before, unless --yes is given."""
    filters = filters_of(given)
    with opened(words, take=take, idle=idle, yes=yes) as tools, stopping("purged") as steps:
        if not (yes or dry_run):
            if not answers():
                raise click.UsageError(
                    "purge drops messages for ever: add --yes, or --dry-run to see what it would"
                )
            tools.places(**filters)
            what = "the dead letters that match" if filters else "ALL dead letters"
            if tools.browses:
                planned = tools.purge(dry_run=True, **filters)
                if not planned.purged and planned.incomplete is None:
                    raise nothing_matched(tools.contents(), tools.queue, filters)
                at_least = "" if planned.incomplete is None else "at least "
                what += f" ({at_least}{planned.purged:,})"
            click.confirm(f"Delete {what} in {tools.queue} for ever?", abort=True, err=True)
        with steps.shown():
            done = tools.purge(dry_run=dry_run, progress=steps, **filters)
        nothing = None if done.purged or done.incomplete else nothing_there(tools, filters)
    verb = "would be dropped" if done.dry_run else "dropped"
    report(done, output, [f"{done.purged:,} {verb}"], {})
    if nothing is not None:
        raise nothing


@dlq.command(short_help="Write dead letters to a file.")
@click.argument("words", nargs=-1, metavar="[URI] [QUEUE]")
@filter_options
@click.option(
    "--file", "target", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="FILE",
    help="Default: stdout. The file appears under its name when all is written.",
)  # fmt: skip
@click.option(
    "--force",
    "--yes",
    "force",
    is_flag=True,
    help="Replace a file that exists, without asking. With --take: also on a queue that drops a message after a "
    "number of looks.",
)
@click.option(
    "--format", "form", type=one_of("jsonl", "parquet"), metavar="jsonl|parquet",
    help="JSON Lines, or Parquet (needs pyarrow). Default: by the file's name, else jsonl.",
)  # fmt: skip
@ledger_option
@verbose_option
def export(
    words: tuple[str, ...],
    take: bool,
    idle: float,
    target: str,
    form: str | None,
    force: bool,
    ledger: str | None,
    **given: Any,
) -> None:
    """Write dead letters with their bodies as JSON Lines or Parquet. They stay where they are."""
    form = form or ("parquet" if target.endswith(".parquet") else "jsonl")
    if form == "parquet" and target == "-":
        raise click.UsageError("--format parquet needs --file")
    # A pipe has what was written to it.
    whole = None if target == "-" or (os.path.exists(target) and not os.path.isfile(target)) else target
    if whole is not None and os.path.exists(whole) and not force:
        if not answers():
            raise click.UsageError(f"{whole} exists: add --force to replace it")
        click.confirm(f"{whole} exists. Replace it?", abort=True, err=True)
    with (
        opened(words, take=take, idle=idle, yes=force, ledger=ledger) as tools,
        stopping("exported", whole=whole) as steps,
        steps.shown(),
    ):
        where = click.open_file("-", "wb") if target == "-" else target
        count = tools.export(where, form, progress=steps, **filters_of(given))
        nothing = None if count else nothing_matched(tools.contents(), tools.queue, filters_of(given))
    note(f"{count:,} exported")
    if nothing is not None:
        raise nothing


@dlq.command(
    short_help="Send the dead letters of an export again.",
    epilog="""\b
FILE is an export in JSON Lines; its lines may have been corrected or removed.
A line counts as sent when the broker has confirmed its message, and FILE.sent
says which these are while lines are left: after an interruption the same
command goes on where it was, and at most --in-flight messages are then there
twice. Exit code 3: some lines cannot be sent, or it was broken off after some.""",
)
@click.argument("words", nargs=-1, required=True, metavar="[URI] FILE")
@selecting_options
@click.option("--to", metavar="DEST", help="Send all of them there instead of to their origins.")
@click.option("--rate", type=rate, metavar="N", help="Most messages a second.")
@click.option(
    "--in-flight",
    type=number(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Messages unconfirmed at once: faster, but a kill may leave N twice.",
)
@click.option("--dry-run", is_flag=True, help="Send nothing; show what would be sent.")
@click.option("--yes", is_flag=True, help="Also send to topics: every subscriber gets the message.")
@click.option("--native", is_flag=True, help="Also send to native://… addresses, which nothing can check.")
@output_option
@verbose_option
def resend(words: tuple[str, ...], output: str, dry_run: bool, yes: bool, **given: Any) -> None:
    """Send the dead letters of an export to their original destinations, or to --to. Queues of dead letters stay."""
    uri, rest = uri_and_rest(words)
    if len(rest) != 1:
        raise click.UsageError("give one file that dlq export wrote, after the URI if there is one")
    (file,) = rest
    if file.endswith(".parquet"):
        raise click.UsageError("resend reads JSON Lines: export again without --format parquet")
    refuse_topic(given["to"], yes=yes)
    options = {name: given[name] for name in ("to", "rate", "in_flight", "native")} | filters_of(given)
    with (
        connected(redelivery.dead_letters(uri)) as tools,
        stopping("resent") as steps,
        steps.shown(),
    ):
        done = tools.resend(file, **options, topics=yes, dry_run=dry_run, progress=steps)
    report_resend(done, file, output)
