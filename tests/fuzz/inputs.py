"""Numbered inputs of a target: its corpus, then endless mutations. A seed and a number determine an input."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.target import Target

__all__ = ["CORPUS", "Inputs", "corpus_of"]

CORPUS = Path(__file__).parent / "corpus"
_NUMBER = re.compile(rb"-?[0-9]+")
# Numbers at the limits of 8, 16, 32 and 64 bits, and of Python's 4,300 digits, and texts that are not numbers.
_WRITTEN = (
    b"0", b"1", b"-1", b"127", b"128", b"255", b"256", b"32767", b"32768", b"65535", b"65536",
    b"2147483647", b"2147483648", b"-2147483649", b"4294967295", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"9" * 400, b"9" * 5000,
    b"0.5", b"1e400", b"-1e400", b"1e-400", b"NaN", b"Infinity", b"-0", b"00", b"0x7f", b"1_000", b"+1", b"",
)  # fmt: skip
_BINARY = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_ROUNDS = (1, 1, 1, 2, 2, 3, 4, 8)


def corpus_of(target: Target) -> list[bytes]:
    """Return the seeds and the files of a target; one empty input if there is none."""
    folder = CORPUS / target.name
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    return [*target.seeds(), *(path.read_bytes() for path in files)] or [b""]


class Inputs:
    """All inputs of a target for one seed."""

    def __init__(self, target: Target, seed: int) -> None:
        """Read the corpus."""
        self.corpus = corpus_of(target)
        self._tokens = target.dictionary
        self._longest = target.longest
        self._seed = seed

    def number(self, number: int) -> bytes:
        """Return the input with this number, which does not depend on those before it."""
        if number < len(self.corpus):
            return self.corpus[number]
        random = Random(self._seed << 64 | number)
        data = random.choice(self.corpus)
        for _ in range(random.choice(_ROUNDS)):
            data = random.choice(_MUTATIONS)(random, data, self._tokens, self.corpus)[: self._longest]
        return data


def _block(random: Random, data: bytes) -> tuple[int, int]:
    """Return begin and end of a random block. Most are short."""
    start = random.randrange(len(data) + 1)
    length = random.randrange(1, random.choice((2, 4, 16, 64, 256, 4096)))
    return start, min(start + length, len(data))


def _flip(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _time in range(random.choice((1, 1, 1, 2, 8))):
        place = random.randrange(len(changed))
        changed[place] ^= random.choice((1 << random.randrange(8), random.randrange(1, 256)))
    return bytes(changed)


def _overwrite(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    value, order = random.choice(_BINARY), random.choice(("big", "little"))
    size = max(random.choice((1, 2, 4, 8)), (value.bit_length() + 7) // 8)
    start = random.randrange(len(data) + 1)
    number = value.to_bytes(size, "big" if order == "big" else "little")
    return data[:start] + number + data[start + size :]


def _delete(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    start, end = _block(random, data)
    return data[:start] + data[end:]


def _duplicate(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    start, end = _block(random, data)
    place = random.randrange(len(data) + 1)
    return data[:place] + data[start:end] + data[place:]


def _insert(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(random.randrange(1, 9)) + data[place:]


def _token(random: Random, data: bytes, tokens: Sequence[bytes], _: Sequence[bytes]) -> bytes:
    if not tokens:
        return _insert(random, data)
    start, end = _block(random, data)
    return data[:start] + random.choice(tokens) + data[random.choice((start, end)) :]


def _splice(random: Random, data: bytes, _: Sequence[bytes], corpus: Sequence[bytes]) -> bytes:
    other = random.choice(corpus)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _number(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    at = random.choice(found)
    near = b"%d" % (int(at[0][:20]) + random.choice((-1, 1)))
    return data[: at.start()] + random.choice((near, *_WRITTEN)) + data[at.end() :]


def _truncate(random: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _repeat(random: Random, data: bytes, tokens: Sequence[bytes], *_: Sequence[bytes]) -> bytes:
    start, end = _block(random, data)
    block = random.choice(tokens) if tokens and random.randrange(2) else data[start:end][:64]
    times = min(random.choice((2, 3, 16, 100, 1000, 5000)), 100_000 // max(len(block), 1) + 2)
    return data[:start] + block * times + data[start:]


_MUTATIONS: tuple[Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes], ...] = (
    _flip, _flip, _overwrite, _delete, _delete, _duplicate, _insert, _token, _token, _token, _splice, _number,
    _number, _truncate, _repeat,
)  # fmt: skip
