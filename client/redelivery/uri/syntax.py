"""Syntax of connection URIs: taking one apart, whatever its options mean, and showing one without secrets.

No error of this module repeats a part of the URI that could belong to a password: a misplaced `@`, `&` or
`,` moves such a part anywhere. In doubt nothing is repeated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from redelivery.core.destination import Destination
from redelivery.errors import ConfigurationError, near_miss
from redelivery.registry import schemes
from redelivery.uri.java_options import (
    DESTINATION_OPTIONS,
    JAVA_NAMES,
    JAVA_PREFIXES,
    QPID_NAMES,
    is_artemis,
    is_java_only,
    is_qpid_only,
)
from redelivery.uri.option_table import (
    DEAD_LETTER_MAP_PREFIX,
    MAP_PREFIX,
    OPTIONS,
    OUR_MAP_PREFIX,
    OUR_POLICY,
    POLICY,
    STRATEGY_NAMES,
    map_prefix_of,
)
from redelivery.uri.schemes import JAVA_PORTS, SCHEMES, SPELLINGS, near_scheme

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PLAIN",
    "Address",
    "UriParts",
    "java_name_repeats",
    "may_stand_for",
    "name_repeats",
    "option_text",
    "redact_uri",
    "shortest",
    "shown_address",
    "shown_value",
    "split_uri",
    "value_to_show",
    "with_options",
]


# ---- Repeatable ------------------------------------------------------------------------------------------
# Rules for the parts of a connection URI that an error may repeat: those that cannot be a misplaced credential.
#
# A password is often pasted behind the wrong option's `=`, or a `&` in it cuts it in two, and its second half reads
# as an option's name. Errors go to logs and tickets.

_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9._,]{0,24}(?:[eE][+-]?[0-9]{1,5})? ?(?:ms|s|sec|m|min|h|d)?|)")
_LIST_OF_NUMBERS = re.compile(r"[0-9.,_ -]{1,500}|")
_NOT_A_NUMBER = ("nan", "inf", "infinity")
_WORD = re.compile(r"[A-Za-z]{1,20}(?:[_-][A-Za-z]{1,20}){0,3}")
# Words that people write for true and false, or for no value.
_WORDS = ("true", "false", "yes", "no", "on", "off", "none", "null", "never", "auto", "default")
_NAME = re.compile(r"[A-Za-z]{1,40}(?:[._-][A-Za-z]{1,40}){0,8}")
_QUIET_NAME = re.compile(r"(?:jms|redelivery|failover)\.[A-Za-z.]{1,60}")
# Options whose errors explain the text itself.
_EXPLAINED = frozenset({
    "redelivery.discard", "redelivery.queuePrefix", "redelivery.queueSuffix", "redelivery.topicPrefix",
    "redelivery.topicSuffix",
})  # fmt: skip
_ARGUMENTS = re.compile(r"x-[a-z:,-][a-z0-9:,-]{0,200}")
_LETTERS = re.compile(r"[A-Za-z]{1,40}(?:\.[A-Za-z]{1,40}){0,4}")
_SECRET_NAME = re.compile(r"pass|user|secret|pwd|token|cred", re.IGNORECASE)
# Names that people write for the options of the credentials; a password is not cut into one of them.
_CREDENTIALS = ("userName", "username", "jms.user")
_TELLING_NAME = re.compile(rf"{_SECRET_NAME.pattern}|key|auth", re.IGNORECASE)
_PLACE = re.compile(r"(?:[a-z]{2,10}:|\.{0,2}/)[A-Za-z0-9._/-]{0,200}")


class Masked(str):
    """Value that errors must not repeat: it can be a secret, or a part of one."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show three stars, as errors do."""
        return "***"

    def __format__(self, spec: str) -> str:
        """Show three stars in a formatted text, too."""
        return "***"


def value_to_show(name: str, value: str, *, quiet: bool) -> str:
    """Return the value of an option, `Masked` where it could be a credential. `quiet`: the URI can hold one anywhere.

    Errors repeat numbers, and words near one that the option takes. They repeat another text where the option takes
    such texts.
    """
    for prefix, plain in ((MAP_PREFIX, POLICY), (OUR_MAP_PREFIX, OUR_POLICY)):
        if name.startswith(prefix):
            name = plain + name.rpartition(".")[2]
    if name.startswith(DEAD_LETTER_MAP_PREFIX):
        name = STRATEGY_NAMES.get(name.rpartition(".")[2], name)
    option = OPTIONS.get(name)
    if _NUMBER.fullmatch(value) or value.lower().lstrip("+-") in _NOT_A_NUMBER:
        return value
    if option is not None and option.kind == "list of milliseconds" and _LIST_OF_NUMBERS.fullmatch(value):
        return value
    taken = (*_WORDS, *option.choices) if option is not None else _WORDS
    if _WORD.fullmatch(value) and near_miss(value, taken):
        return value
    open_to_see = option is not None and (option.kind == "destination" or name in _EXPLAINED)
    open_to_see = open_to_see or (name == "redelivery.ledger" and _PLACE.fullmatch(value) is not None)
    open_to_see = open_to_see or (name.endswith("Arguments") and _ARGUMENTS.fullmatch(value) is not None)
    return value if open_to_see and not quiet else Masked(value)


def name_repeats(name: str, *, quiet: bool) -> bool:
    """True if an error may repeat a text in the place of an option's name."""
    return (_QUIET_NAME if quiet else _NAME).fullmatch(name) is not None


def java_name_repeats(name: str) -> bool:
    """True if an error may repeat the name of an option of the Java client: it is known, or begins like one."""
    if name.removeprefix("jms.") in JAVA_NAMES or name in _CREDENTIALS:
        return True
    if name in DESTINATION_OPTIONS or name in QPID_NAMES:
        return True
    # Behind `socket.` and the like any name is one.
    return (name.startswith(JAVA_PREFIXES) or is_qpid_only(name)) and _LETTERS.fullmatch(name) is not None


def may_stand_for(name: str, option: str) -> bool:
    """True if the value of an unknown option can be shown as that of a known one: no secret gets an open name."""
    words = {word.lower() for word in _TELLING_NAME.findall(name)}
    return OPTIONS[option].kind == "secret" or words <= {w.lower() for w in _TELLING_NAME.findall(option)}


def shown_value(name: str, value: str, *, quiet: bool) -> str:
    """Return the value of an option of the Java client, or `***` where it could be a secret."""
    masked = isinstance(value_to_show(name, value, quiet=quiet), Masked)
    return "***" if masked or _SECRET_NAME.search(name) else value


# ---- Syntax ----------------------------------------------------------------------------------------------

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20})://(.*)", re.DOTALL)
_HOST = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?))(?::([0-9]{1,5}))?"
)
_SECOND = re.compile(r",[A-Za-z][A-Za-z0-9+.-]{0,20}://")
_LIST = "several addresses are written failover:(uri1,uri2)?options"
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
PLAIN = re.compile(r"[A-Za-z0-9 ._+>*:/-]{0,200}")
_NUMBERS = re.compile(r"[0-9, ]{0,1000}")
"""Numbers, which cannot be the rest of a secret that a `&` or `=` has cut."""
_TELLING = re.compile(r"@|pass|user|secret|pwd|token|key|cred", re.IGNORECASE)


class Address(NamedTuple):
    """One `scheme://user:password@host:port`, with the options behind its own `?`."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None
    options: tuple[tuple[str, str], ...]


class UriParts(NamedTuple):
    """A connection URI taken apart and decoded."""

    failover: bool
    addresses: tuple[Address, ...]
    options: tuple[tuple[str, str], ...]
    quiet: bool
    """True if the URI can hold a secret: errors must not repeat parts of it."""
    artemis: bool = False
    """True if it is of Artemis' own client: a list of addresses without `failover:`, or an option of that client."""
    repeated: tuple[str, ...] = ()
    """Options given more than once, in a URI of the Java client: there the last value counts."""


def split_uri(text: str) -> UriParts:
    """Take a connection URI apart. Raises ConfigurationError, which shows no secret."""
    if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]  callers are users
        raise ConfigurationError("a connection URI must be text such as stomp://host:61613, and not empty")
    if any(c.isspace() for c in text) or _CONTROL.search(text):
        raise ConfigurationError(
            "a connection URI must have no blanks or control characters; write %20 for a blank"
        )
    quiet = _may_hold_secret(text)
    if "#" in text:
        raise ConfigurationError("a connection URI has no fragment; write %23 for a # in a value")
    # Artemis' own client takes a list without `failover:`.
    bare = text.startswith("(")
    failover = bare or text[: len("failover:")].lower() == "failover:"
    members, query = _members(text if bare else text[len("failover:") :]) if failover else _one(text)
    addresses = tuple(_address(member, quiet=quiet) for member in members)
    java = any(address.scheme in JAVA_PORTS for address in addresses)
    if bare and not java:
        raise ConfigurationError(_LIST)
    repeated: list[str] = []
    options = _options(query, quiet=quiet, repeated=repeated if java else None)
    artemis = bare or (java and any(is_artemis(name) for name, _ in options))
    return UriParts(failover, addresses, options, quiet, artemis, tuple(repeated))


def _may_hold_secret(text: str) -> bool:
    try:
        return bool(_TELLING.search(text) or _TELLING.search(decode(text, plus=False)))
    except ConfigurationError:
        return True


def _one(text: str) -> tuple[list[str], str]:
    head, _, query = text.partition("?")
    if head.lower().startswith("failover"):
        raise ConfigurationError("failover is written failover:(uri1,uri2)?options")
    if _SECOND.search(head):
        raise ConfigurationError(_LIST)
    return [head], query


def _members(rest: str) -> tuple[list[str], str]:
    form = "failover is written failover:(uri1,uri2)?options, with the options behind the closing parenthesis"
    rest = rest.removeprefix("//") if rest.startswith("//(") else rest
    if not rest.startswith("("):
        if "?" in rest or "(" in rest or "&" in rest:
            raise ConfigurationError(f"{form}: without parentheses it can have no options")
        return rest.split(","), ""
    inner, closed, tail = rest[1:].partition(")")
    if not closed or "(" in inner or not (tail == "" or tail.startswith("?")):
        raise ConfigurationError(form)
    return inner.split(","), tail[1:]


def _address(text: str, *, quiet: bool) -> Address:
    head, _, query = text.partition("?")
    found = _SCHEME.fullmatch(head)
    if found is None:
        raise ConfigurationError("each address of a connection URI is written scheme://host:port")
    # Schemes are case-insensitive (RFC 3986).
    scheme, rest = SPELLINGS.get(found[1].lower(), found[1].lower()), found[2]
    known = (*SCHEMES, *JAVA_PORTS)
    # An installed adapter of another project can serve it.
    if scheme not in known and scheme not in schemes():
        named = "the URI's scheme" if quiet else f"the URI's scheme {scheme!r}"
        raise ConfigurationError(
            f"{named} is unknown; those that can connect: {', '.join(schemes())}{near_scheme(scheme, known)}"
        )
    authority, slash, path = rest.partition("/")
    userinfo, at, place = authority.rpartition("@")
    if "@" in userinfo or "@" in path or "@" in query:
        raise ConfigurationError(
            "an @ inside a user name, a password or an option is written %40, a / is written %2F"
        )
    if slash and path and scheme not in ("http", "https"):
        raise ConfigurationError(
            f"{scheme}:// takes a name and no path: {scheme}://name"
            if scheme in ("memory", "vm")
            else f"{scheme}:// takes no path after the address; a virtual host is redelivery.virtualHost"
        )
    host, port = _place(scheme, place)
    user, password = _userinfo(scheme, userinfo) if at else (None, None)
    return Address(scheme, host, port, user, password, _options(query, quiet=quiet, repeated=[]))


def _place(scheme: str, place: str) -> tuple[str, int]:
    found = _HOST.fullmatch(place)
    if found is None:
        hint = _hint(place)
        raise ConfigurationError(
            f"{scheme}:// needs a host name or address, and a port in digits if any: {scheme}://host:port{hint}"
        )
    bracketed, plain, digits = found.groups()
    default = (SCHEMES | JAVA_PORTS).get(scheme, 0)
    if digits is None:
        return bracketed or plain, default
    if scheme in ("memory", "vm"):
        raise ConfigurationError(f"{scheme}:// takes a name and no port: {scheme}://name")
    port = int(digits)
    if not 1 <= port <= 65535:
        raise ConfigurationError(f"the port of a {scheme}:// address must be from 1 to 65535")
    return bracketed or plain, port


def _hint(place: str) -> str:
    """Return what to write instead of a host that cannot be read; nothing of it is repeated."""
    if "${" in place:
        return "; write the value of the placeholder ${...}"
    if place.startswith("[") and "%" in place:
        return "; an IPv6 address has no zone (%25eth0) here: write a host name, or an address without one"
    return "; an IPv6 address is written in brackets, as in [::1]:61613" if place.count(":") > 1 else ""


def _userinfo(scheme: str, userinfo: str) -> tuple[str, str | None]:
    if scheme in ("memory", "vm"):
        raise ConfigurationError(f"{scheme}:// takes no user name or password")
    user, colon, password = userinfo.partition(":")
    if not user or ":" in password:
        raise ConfigurationError(
            "credentials are written user:password@ before the host; a : inside them is written %3A"
        )
    return decode(user, plus=False), decode(password, plus=False) if colon else None


def _options(query: str, *, quiet: bool, repeated: list[str] | None) -> tuple[tuple[str, str], ...]:
    """Return the decoded options; of a name given twice the last one counts, as in the reference.

    `repeated`: each name given twice is added to it; None: such a name is refused, because only one of the values
    could be in force.
    """
    if not query.strip("&"):
        return ()
    if "?" in query:
        raise ConfigurationError(
            "a connection URI has one ? before its options; write %3F for one in a value"
        )
    found: dict[str, str] = {}
    # As the Java client: & behind the last option is ignored, an empty option between two is an error.
    for item in query.rstrip("&").split("&"):
        if item.startswith("amp;"):
            raise ConfigurationError("the & of a URI is written &amp; in XML only; write & between options")
        raw, equals, value = item.partition("=")
        if not raw or not equals:
            named = (
                f"; {raw} has no value" if raw in OPTIONS else "" if item else "; there is none between two &"
            )
            raise ConfigurationError(
                f"each option is written name=value, with one & between options (%26 in a value){named}",
                option=raw if raw in OPTIONS else None,
            )
        name = decode(raw)
        if name in found and repeated is None:
            known = name if name in OPTIONS else None
            said = known or _said(name, quiet=quiet)
            raise ConfigurationError(f"{said} is given twice in the URI", option=known)
        if name in found and repeated is not None:
            repeated.append(name)
        found[name] = decode(value)
    return tuple(found.items())


def _said(name: str, *, quiet: bool) -> str:
    """Return the name of an option of a pattern for an error; the pattern is shown if the URI can hold no secret."""
    prefix, option = map_prefix_of(name), name.rpartition(".")[2]
    known = option in STRATEGY_NAMES or POLICY + option in OPTIONS or OUR_POLICY + option in OPTIONS
    if prefix is None or not known:
        return "an option"
    return f"{prefix}<pattern>.{option}" if quiet else name


def decode(text: str, *, plus: bool = True) -> str:
    """Decode %XX escapes as UTF-8, and + as a blank in options. ConfigurationError if malformed."""
    if plus:
        text = text.replace("+", " ")
    if "%" not in text:
        return text
    try:
        plain = _ESCAPES.sub(lambda run: bytes.fromhex(run[0].replace("%", "")).decode(), text)
    except UnicodeDecodeError:
        raise ConfigurationError("a %XX escape in the connection URI is not UTF-8") from None
    if "%" in _ESCAPES.sub("", text):
        raise ConfigurationError(
            "a % in the connection URI is not followed by two hexadecimal digits; write %25 for a %"
        )
    if _CONTROL.search(plain):
        raise ConfigurationError(
            "an option or the credentials of the connection URI contain a control character"
        )
    return plain


def redact_uri(text: str) -> str:
    """Return a connection URI to show: without credentials, with values of known options that are no secrets.

    A text that cannot be read as a URI becomes `***`, because any part of it could be a secret.
    """
    try:
        parts = split_uri(text)
    except ConfigurationError:
        return "***"
    if "@" in (text.rpartition(")")[2] if parts.failover and ")" in text else text.partition("?")[2]):
        # The text before the ? can be the first half of a password.
        return "***"
    places = ",".join(shown_address(address) for address in parts.addresses)
    options = "&".join(
        _shown_option(name, value, failover=parts.failover, quiet=parts.quiet)
        for name, value in parts.options
    )
    return (f"failover:({places})" if parts.failover else places) + (f"?{options}" if options else "")


def shown_address(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{address.scheme}://{host}" + (f":{address.port}" if address.port else "")


def _shown_option(name: str, value: str, *, failover: bool, quiet: bool) -> str:
    option = OPTIONS.get(name)
    mapped = map_prefix_of(name) is not None and PLAIN.fullmatch(name) is not None
    if option is None and not mapped:
        java = is_java_only(name, failover=failover) or is_qpid_only(name)
        if not java or not java_name_repeats(name):
            return "***"
        return f"{name}={shown_value(name, value, quiet=quiet)}"
    open_to_see = mapped or (option is not None and option.kind != "secret")
    plain = PLAIN.fullmatch(value) or _NUMBERS.fullmatch(value)
    return f"{name}={value}" if open_to_see and plain else f"{name}=***"


# ---- Joining ---------------------------------------------------------------------------------------------
# Writer of a connection URI's options, with `?`, `&` and escapes.

# These need no escape in our URIs.
_PLAIN = "/:*>,-_.~"


def option_text(options: Mapping[str, str]) -> str:
    """Return options as text for behind the `?` of a connection URI."""
    return "&".join(
        f"{quote(name, safe=_PLAIN)}={quote(value, safe=_PLAIN)}" for name, value in options.items()
    )


def shortest(pattern: str) -> str:
    """Return a qualified pattern as briefly as `Destination.parse` reads it: a queue needs no `queue://`."""
    parsed = Destination.parse(pattern)
    return parsed.name if Destination.parse(parsed.name) == parsed else pattern


def with_options(uri: str, options: Mapping[str, str]) -> str:
    """Return a connection URI with more options."""
    if not options:
        return uri
    # The ? behind a failover list: its members can have options of their own.
    head, question, query = uri.rpartition("?")
    if not question or ")" in query:
        return f"{uri}?{option_text(options)}"
    query = query.rstrip("&")
    return f"{head}?{query}{'&' if query else ''}{option_text(options)}"
