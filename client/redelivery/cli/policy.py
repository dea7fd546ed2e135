"""`redelivery policy`: explains and converts policies, and lists the options of URIs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.app import SuggestingGroup
from redelivery.cli.common_options import number, one_of, output_option, uri_and_rest, verbose_option
from redelivery.cli.exit_codes import OK, PARTLY
from redelivery.cli.formatting import console, duration, note, print_table, sparkline, to_json
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from redelivery.cli.explain import Explanation, Row
    from redelivery.importers import Imported
    from redelivery.settings import Settings
    from redelivery.uri.java_uris import Protocol, Rewritten


# ---- Policy files ----------------------------------------------------------------------------------------
# Policy files on the command line: the schedules of all their destinations.

_FILES = (".xml", ".toml", ".json", ".yaml", ".yml")
# Different delays in a row of the table, at most.
_FIRST = 8


def is_file(word: str) -> bool:
    """True if an argument is a file and no URI."""
    return bool(word) and "://" not in word and (Path(word).suffix.lower() in _FILES or Path(word).exists())


def read_file(name: str, *, quiet: bool = False) -> Imported:
    """Read a policy file, and write its notes to stderr, unless `quiet`."""
    from redelivery.importers import read  # noqa: PLC0415 - parsers are for files alone

    imported = read(name)
    for line in () if quiet else imported.notes:
        note(f"note: {line}")
    return imported


def settings_of(imported: Imported) -> Settings:
    """Return the settings of a connection with the policies and dead-letter options of the file."""
    from redelivery.uri.parser import parse_uri  # noqa: PLC0415
    from redelivery.uri.syntax import option_text  # noqa: PLC0415

    options = option_text(imported.dead_letters)
    settings = parse_uri(f"memory://file?{options}" if options else "memory://file")
    return replace(settings, policies=imported.policies)


def show_file(imported: Imported, redeliveries: int | None, output: str) -> None:
    """Show the schedule of every pattern of a file, and that of all other destinations."""
    from redelivery.cli.explain import explain_all, explain_places  # noqa: PLC0415

    settings = settings_of(imported)
    explanations = explain_all(settings, imported.file, redeliveries)
    places = explain_places(settings)
    if output == "json":
        document: dict[str, Any] = {
            "file": imported.file,
            "kind": imported.kind,
            "policies": [explanation.fields("file") for explanation in explanations],
            "dead_letters": dict(imported.dead_letters),
            "dead_letter_map": [{"pattern": pattern, "then": then} for pattern, then in places],
            "notes": [{"line": found.line, "what": found.what, "why": found.why} for found in imported.notes],
        }
        click.echo(to_json(document, indent=2))
    elif output == "jsonl":
        for explanation in explanations:
            click.echo(to_json(explanation.fields("file")))
    else:
        click.echo(f"{imported.file}: {imported.kind}\n")
        headers = ["pattern", "deliveries", "delays", "total"]
        print_table([_row(explanation) for explanation in explanations], headers, fold=["pattern", "delays"])
        if places:
            click.echo()
            rows = [*places, ("(any other)", explanations[-1].then)]
            print_table(rows, ["dead letters of", "then"], fold=["dead letters of", "then"])
        else:
            click.echo(f"\nthen         {explanations[-1].then}")


def _row(explanation: Explanation) -> tuple[str, str, str, str]:
    pattern = explanation.pattern or "(any other)"
    rows = explanation.rows
    runs = [(ms, len(list(run))) for ms, run in groupby(row.delay for row in rows)]
    shown = [duration(ms) if count == 1 else f"{count} x {duration(ms)}" for ms, count in runs[:_FIRST]]
    delays = ", ".join(shown)
    more = not explanation.complete or len(runs) > _FIRST
    varied = " (varied)" if rows and rows[-1].varies else ""
    total = duration(rows[-1].elapsed) if rows else "0 ms"
    return (
        pattern,
        _deliveries(explanation),
        (delays or "none") + (", ..." if more else "") + varied,
        total if explanation.complete else f"over {total}",
    )


def _deliveries(explanation: Explanation) -> str:
    limit = explanation.limit_ms
    if explanation.deliveries is not None:
        return str(explanation.deliveries)
    return "no limit" if limit is None else f"for {duration(limit)}"


# ---- Policy convert --------------------------------------------------------------------------------------
# `redelivery policy convert`: a URI of a Java client, or a broker's or client's file, as a URI of ours or as TOML.

_PREFETCH = "jms.prefetchPolicy."


@dataclass(slots=True)
class _Converted:
    """Result of a conversion."""

    text: str
    """The URI, or the options of one where no address is known; or TOML."""
    uri: str | None
    """The URI without credentials; None: the file names no broker."""
    notes: list[str] = field(default_factory=list[str])
    exact: bool = True
    """True if all schedules are the same, and no option was left out because it is wrong."""


@click.command(
    short_help="Convert a Java URI, or a broker's file, to a URI or TOML.",
    epilog="""\b
Examples:
  redelivery policy convert 'failover:(tcp://a:61616,tcp://b:61616)?\\
  jms.redeliveryPolicy.maximumRedeliveries=3'
  redelivery policy convert 'tcp://a:61616' --protocol amqp
  redelivery policy convert activemq.xml --to toml >policies.toml
  redelivery policy convert broker.xml

\b
A URI is ActiveMQ's (tcp://, ssl://, failover:(...)) or Qpid JMS's (amqp://).
A file is ActiveMQ Classic's, Spring's or Artemis' XML, Broker-J's JSON, or
TOML, found by its content. Its brokerURL gives the addresses of the URI; a
file without one gives the options, which go behind the ? of a URI. What
cannot be carried over is named on stderr, with its line. Exit code 3: a URI
cannot express one of the schedules, or a wrong option was left out.""",
)
@click.argument("source", metavar="URI|FILE")
@click.option("--to", "form", type=one_of("uri", "toml"), default="uri", show_default=True, metavar="uri|toml",
              help="Format; toml: policies and dead letters only.")  # fmt: skip
@click.option("--protocol", type=one_of("stomp", "amqp"), metavar="stomp|amqp",
              help="Protocol of the URI. Default: unchanged, and STOMP instead of OpenWire.")  # fmt: skip
@output_option
@verbose_option
def convert(source: str, form: str, protocol: Protocol | None, output: str) -> int:
    """Convert a URI of a Java client, or a file with policies, to a URI that connects from here, or to TOML."""
    found = _of_file(source, form, protocol) if is_file(source) else _of_uri(source, form, protocol)
    for line in found.notes:
        note(f"note: {line}")
    if output == "table":
        click.echo(found.text, nl=not found.text.endswith("\n"))
    else:
        options = found.text if found.uri is None else found.text.partition("?")[2]
        written = {"toml": found.text} if form == "toml" else {"options": options}
        document = {"uri": found.uri, **written, "notes": found.notes}
        click.echo(to_json(document, indent=2 if output == "json" else None))
    return OK if found.exact else PARTLY


def _of_uri(uri: str, form: str, protocol: Protocol | None) -> _Converted:
    from redelivery.uri.parser import parse_uri, rewritten_uri  # noqa: PLC0415

    found = rewritten_uri(uri, protocol)
    text = found.uri
    if form == "toml":
        from redelivery.importers.toml_policies import to_toml  # noqa: PLC0415
        from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX  # noqa: PLC0415
        from redelivery.uri.options_reader import DEAD_LETTER_OPTIONS, OUTCOME  # noqa: PLC0415

        dead = {
            name: value
            for name, value in found.options.items()
            if name in DEAD_LETTER_OPTIONS or name.startswith(DEAD_LETTER_MAP_PREFIX)
        }
        settings = parse_uri(found.uri)
        if OUTCOME in found.options:
            dead["redelivery.deadLetter"] = settings.dead_letters.default.dead_letter
        text = to_toml(settings.policies, dead)
    return _Converted(text, found.uri, list(found.notes), not found.left_out)


def _of_file(file: str, form: str, protocol: Protocol | None) -> _Converted:
    from redelivery.importers.uri_writer import to_uri_options  # noqa: PLC0415

    imported = read_file(file, quiet=True)
    notes = [str(one) for one in imported.notes]
    broker = _broker(imported, protocol, notes)
    options = {} if broker is None else {n: v for n, v in broker.options.items() if not _of_policy(n)}
    options |= _prefetch(imported, options, notes)
    written = to_uri_options(imported.policies, imported.dead_letters)
    complete = not any(one.left_out for one in imported.notes)
    exact = complete and not written.differences and (broker is None or not broker.left_out)
    text = "&".join(part for part in (_text(options), written.text) if part)
    uri = None if broker is None or not broker.address else f"{broker.address}?{text}"
    if form == "toml":
        from redelivery.importers.toml_policies import to_toml  # noqa: PLC0415

        return _Converted(to_toml(imported.policies, imported.dead_letters), uri, notes, complete)
    notes += [f"{file}: {line}" for line in (*written.differences, *written.notes)]
    return _Converted(text if uri is None else uri, uri, notes, exact)


def _text(options: dict[str, str]) -> str:
    from redelivery.uri.syntax import option_text  # noqa: PLC0415

    return option_text(options)


def _of_policy(name: str) -> bool:
    from redelivery.uri.option_table import MAP_PREFIX, OUR_MAP_PREFIX, OUR_POLICY, POLICY  # noqa: PLC0415
    from redelivery.uri.options_reader import OUTCOME  # noqa: PLC0415

    return name != OUTCOME and name.startswith((MAP_PREFIX, OUR_MAP_PREFIX, OUR_POLICY, POLICY))


def _broker(imported: Imported, protocol: Protocol | None, notes: list[str]) -> Rewritten | None:
    """Return what the first factory of a file becomes, without an address if its `brokerURL` is not known."""
    from redelivery.uri.parser import rewritten_uri  # noqa: PLC0415
    from redelivery.uri.syntax import with_options  # noqa: PLC0415

    first: Rewritten | None = None
    for url in imported.clients.broker_urls:
        place = f"{imported.file}:{url.line}: brokerURL"
        if first is not None:
            notes.append(f"{place}: a URI has one list of addresses, that of the first brokerURL; left out")
            continue
        text = _without_placeholders(url.text, place, notes)
        known = not _is_placeholder(text)
        if not known:
            notes.append(f"{place}: a placeholder's value is not known here; its addresses are left out")
        options = (
            _factory_options(imported, url.text, notes) if url is imported.clients.broker_urls[0] else {}
        )
        if not known and not options:
            continue
        try:
            first = rewritten_uri(with_options(_open(text) if known else "stomp://host", options), protocol)
        except ConfigurationError as error:
            notes.append(f"{place}: {error.errors[0]}; left out")
            continue
        notes += [f"{place}: {line}" for line in first.notes]
        first = first if known else replace(first, address="")
    return first


def _is_placeholder(text: str) -> bool:
    return "${" in text or "#{" in text


def _without_placeholders(url: str, place: str, notes: list[str]) -> str:
    """Return a `brokerURL` whose options have no placeholder: its default is taken, or the option is left out.

    Policies are read by the importer, which notes theirs.
    """
    from redelivery.importers.file_syntax import default_of  # noqa: PLC0415
    from redelivery.uri.option_table import OPTIONS  # noqa: PLC0415
    from redelivery.uri.syntax import java_name_repeats  # noqa: PLC0415

    head, mark, query = url.rpartition("?")
    if not mark or _is_placeholder(head) or not _is_placeholder(query):
        return url
    kept: list[str] = []
    for one in query.split("&"):
        name, _, text = one.partition("=")
        default = default_of(text)
        if not _is_placeholder(one):
            kept.append(one)
        elif not _of_policy(name):
            said = f"{name}: " if java_name_repeats(name) or name in OPTIONS else ""
            why = "value is not known here; left out" if default is None else "default is taken"
            notes.append(f"{place}: {said}a placeholder's {why}")
            kept += [] if default is None else [f"{name}={default}"]
    return f"{head}?{'&'.join(kept)}" if kept else head


def _open(url: str) -> str:
    """Return a `brokerURL` that options can be added to: without parentheses, `failover:` has none."""
    head, colon, rest = url.partition(":")
    return f"{head}:({rest})" if head == "failover" and colon and not set("(?") & set(rest) else url


def _factory_options(imported: Imported, url: str, notes: list[str]) -> dict[str, str]:
    """Return a factory's properties as options of its URL, which are the same in Java; note the others."""
    from redelivery.uri.java_options import is_java_only  # noqa: PLC0415
    from redelivery.uri.option_table import OPTIONS  # noqa: PLC0415

    options: dict[str, str] = {}
    for name, value in imported.clients.properties:
        place = f"{imported.file}:{value.line}: {name}"
        secret = name in ("userName", "password")
        if f"jms.{name}" not in OPTIONS and not is_java_only(f"jms.{name}", failover=False):
            notes.append(f"{place}: a property of the Java client only; left out")
        elif _is_placeholder(value.text) and not secret:
            notes.append(f"{place}: a placeholder's value is not known here; left out")
        elif not secret or "@" not in url:
            options[f"jms.{name}"] = value.text
    return options


def _prefetch(imported: Imported, options: dict[str, str], notes: list[str]) -> dict[str, str]:
    """Return the prefetch of a file's destinations, if all have the same; note each that is left out."""
    found = imported.clients.prefetches
    counts = {one.messages for one in found}
    given = next((name for name in options if name.startswith(_PREFETCH)), None)
    if given is None and len(counts) == 1 and 0 not in counts:
        one = found[0]
        notes.append(
            f"{imported.file}:{one.line}: consumer.prefetchSize={one.messages} is of {one.destination}; "
            f"{_PREFETCH}all is of all destinations"
        )
        return {f"{_PREFETCH}all": str(one.messages)}
    notes += [
        f"{imported.file}:{one.line}: consumer.prefetchSize={one.messages} of {one.destination}: a URI has one for all "
        f"destinations; use listen({one.destination!r}, ..., credit={max(one.messages, 1)}); left out"
        for one in found
    ]
    return {}


# ---- Policy ----------------------------------------------------------------------------------------------

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
