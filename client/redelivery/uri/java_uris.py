"""URIs of the Java clients (ActiveMQ's `tcp://`, Qpid JMS) rewritten as URIs of ours.

Nothing is connected to. What has no meaning here is left out, with a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redelivery.core.destination import Destination
from redelivery.uri.java_options import (
    ARTEMIS_NAMES,
    COUNTERPARTS,
    DESTINATION_OPTIONS,
    QPID_NAMES,
    is_java_only,
    is_qpid_only,
)
from redelivery.uri.option_table import OPTIONS, map_prefix_of
from redelivery.uri.schemes import JAVA_PORTS, SCHEMES, wants_tls
from redelivery.uri.sorted_options import canonical, near_option
from redelivery.uri.syntax import (
    PLAIN,
    Address,
    UriParts,
    java_name_repeats,
    name_repeats,
    option_text,
    shown_address,
    shown_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redelivery.errors import ConfigurationError

__all__ = ["Protocol", "Rewritten", "rewritten"]


# ---- Rewriting -------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    MistakesOf = Callable[[UriParts], Sequence[ConfigurationError]]


Protocol = Literal["stomp", "amqp"]
_PREFETCH = "jms.prefetchPolicy."
# Options looked at, in all, to find one of two that contradict each other and are not named.
_LOOKS = 2000
_USER, _PASSWORD = "USER", "PASSWORD"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A URI that connects from here. No text has a user name or a password."""

    address: str
    """The URI without options."""
    options: Mapping[str, str]
    uri: str
    """The URI, with `USER` and `PASSWORD` where credentials were given."""
    shown: str
    """The same for an error: values that could be a part of a secret are `***`."""
    notes: tuple[str, ...]
    """Sentences about options left out, and about differences."""
    left_out: tuple[str, ...]
    """Options left out because they are wrong, not because they have no meaning here."""


def rewritten(parts: UriParts, mistakes_of: MistakesOf, protocol: Protocol | None = None) -> Rewritten | None:
    """Return the URI that says the same here; None if there is none.

    Args:
        parts: The URI taken apart. An option that is wrong for another reason is left out, with a note.
        mistakes_of: Returns the mistakes of a URI of ours.
        protocol: What to speak; None: what the URI speaks, and STOMP for OpenWire.
    """
    notes = list(_repeated(parts))
    left_out: list[str] = []
    java = any(address.scheme in JAVA_PORTS for address in parts.addresses)
    addresses = tuple(_address(address, protocol) for address in parts.addresses)
    if len({address.scheme.partition("+")[0].removesuffix("s") for address in addresses}) > 1:
        return None
    made = parts._replace(addresses=addresses, options=tuple(_options(parts, notes, left_out, java=java)))
    alone: dict[tuple[str, str], list[str]] = {}
    while found := mistakes_of(made):
        wrong = _wrong(made, found, mistakes_of, alone)
        if not wrong:
            return None
        notes += [f"{text}; left out" for text in dict.fromkeys(wrong.values())]
        left_out += [_said(name, quiet=parts.quiet) for name, _ in wrong]
        made = made._replace(options=tuple(one for one in made.options if one not in wrong))
    notes += _differences(parts, made, java=java, protocol=protocol)
    address, options = _addresses(made), _shown_options(made)
    uri = f"{address}?{option_text(options)}" if options else address
    return Rewritten(
        address, options, uri, _masked(address, options), tuple(dict.fromkeys(notes)), tuple(left_out)
    )


def _wrong(
    made: UriParts,
    found: Sequence[ConfigurationError],
    mistakes_of: MistakesOf,
    alone: dict[tuple[str, str], list[str]],
) -> dict[tuple[str, str], str]:
    """Return the options that make the mistakes, each with its mistake: those that are wrong alone, else one.

    `alone`: the mistakes of each option alone, of earlier calls and of this one.
    """
    for one in made.options:
        if one not in alone:
            alone[one] = [str(error) for error in mistakes_of(made._replace(options=(one,)))]
    texts = list(dict.fromkeys(str(error) for error in found))
    wrong = {one: text for one in made.options for text in alone[one] if text in texts}
    if wrong:
        return wrong
    # Options that contradict each other: the error names one of them, or not where the URI can hold a secret.
    named = {error.option: str(error) for error in found}
    wrong = {one: named[full] for one in made.options if (full := _full(one[0])) in named}
    if wrong:
        return wrong
    for one in made.options[: _LOOKS // len(made.options)]:
        fewer = made._replace(options=tuple(other for other in made.options if other != one))
        if texts[0] not in {str(error) for error in mistakes_of(fewer)}:
            return {one: texts[0]}
    return {}


def _full(name: str) -> str:
    """Return the name of an option as errors have it: canonical, and a pattern with its kind."""
    name = canonical(name)
    prefix = map_prefix_of(name) or ""
    pattern, dot, option = name[len(prefix) :].rpartition(".")
    return f"{prefix}{Destination.parse(pattern)}{dot}{option}" if prefix else name


def _said(name: str, *, quiet: bool) -> str:
    """Return the name of an option for an error: a pattern could be a part of a secret."""
    prefix = map_prefix_of(name)
    return f"{prefix}<pattern>.<option>" if quiet and prefix is not None else name


def _address(address: Address, protocol: Protocol | None) -> Address:
    """Return an address of ours. A port is kept where the protocol is."""
    scheme = address.scheme
    now = "amqp" if scheme.startswith("amqp") else "stomp" if scheme.startswith("stomp") else None
    wanted = protocol or now or "stomp"
    if scheme == "memory" or (scheme not in JAVA_PORTS and now is None) or now == wanted:
        return address._replace(options=())
    tls = wants_tls(scheme)
    new = {
        ("stomp", False): "stomp",
        ("stomp", True): "stomp+ssl",
        ("amqp", False): "amqp",
        ("amqp", True): "amqps",
    }
    ours = new[wanted, tls]
    # Of vm:// the host is the name of a broker inside the JVM.
    host = "localhost" if scheme == "vm" else address.host
    return address._replace(scheme=ours, host=host, port=SCHEMES[ours], options=())


def _options(
    parts: UriParts, notes: list[str], left_out: list[str], *, java: bool
) -> Iterator[tuple[str, str]]:
    """Yield the options that have a meaning here, under their names here; note the others."""
    given = [*parts.options, *(item for address in parts.addresses for item in address.options)]
    names = {name for name, _ in given}
    prefetch = any(name.startswith(_PREFETCH) and name in OPTIONS for name in names)
    for name, value in given:
        shown = shown_value(name, value, quiet=parts.quiet)
        if name == "consumer.prefetchSize" and not prefetch:
            notes.append(
                f"{name}={shown} is of one destination in the Java client; jms.prefetchPolicy.all is of all"
            )
            yield f"{_PREFETCH}all", value
        elif name in DESTINATION_OPTIONS:
            instead = DESTINATION_OPTIONS[name]
            notes.append(
                f"{name}={shown} is of one destination in the Java client; write {instead}; left out"
            )
        elif name in QPID_NAMES and not java:
            yield QPID_NAMES[name], value
        elif name in ARTEMIS_NAMES:
            yield ARTEMIS_NAMES[name], value
        elif value == "0" and canonical(name).startswith(_PREFETCH) and canonical(name) in OPTIONS:
            notes.append(f"{name}=0: the Java client pulls each message; 1, the nearest here, is taken")
            yield name, "1"
        elif map_prefix_of(name) is not None or canonical(name) in OPTIONS:
            yield name, value
        elif is_java_only(name, failover=True) or is_qpid_only(name):
            said = f"{name}={shown}" if java_name_repeats(name) else "an option (name not shown)"
            instead = f"; here {COUNTERPARTS[name]}" if name in COUNTERPARTS else ""
            notes.append(f"{said} is an option of the Java client only{instead}; left out")
        else:
            near = near_option(name)
            repeats = name_repeats(name, quiet=parts.quiet) or java_name_repeats(name)
            said = name if repeats else "an option (name not shown)"
            if near is not None and near not in names:
                notes.append(f"{said} is unknown; taken for {near}")
                yield near, value
            else:
                notes.append(f"{said} is unknown; left out")
                left_out.append(said)


def _repeated(parts: UriParts) -> Iterator[str]:
    """Yield a note for each option that is given more than once."""
    for name in parts.repeated:
        known = name in OPTIONS or name_repeats(name, quiet=parts.quiet) or java_name_repeats(name)
        said = name if known else "an option (name not shown)"
        yield f"{said} is given more than once; the last value counts, as in the Java client"


def _differences(parts: UriParts, made: UriParts, *, java: bool, protocol: Protocol | None) -> Iterator[str]:
    """Yield what the Java clients do otherwise with the same URI."""
    names = {canonical(name) for name, _ in made.options}
    changed = [(a, b) for a, b in zip(parts.addresses, made.addresses, strict=True) if a.scheme != b.scheme]
    if changed:
        old, new = changed[0]
        speaks = (
            ("Core" if parts.artemis else "OpenWire")
            if old.scheme in JAVA_PORTS
            else "AMQP 1.0"
            if old.scheme.startswith("amqp")
            else "STOMP"
        )
        other = {"stomp": "amqp", "amqp": "stomp"}[new.scheme.partition("+")[0].removesuffix("s")]
        yield (
            f"{old.scheme}:// speaks {speaks}; {new.scheme}:// has its own port, {new.port} by default (Artemis serves "
            f"both at the port of tcp://)"
        )
        if protocol is None:
            yield (
                "STOMP is chosen, for it needs no compiled library; JMS Map, Object and Stream messages arrive whole "
                f"only over AMQP 1.0 (--protocol {other})"
            )
    if any(address.user is not None for address in made.addresses) or names & {
        "jms.userName",
        "jms.password",
    }:
        yield f"user name and password are not shown: write yours for {_USER} and {_PASSWORD}"
    startup = {"startupMaxReconnectAttempts", "failover.startupMaxReconnectAttempts"}
    # The Java clients limit the first connect by maxReconnectAttempts, too, if nothing else limits it.
    most = next((value for name, value in made.options if name.endswith("axReconnectAttempts")), "-1")
    if parts.failover and not parts.artemis and not names & startup and most not in ("0", "1"):
        long = "for ever" if most == "-1" else f"up to {most} times"
        yield (
            f"failover: of the Java clients tries {long} to connect first; here connect fails after one round "
            f"(startupMaxReconnectAttempts={most}: {long})"
        )
    if java and not parts.artemis and not names & {"jms.nonBlockingRedelivery", "redelivery.ordering"}:
        yield (
            "the Java client stops a consumer while a message waits for its redelivery; here others overtake it "
            "(redelivery.ordering=blocking: as the Java client)"
        )


def _addresses(parts: UriParts) -> str:
    places = ",".join(_place(address) for address in parts.addresses)
    return f"failover:({places})" if parts.failover else places


def _shown_options(parts: UriParts) -> dict[str, str]:
    return {
        name: _USER if name == "jms.userName" else _PASSWORD if _is_secret(name) else value
        for name, value in parts.options
    }


def _masked(address: str, options: Mapping[str, str]) -> str:
    """Return a URI for an error, where a value that is not plain could be a part of a secret."""
    shown = {
        name: value if PLAIN.fullmatch(value) else "***"
        for name, value in options.items()
        if PLAIN.fullmatch(name)
    }
    return f"{address}?{option_text(shown)}".replace("%2A%2A%2A", "***") if shown else address


def _is_secret(name: str) -> bool:
    option = OPTIONS.get(name)
    return option is not None and option.kind == "secret"


def _place(address: Address) -> str:
    scheme, colon, rest = shown_address(address).partition("://")
    if address.user is None:
        return scheme + colon + rest
    return f"{scheme}{colon}{_USER}{'' if address.password is None else f':{_PASSWORD}'}@{rest}"
