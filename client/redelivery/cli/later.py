"""Commands whose names are settled, but which are not built yet: they say so, and fail."""

from __future__ import annotations

import click

from redelivery.cli.exits import MISCONFIGURED, Failure

__all__ = ["convert"]

_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=_ANYTHING, short_help="Convert broker policies (not supported yet).")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE ...")
def convert(words: tuple[str, ...]) -> None:  # noqa: ARG001 - taken so that click does not complain about them
    """Convert policies between broker.xml, activemq.xml, TOML and connection URIs. Not supported yet."""
    raise Failure("policy convert is not supported yet", MISCONFIGURED)
