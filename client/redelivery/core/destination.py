"""Destinations: their kinds and names."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from redelivery.core.option_values import shown
from redelivery.errors import ConfigurationError, near_miss

__all__ = ["KINDS", "Destination", "no_such_kind"]

KINDS: Final = ("queue", "topic", "temp-queue", "temp-topic", "native")
"""Kinds: the word before `://` in a qualified destination."""
_CACHED = 4096
# Characters. Longer names are not cached: producers can invent them, and thousands would be kept.
LONGEST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue, a topic, a temporary one of either, or a broker's own address (`native`).

    Args:
        kind: One of `KINDS`: `queue`, `topic`, `temp-queue`, `temp-topic`, `native`.
        name: Name without the prefix. `?options` are split off, except of a `native` name.
        options: Text after the `?`, as written; "" without options.

    Raises:
        ConfigurationError: The kind is unknown, the name is empty, or a part contains a control character: no name
            may end a header line on the wire.
    """

    kind: str
    name: str
    options: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Check the parts."""
        if self.kind not in KINDS:
            hint = near_miss(str(self.kind), KINDS)
            raise ConfigurationError(
                f"a destination's kind must be one of {', '.join(KINDS)}, not {shown(self.kind)}{hint}"
            )
        _check(self.name, self.name)
        _check(self.options, self.name)
        if not self.name.strip():
            raise ConfigurationError(f"the destination {shown(self.kind + '://' + self.name)} has no name")
        if self.kind != "native" and ("?" in self.name or self.name != self.name.strip()):
            raise ConfigurationError(
                f"the destination name {shown(self.name)} must have no '?' and no outer blanks"
            )

    @staticmethod
    def parse(text: str | Destination) -> Destination:
        """Return the destination that a text names: `queue://orders`, `topic://news`, or a bare queue name.

        Args:
            text: `queue://`, `topic://`, `temp-queue://`, `temp-topic://` or `native://` and a name. A bare name is a
                queue. A `Destination` is returned unchanged.

        Raises:
            ConfigurationError: The text names no destination; the error contains it.
        """
        if isinstance(text, Destination):
            return text
        given = _text(text)
        return _parse(given) if len(given) <= LONGEST_KEPT else _parse.__wrapped__(given)

    @property
    def members(self) -> tuple[Destination, ...]:
        """Destinations of a composite one (`A,B` or `A,topic://B`); otherwise the destination itself.

        A member without prefix has the composite's kind. Raises ConfigurationError for an empty member.
        """
        if self.kind == "native" or "," not in self.name:
            return (self,)
        return tuple(_parse_member(text, self) for text in self.name.split(","))

    @property
    def is_topic(self) -> bool:
        """True if this is a topic, temporary or not."""
        return self.kind in ("topic", "temp-topic")

    @property
    def is_temporary(self) -> bool:
        """True if this is a temporary queue or topic."""
        return self.kind.startswith("temp-")

    def __str__(self) -> str:
        """Return the qualified form, which `parse` reads back."""
        return f"{self.kind}://{self.name}?{self.options}" if self.options else f"{self.kind}://{self.name}"


def no_such_kind(destination: str) -> ConfigurationError:
    """Return (not raise) the error that destinations of this kind cannot be addressed."""
    allowed = ", ".join(f"{kind}://" for kind in KINDS)
    return ConfigurationError(f"the destination {shown(destination)} must start with one of {allowed}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"a destination must be text or a Destination, not {shown(value)}")
    return value


def _check(part: object, name: object) -> None:
    part = _text(part)
    if not part.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in part):
        # A line break here would let a name add headers to a STOMP frame.
        raise ConfigurationError(f"the destination {shown(name)} contains a control character")


def _split(text: str) -> tuple[str | None, str]:
    for kind in KINDS:
        if text.startswith(kind + "://"):
            return kind, text[len(kind) + 3 :]
    head, mark, _ = text.partition("://")
    if mark and head.replace("-", "").isalnum():
        hint = near_miss(head, KINDS)
        allowed = ", ".join(f"{kind}://" for kind in KINDS)
        raise ConfigurationError(
            f"the destination {shown(text)} must start with one of {allowed}, or be a name{hint}"
        )
    head, mark, rest = text.partition(":")
    if mark and rest and head in KINDS:
        # Camel's way to write a destination: here it would be a queue of that name.
        raise ConfigurationError(
            f"the destination {shown(text)}: write {shown(f'{head}://{rest}')}, "
            f"or {shown(f'queue://{text}')} for a queue of that name"
        )
    return None, text


def _build(kind: str, rest: str) -> Destination:
    if kind == "native":
        return Destination(kind, rest)
    name, mark, options = rest.partition("?")
    return Destination(kind, name.strip(), options if mark else "")


@lru_cache(maxsize=_CACHED)
def _parse(text: str) -> Destination:
    _check(text, text)
    kind, rest = _split(text.strip())
    destination = _build(kind or "queue", rest)
    if destination.kind != "native" and "," in destination.name:
        # Refuse an unusable member now, not at its first use.
        _ = destination.members
    return destination


def _parse_member(text: str, whole: Destination) -> Destination:
    kind, rest = _split(text.strip())
    if not rest.strip() or kind == "native":
        raise ConfigurationError(
            f"the destination {shown(str(whole))} has a member that is empty or native://"
        )
    return _build(kind or whole.kind, rest)
