"""Tries many inputs of one target, one after the other, and collects one finding of each fault."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fuzz.inputs import Inputs
from tests.fuzz.trial import Finding, forget_peak, held_mb, try_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.target import Target

__all__ = ["Campaign", "Outcome"]

# Caches and pools fill first.
_WARM = 2000
_LOOK = 1000
# Different faults after which a target ends: more of them would show nothing new.
MOST = 20


@dataclass
class Outcome:
    """Result of a target."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_input: bytes = b""
    peak_mb: float = 0.0
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    """The shortest finding of each fault."""
    repeated: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Keep a finding if it is the first or the shortest of its fault."""
        fault = finding.fault
        self.repeated[fault] = self.repeated.get(fault, 0) + 1
        known = self.findings.get(fault)
        if known is None or len(finding.data) < len(known.data):
            self.findings[fault] = finding

    @property
    def enough(self) -> bool:
        """True if there are `MOST` faults."""
        return len(self.findings) >= MOST


class Campaign:
    """The inputs `first` to `last` of a target, with a limit of time."""

    def __init__(self, target: Target, seed: int, last: int, seconds: float = float("inf")) -> None:
        """Read the corpus. `last`: number of the first input that is not tried."""
        self.target = target
        self.inputs = Inputs(target, seed)
        self.first = 0
        self.last = last
        self.seconds = seconds

    def run(
        self, begin: Callable[[int], None] | None = None, found: Callable[[Finding], None] | None = None
    ) -> Outcome:
        """Try the inputs, in this process. `begin` is called with the number of each, `found` with each finding."""
        outcome, target = Outcome(), self.target
        forget_peak()
        start = time.monotonic()
        warm = 0.0
        for number in range(self.first, self.last):
            if begin is not None:
                begin(number)
            data = self.inputs.number(number)
            trial = try_input(target, data)
            outcome.inputs += 1
            outcome.peak_mb = max(outcome.peak_mb, trial.peak_mb)
            if trial.seconds > outcome.slowest:
                outcome.slowest, outcome.slowest_input = trial.seconds, data
            finding = trial.finding
            if outcome.inputs % _LOOK == 0:
                held = held_mb()
                if held - warm > target.memory_mb:
                    # The allocator keeps freed memory, which is not a leak.
                    forget_peak()
                    held = held_mb()
                warm = held if outcome.inputs <= _WARM else warm
                if finding is None and held - warm > target.memory_mb:
                    what = f"{held - warm:.0f} MiB are held after {outcome.inputs} inputs"
                    finding, warm = Finding("memory", what, "held", data), held
            if finding is not None:
                outcome.add(finding)
                if found is not None:
                    found(finding)
            if outcome.enough or time.monotonic() - start > self.seconds:
                break
        outcome.seconds = time.monotonic() - start
        return outcome
