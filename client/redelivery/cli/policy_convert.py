"""`redelivery policy convert`: a URI of a Java client, or a broker's or client's file, as a URI of ours or as TOML."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import click

from redelivery.cli.common_options import output_option, verbose_option
from redelivery.cli.exit_codes import OK, PARTLY
from redelivery.cli.formatting import note, to_json
from redelivery.cli.param_types import one_of
from redelivery.cli.policy_files import is_file
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from redelivery.importers import Imported
    from redelivery.uri.rewriting import Protocol, Rewritten

__all__ = ["convert"]

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
        from redelivery.importers.toml_writer import to_toml  # noqa: PLC0415
        from redelivery.uri.dead_letter_options import DEAD_LETTER_OPTIONS, OUTCOME  # noqa: PLC0415
        from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX  # noqa: PLC0415

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
    from redelivery.cli.policy_files import read_file  # noqa: PLC0415
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
        from redelivery.importers.toml_writer import to_toml  # noqa: PLC0415

        return _Converted(to_toml(imported.policies, imported.dead_letters), uri, notes, complete)
    notes += [f"{file}: {line}" for line in (*written.differences, *written.notes)]
    return _Converted(text if uri is None else uri, uri, notes, exact)


def _text(options: dict[str, str]) -> str:
    from redelivery.uri.joining import option_text  # noqa: PLC0415

    return option_text(options)


def _of_policy(name: str) -> bool:
    from redelivery.uri.dead_letter_options import OUTCOME  # noqa: PLC0415
    from redelivery.uri.option_table import MAP_PREFIX, OUR_MAP_PREFIX, OUR_POLICY, POLICY  # noqa: PLC0415

    return name != OUTCOME and name.startswith((MAP_PREFIX, OUR_MAP_PREFIX, OUR_POLICY, POLICY))


def _broker(imported: Imported, protocol: Protocol | None, notes: list[str]) -> Rewritten | None:
    """Return what the first factory of a file becomes, without an address if its `brokerURL` is not known."""
    from redelivery.uri.joining import with_options  # noqa: PLC0415
    from redelivery.uri.parser import rewritten_uri  # noqa: PLC0415

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
    from redelivery.importers.setting_values import default_of  # noqa: PLC0415
    from redelivery.uri.option_table import OPTIONS  # noqa: PLC0415
    from redelivery.uri.repeatable import java_name_repeats  # noqa: PLC0415

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
