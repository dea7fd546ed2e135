"""Finding of a check: level, subject, one sentence; and the exit code of several findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redelivery.cli.exit_codes import FAILED, OK, PARTLY

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Finding", "Level", "exit_code", "fail", "note", "ok", "summary", "warn"]

Level = Literal["ok", "note", "warn", "FAIL"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    level: Level
    subject: str
    """Subject of the check: `uri`, `tcp`, `log-in`, a destination."""
    text: str
    """One sentence. Of a `warn` or a `FAIL` it says what to do."""
    code: int = OK
    """The exit code that a `FAIL` asks for."""

    @property
    def line(self) -> str:
        """The finding as a line of the table."""
        return f"{self.level:<5} {self.subject:<14} {self.text}"

    def fields(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {"level": self.level, "subject": self.subject, "text": self.text}


def ok(subject: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding("ok", subject, text)


def note(subject: str, text: str) -> Finding:
    """Return a finding that is good to know, and needs no change."""
    return Finding("note", subject, text)


def warn(subject: str, text: str) -> Finding:
    """Return a finding that works, and can do harm later."""
    return Finding("warn", subject, text)


def fail(subject: str, text: str, code: int = FAILED) -> Finding:
    """Return a finding that keeps a consumer from its work. `code`: the exit code."""
    return Finding("FAIL", subject, text, code)


def exit_code(findings: Sequence[Finding], *, strict: bool = False) -> int:
    """Return the code of the first `FAIL`; 0 without one, or, if `strict`, 3 for a warning."""
    for finding in findings:
        if finding.level == "FAIL":
            return finding.code
    return PARTLY if strict and any(finding.level == "warn" for finding in findings) else OK


def summary(findings: Sequence[Finding]) -> str:
    """Return how many checks failed, and how many warn."""
    failed = len([finding for finding in findings if finding.level == "FAIL"])
    warnings = len([finding for finding in findings if finding.level == "warn"])
    return f"{failed or 'none'} failed, {warnings or 'no'} warning{'' if warnings == 1 else 's'}"
