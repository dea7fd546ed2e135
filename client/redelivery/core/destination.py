"""Destinations: which kind, and which name."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from redelivery.core.option_values import shown
from redelivery.errors import ConfigurationError, near_miss

__all__ = ["KINDS", "Destination", "no_such_kind"]

KINDS: Final = ("queue", "topic", "temp-queue", "temp-topic", "native")
"""What stands before `://` in a qualified destination."""
_CACHED = 4096
# Characters: of longer names, which producers may make up, thousands would be kept.
LONGEST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue, a topic, a temporary one of either, or a broker's own address (`native`).

    `name` is without prefix and, but for `native`, without `?options`, which `options` keeps as written.
    Raises ConfigurationError for an unknown kind, an empty name, or a control character, so that no name can
    end a header line on the wire.
    """

    kind: str
    name: str
    options: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Check the parts."""
        if self.kind not in KINDS:
            hint = near_miss(str(self.kind), KINDS)
            raise ConfigurationError(f"a destination's kind must be one of {', '.join(KINDS)}{hint}")
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
        """Read `queue://`, `topic://`, `temp-queue://`, `temp-topic://` or `native://` and a name.

        A bare name is a queue; a `Destination` is returned as it is. Raises ConfigurationError, naming the
        destination.
        """
        if isinstance(text, Destination):
            return text
        given = _text(text)
        return _parse(given) if len(given) <= LONGEST_KEPT else _parse.__wrapped__(given)

    @property
    def members(self) -> tuple[Destination, ...]:
        """The destinations of a composite one (`A,B` or `A,topic://B`); for any other one, itself.

        A member without prefix is of the composite's kind. Raises ConfigurationError for an empty member.
        """
        if self.kind == "native" or "," not in self.name:
            return (self,)
        return tuple(_parse_member(text, self) for text in self.name.split(","))

    @property
    def is_topic(self) -> bool:
        """Whether this is a topic, temporary or not."""
        return self.kind in ("topic", "temp-topic")

    @property
    def is_temporary(self) -> bool:
        """Whether this is a temporary queue or topic."""
        return self.kind.startswith("temp-")

    def __str__(self) -> str:
        """Return the qualified form, which `parse` reads back."""
        return f"{self.kind}://{self.name}?{self.options}" if self.options else f"{self.kind}://{self.name}"


def no_such_kind(destination: str) -> ConfigurationError:
    """Return (not raise) the error that nothing can be addressed by a destination of this kind."""
    allowed = ", ".join(f"{kind}://" for kind in KINDS)
    return ConfigurationError(f"the destination {shown(destination)} must start with one of {allowed}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"a destination must be text or a Destination, not {shown(value)}")
    return value


def _check(part: object, name: object) -> None:
    part = _text(part)
    if not part.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in part):
        # A line break here would let a name write headers of its own into a STOMP frame.
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
        # Refuse a member that makes no sense now, not at its first use.
        _ = destination.members
    return destination


def _parse_member(text: str, whole: Destination) -> Destination:
    kind, rest = _split(text.strip())
    if not rest.strip() or kind == "native":
        raise ConfigurationError(
            f"the destination {shown(str(whole))} has a member that is empty or native://"
        )
    return _build(kind or whole.kind, rest)
