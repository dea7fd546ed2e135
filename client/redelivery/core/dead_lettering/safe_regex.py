"""Regular expressions on destination names with bounded matching time: the names come from outside.

Python's matcher tries one way after the other. Their number is bounded here when a pattern is read: a repeated group
that itself repeats or chooses (`(a+)+`) is refused, and so is a product of too many repetitions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from redelivery.errors import ConfigurationError

__all__ = ["LONGEST_NAME", "SafeRegex"]

# Characters. No pattern matches a longer name.
LONGEST_NAME = 256
# Ways to match one name with one pattern, at most; about a sixth of them occur.
MOST_WAYS = LONGEST_NAME**3
MOST_PATTERNS = 100
DEEPEST = 20  # groups within groups
_COUNTED = re.compile(r"\{(\d{0,5})(,?)(\d{0,5})\}")
_CACHED = 4096


@dataclass(frozen=True, slots=True)
class SafeRegex:
    """Regular expressions, as written; a name matches if one of them matches all of it."""

    texts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> SafeRegex:
        """Read patterns that are separated by blanks. Raises ConfigurationError; its text contains the pattern."""
        texts = tuple(text.split())
        if not texts:
            raise ConfigurationError("there is no pattern")
        if len(texts) > MOST_PATTERNS:
            raise ConfigurationError(f"there are {len(texts)} patterns; at most {MOST_PATTERNS} are allowed")
        for one in texts:
            _check(one)
        return cls(texts)

    def match(self, name: str) -> bool:
        """Return True if one of the patterns matches all of the name."""
        return len(name) <= LONGEST_NAME and _matches(self.texts, name)


@lru_cache(maxsize=_CACHED)
def _matches(texts: tuple[str, ...], name: str) -> bool:
    return any(re.fullmatch(text, name) for text in texts)


def _check(text: str) -> None:
    if "://" in text:
        raise ConfigurationError(
            f"{text!r}: a pattern is matched with the name alone; remove queue:// or topic://"
        )
    if ">" in text:
        raise ConfigurationError(
            f"{text!r}: patterns are regular expressions here, as in Classic's plugin; for FRED.> write FRED\\..*"
        )
    try:
        ways = _PatternReader(
            text
            # First: Python only warns of sets that other languages read differently.
        ).ways()
        re.compile(text)
    except (re.error, OverflowError) as error:
        raise ConfigurationError(f"{text!r}: Python cannot read this regular expression: {error}") from None
    except ValueError as error:
        raise ConfigurationError(f"{text!r}: {error}") from None
    if ways > MOST_WAYS:
        raise ConfigurationError(
            f"{text!r} repeats too much, and matching could take for ever; use * and + three times at most"
        )


class _PatternReader:
    """Reads a pattern, and counts the ways in which it could be tried."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at: int = 0

    def ways(self) -> int:
        """Return the count. Raises ValueError for a pattern without a bound."""
        ways, _ = self._alternatives(0)
        return ways

    def _alternatives(self, depth: int) -> tuple[int, bool]:
        """Read up to the end of the group; return its ways, and True if it neither repeats nor chooses."""
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} groups within each other")
        total, ways, plain = 0, 1, True
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                total, ways, plain = total + ways, 1, False
                continue
            inner, inner_plain = self._atom(depth)
            times = self._repeated()
            if times is None:
                ways *= inner
            elif times == 1:  # optional
                ways, plain = ways * (inner + 1), False
            elif not inner_plain:
                raise ValueError("a repeated group that itself repeats or chooses could take for ever")
            else:
                ways, plain = ways * times, False
        return total + ways, plain

    def _atom(self, depth: int) -> tuple[int, bool]:
        text, char = self._text, self._text[self._at]
        self._at += 1
        if char == "\\":
            if text[self._at : self._at + 1] in tuple("123456789"):
                raise ValueError("a back-reference is not supported")
            self._at += 1
        elif char == "[":
            if text.startswith("^", self._at):
                self._at += 1
            if text.startswith("]", self._at):
                self._at += 1
            while self._at < len(text) and text[self._at] != "]":
                if text[self._at] == "[" or text[self._at : self._at + 2] in ("--", "&&", "||", "~~"):
                    raise ValueError("a set within a set is not supported")
                self._at += 2 if text[self._at] == "\\" else 1
            self._at += 1
        elif char == "(":
            if text.startswith("?", self._at):
                if not text.startswith("?:", self._at):
                    raise ValueError("of the groups that begin with (? only (?: is supported")
                self._at += 2
            found = self._alternatives(depth + 1)
            self._at += 1
            return found
        return 1, True

    def _repeated(self) -> int | None:
        """Read a quantifier; return its ways (1: it is `?`), or None if there is none, or a fixed number."""
        text, at = self._text, self._at
        counted = _COUNTED.match(text, at)
        if text.startswith("?", at):
            times, self._at = 1, at + 1
        elif text.startswith(("*", "+"), at):
            times, self._at = LONGEST_NAME, at + 1
        elif counted is not None and counted[0] not in ("{}", "{,}"):
            self._at = int(counted.end())
            times = _ways_of(counted)
        else:
            return None
        # A lazy or possessive quantifier has no more ways than a greedy one.
        if text.startswith(("?", "+"), self._at):
            self._at += 1
        return times


def _ways_of(counted: re.Match[str]) -> int:
    low, comma, high = counted.groups()
    if int(low or 0) > LONGEST_NAME or int(high or 0) > LONGEST_NAME:
        raise ValueError(f"a count above {LONGEST_NAME}, the longest name")
    most = int(high) if high else LONGEST_NAME if comma else int(low)
    return max(2, most - int(low or 0) + 1)
