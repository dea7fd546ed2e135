"""What is fuzzed: a function that reads bytes, the tokens its input is made of, and the bounds it must keep."""

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
    """One thing to fuzz. A module in `tests/fuzz/targets/` names those that it has in `TARGETS`."""

    name: str
    """In lower case, with dashes; its corpus is the files of `tests/fuzz/corpus/<name>/`."""
    check: Callable[[bytes], None]
    """Reads one input. Swallows the documented errors itself; whatever it raises is a fault, failed asserts too."""
    seeds: Callable[[], Sequence[bytes]] = _none
    """Returns inputs made in code, which come before the files of the corpus."""
    dictionary: Sequence[bytes] = ()
    """Tokens that the mutator inserts."""
    isolated: bool = False
    """C code reads the input and may crash: run in child processes. A child that dies is a fault."""
    seconds: float = 1.0
    """Processor time that one input may take."""
    patience: float = 20.0
    """Seconds of real time after which an input is ended: others may have the processor meanwhile."""
    memory_mb: int = 64
    """MiB by which one input may raise the process's peak, and all inputs together what it holds."""
    longest: int = 65536
    """Bytes of a mutated input, at most."""
    quick: int = 200
    """Mutations that are tried in each run of the unit tests."""
