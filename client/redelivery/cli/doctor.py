"""`redelivery doctor`: checks whether a consumer with this URI would work, and says what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from redelivery.cli.common_options import output_option, uri_and_rest, verbose_option
from redelivery.cli.formatting import clean, to_json

if TYPE_CHECKING:
    from redelivery.cli.checks.finding import Finding

__all__ = ["doctor"]


@click.command(
    short_help="Check a URI, the broker behind it, and the rights of its user.",
    epilog="""\b
Examples:
  redelivery doctor stomp://orders-app:secret@broker:61613 orders
  redelivery doctor amqps://broker orders topic://prices --strict
  redelivery doctor memory://shop orders --output json

\b
Each line is ok, note, warn or FAIL, and says what to do. No message is taken,
none is sent without --send, and no queue is made without --create.

\b
Exit codes: that of the first FAIL: 1 rights or dead letters, 69 not reached,
77 log-in refused, 78 URI or configuration; without one 0, and 3 for a warning
with --strict.""",
)
@click.argument("words", nargs=-1, metavar="[URI] [DEST...]")
@click.option("--create", is_flag=True, help="Ask the broker also where that makes a missing queue.")
@click.option("--send", is_flag=True, help="Send one message to redelivery.doctor, and take it back.")
@click.option("--strict", is_flag=True, help="Exit with 3 if there is a warning.")
@output_option
@verbose_option
def doctor(words: tuple[str, ...], create: bool, send: bool, strict: bool, output: str) -> int:
    """Check whether a consumer would work: the URI, network, TLS, log-in, rights, dead letters, policy, ledger.

    Without URI, REDELIVERY_URL is used.
    """
    from redelivery.cli.checks.examination import examine  # noqa: PLC0415 - ssl and sqlite3 at first use
    from redelivery.cli.checks.finding import exit_code, summary  # noqa: PLC0415
    from redelivery.clock import SystemClock  # noqa: PLC0415

    uri, destinations = uri_and_rest(words)
    found: list[Finding] = []
    for finding in examine(uri, destinations, SystemClock(), send=send, create=create):
        found.append(finding)
        if output == "table":
            click.echo(clean(finding.line))
        elif output == "jsonl":
            click.echo(to_json(finding.fields()))
    code = exit_code(found, strict=strict)
    if output == "json":
        click.echo(
            to_json({"findings": [finding.fields() for finding in found], "exit_code": code}, indent=2)
        )
    elif output == "table":
        click.echo(summary(found))
    return code
