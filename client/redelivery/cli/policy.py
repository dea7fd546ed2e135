"""`redelivery policy`: explains and converts policies, and lists the options of URIs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from redelivery.cli.common_options import output_option, uri_and_rest, verbose_option
from redelivery.cli.formatting import console, duration, note, print_table, sparkline, to_json
from redelivery.cli.param_types import number
from redelivery.cli.policy_convert import convert
from redelivery.cli.policy_files import is_file, read_file, settings_of, show_file
from redelivery.cli.usage_errors import SuggestingGroup

if TYPE_CHECKING:
    from redelivery.cli.explain import Explanation, Row

__all__ = ["policy"]

# Columns from which the list of options is a table.
WIDE = 120


@click.group(
    cls=SuggestingGroup,
    invoke_without_command=True,
    short_help="Explain and convert policies; list the options of URIs.",
)
@click.pass_context
def policy(ctx: click.Context) -> None:
    """Explain and convert redelivery policies, and list the options of connection URIs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


policy.add_command(convert, "convert")


@policy.command(
    short_help="Show which policy serves a destination, and its delays.",
    epilog="""\b
Examples:
  redelivery policy explain --destination orders \\
      'memory://x?jms.redeliveryPolicy.useExponentialBackOff=true'
  redelivery policy explain --destination topic://PRICES.EUR \\
      --plot prices.png 'tcp://a:61616?jms.redeliveryPolicy.redeliveryDelay=9'
  redelivery policy explain broker.xml

\b
Nothing is connected to, and no user name or password is shown. URIs of the
Java client are read too, and files: activemq.xml, broker.xml, Broker-J's
JSON, TOML. Of a file all schedules are shown without --destination.""",
)
@click.argument("words", nargs=-1, metavar="[URI|FILE]")
@click.option(
    "--destination",
    metavar="DEST",
    help="Destination of the policy: a queue, topic:// or any other; needed with a URI.",
)
@click.option("--redeliveries", type=number(1, 10_000), metavar="N", help="Most redeliveries to show.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, writable=True), metavar="FILE", help="Draw it: .png or .svg."
)
@output_option
@verbose_option
def explain(
    words: tuple[str, ...], destination: str | None, redeliveries: int | None, plot: str | None, output: str
) -> None:
    """Show which policy serves a destination, each delay, and what happens after the last one.

    Without URI, REDELIVERY_URL is used.
    """
    from redelivery.cli.explain import explain as explained  # noqa: PLC0415
    from redelivery.uri.parser import parse_uri, redact_uri  # noqa: PLC0415

    file = words[0] if words and is_file(words[0]) else None
    uri, rest = uri_and_rest(words) if file is None else (file, words[1:])
    if rest:
        raise click.UsageError("give one connection URI or file, and the destination as --destination")
    if destination is None and (file is None or plot is not None):
        raise click.UsageError("needs --destination, such as --destination orders")
    _check_plot(plot)
    if file is None:
        settings, name = parse_uri(uri), redact_uri(uri)
    else:
        imported = read_file(file)
        settings, name = settings_of(imported), file
        if destination is None:
            show_file(imported, redeliveries, output)
            return
    assert destination is not None
    explanation = explained(settings, name, destination, redeliveries)
    for line in explanation.notes:
        note(f"note: {line}")
    if output == "json":
        click.echo(to_json(explanation.fields("uri" if file is None else "file"), indent=2))
    elif output == "jsonl":
        for row in explanation.rows:
            click.echo(to_json({"destination": explanation.destination, **row.fields()}))
    else:
        _show(explanation, "uri" if file is None else "file")
    if plot is not None:
        from redelivery.cli.plot import draw  # noqa: PLC0415

        draw(explanation, plot)
        note(f"drawn to {plot}")


def _check_plot(plot: str | None) -> None:
    """Raise BadParameter for a file that cannot be drawn to, before any output."""
    if plot is None:
        return
    if Path(plot).suffix.lower() not in (".png", ".svg"):
        raise click.BadParameter(f"{plot!r} must end with .png or .svg", param_hint="--plot")
    if not Path(plot).absolute().parent.is_dir():
        raise click.BadParameter(f"{plot!r}: no such directory", param_hint="--plot")
    # A missing package is reported before any output.
    import_module("matplotlib")


def _show(explanation: Explanation, source: str) -> None:
    pattern = explanation.pattern
    most, limit = explanation.most, explanation.limit_ms
    head = [
        (source, explanation.source),
        ("destination", explanation.destination),
        ("policy of", "the default: no pattern matches" if pattern is None else f"pattern {pattern}"),
        (
            "deliveries",
            "without limit"
            if most is None
            else f"{most + 1} at most: 1, and {most} {'redelivery' if most == 1 else 'redeliveries'}",
        ),
    ]
    if source == "uri":
        head.append(("credit", explanation.credit))
    if limit is not None:
        head.append(("time", f"no redelivery begins later than {duration(limit)} after the first failure"))
    out = console()
    for name, value in head:
        out.print(f"{name:<12} {value}", soft_wrap=True)
    out.print()
    print_table(explanation.options.items(), ["option", "value"])
    out.print()
    if explanation.rows:
        _show_rows(explanation.rows)
        out.print()
        out.print(f"delays       {sparkline([row.delay for row in explanation.rows])}", soft_wrap=True)
    out.print(f"total        {_total(explanation)}", soft_wrap=True)
    out.print(f"then         {_then(explanation)}", soft_wrap=True)


def _show_rows(rows: tuple[Row, ...]) -> None:
    varies = any(row.varies for row in rows)
    headers = ["redelivery", "delay", "elapsed"]
    if varies:
        headers = ["redelivery", "delay", "min", "max", "elapsed", "earliest", "latest"]
    print_table(
        [
            (str(row.redelivery), duration(row.delay), duration(row.low), duration(row.high), duration(row.elapsed),
             duration(row.elapsed_low), duration(row.elapsed_high))
            if varies
            else (str(row.redelivery), duration(row.delay), duration(row.elapsed))
            for row in rows
        ],
        headers,
        right=headers,
        fold=headers,
    )  # fmt: skip


def _total(explanation: Explanation) -> str:
    if not explanation.rows:
        return "no redelivery"
    last = explanation.rows[-1]
    span = duration(last.elapsed)
    if last.varies:
        span += f" ({duration(last.elapsed_low)} to {duration(last.elapsed_high)})"
    if explanation.complete:
        return f"{span} of waiting, without the time that handlers take"
    return f"{span} for these {len(explanation.rows)} redeliveries; more follow"


def _then(explanation: Explanation) -> str:
    if explanation.deliveries is None and explanation.limit_ms is not None:
        return f"after {duration(explanation.limit_ms)} {explanation.then}"
    if explanation.deliveries is None:
        return "it is redelivered for ever: this policy has no limit"
    plural = "delivery" if explanation.deliveries == 1 else "deliveries"
    sooner = "" if explanation.limit_ms is None else f", or {duration(explanation.limit_ms)},"
    return f"after {explanation.deliveries} failed {plural}{sooner} {explanation.then}"


@policy.command(short_help="List every option of a connection URI.")
@output_option
@verbose_option
def options(output: str) -> None:
    """List every option of a connection URI: name, type, default, over which schemes, meaning.

    Durations are milliseconds, as in ActiveMQ's own URIs.
    """
    from textwrap import fill  # noqa: PLC0415

    from redelivery.uri.option_table import option_rows  # noqa: PLC0415

    headers = ["option", "type", "default", "over", "meaning"]
    rows = option_rows()
    if output == "json":
        click.echo(to_json([dict(zip(headers, row, strict=True)) for row in rows], indent=2))
    elif output == "jsonl":
        for row in rows:
            click.echo(to_json(dict(zip(headers, row, strict=True))))
    elif console().width < WIDE:
        for name, kind, default, over, meaning in rows:
            details = [kind, *([f"default {default}"] if default else []), f"over {over}"]
            click.echo(name)
            for text in (", ".join(details), meaning):
                click.echo(fill(text, console().width, initial_indent="    ", subsequent_indent="    "))
    else:
        print_table(rows, headers, fold=["type", "default", "over", "meaning"])
