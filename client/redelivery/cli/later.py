"""A command whose name is settled, but which is not built yet: it says so, and fails."""

from __future__ import annotations

import click

from redelivery.cli.exits import MISCONFIGURED, Failure

__all__ = ["dlq"]

_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=_ANYTHING, short_help="Look after dead letters (not supported yet).")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND] ...")
def dlq(words: tuple[str, ...]) -> None:
    """Look after dead letters: summary, list, show, redrive, purge, export. Not supported yet."""
    what = f"dlq {words[0]}" if words and not words[0].startswith("-") else "dlq"
    raise Failure(f"{what} is not supported yet", MISCONFIGURED)
