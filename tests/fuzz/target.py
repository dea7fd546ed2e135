"""Target of fuzzing: a function that reads bytes, the tokens of its input, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Target"]


def _none() -> Sequence[bytes]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """One target of fuzzing. A module in `tests/fuzz/targets/` lists its targets in `TARGETS`."""

    name: str
    """Name in lower case, with dashes; its corpus is the files of `tests/fuzz/corpus/<name>/`."""
    check: Callable[[bytes], None]
    """Reads one input. It swallows the documented errors; each exception that it raises, also an assert, is a fault."""
    seeds: Callable[[], Sequence[bytes]] = _none
    """Returns inputs made in code, which are tried before the files of the corpus."""
    dictionary: Sequence[bytes] = ()
    """Tokens that the mutator inserts."""
    isolated: bool = False
    """True if C code reads the input and may crash: it runs in child processes, and a child that crashes is a fault."""
    seconds: float = 1.0
    """Seconds of processor time that one input may take."""
    patience: float = 20.0
    """Seconds of processor time after which an input is interrupted. A child process is ended after three times as many
    of real time: nothing interrupts C code."""
    memory_mb: int = 64
    """MiB by which one input may exceed the memory before it, and all inputs together the memory at the beginning."""
    longest: int = 65536
    """Most bytes of a mutated input."""
    quick: int = 200
    """Number of mutations in each run of the unit tests."""
