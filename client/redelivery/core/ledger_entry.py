"""Ledger entries: their content, their keys, and what the death of a process means for the messages it was handling.

Values and decisions only; `redelivery.ledger` has the files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redelivery.core.delivery import Delivery

__all__ = [
    "CRASH",
    "KEY",
    "AttemptMark",
    "AttemptState",
    "Buried",
    "Entry",
    "after_death",
    "counted",
    "fingerprint",
]

KEY = 16  # bytes of a key
CRASH = "crash"
"""Cause of a failure that crashed its process."""
HUNG = "timeout: the handler did not end"
UNSAID = "failed; its process ended before the cause was written down"

AttemptState = Literal["running", "failed", "hung"]
"""`failed`: the handler has ended, and its failure is being written. `hung`: the handler exceeded every time limit."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of one message. `count`: failures charged so far. Times are seconds since the Unix epoch.

    `poisoned`: the message is poison, and only the confirmation of its dead letter is outstanding. `suspect`: the
    message was open when a process died (crash suspect). It runs exclusively until it has ended otherwise.
    `elsewhere`: another process has it open, and has not been seen dead. Never written.
    """

    count: int = 0
    cause: str | None = None
    first: float | None = None
    last: float | None = None
    poisoned: bool = False
    suspect: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class AttemptMark:
    """Mark of an attempt. `count`: failures charged when it began; it prevents charging one twice."""

    key: bytes
    count: int
    state: AttemptState


@dataclass(frozen=True, slots=True)
class Buried:
    """Cause of a dead letter made by the broker's own poison acknowledgement, which carries no cause."""

    destination: str
    message_id: str | None
    cause: str
    count: int
    at: float
    """When it was dead-lettered: seconds since the Unix epoch. 0: not known."""
    first: float | None = None
    """When it failed first; None: not known."""
    last: float | None = None
    """When it failed last; None: not known."""


def fingerprint(delivery: Delivery) -> bytes:
    """Return the ledger key of a message: an id that no other message has, or a digest of its whole content.

    Counts, verdicts and suspicions never pass from one message to another with the same id.
    """
    key: object = delivery.proof
    if key is None:
        sent = delivery.headers.get("redeliveryId")
        key = (delivery.destination, "redeliveryId", sent, delivery.digest()) if sent is not None else None
    if key is None:
        headers = sorted((str(name), repr(value)) for name, value in delivery.headers.items())
        whole = f"{delivery.destination}\0{headers!r}\0".encode("utf-8", "surrogatepass") + delivery.body
        return blake2b(whole, digest_size=KEY).digest()
    return blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=KEY).digest()


def after_death(
    attempts: Sequence[AttemptMark], known: Mapping[bytes, Entry], now: float
) -> dict[bytes, Entry]:
    """Return the entries to write after a process has died during these attempts.

    An attempt that ran alone is charged. Of several none is charged, because the one that crashed the process is not
    known: all are crash suspects. Repeating it, or doing it after the failure was written, changes nothing.
    """
    written: dict[bytes, Entry] = {}
    running = [attempt for attempt in attempts if attempt.state == "running"]
    for attempt in attempts:
        before = written.get(attempt.key) or known.get(attempt.key) or Entry()
        if attempt.state != "running":
            cause = HUNG if attempt.state == "hung" else UNSAID
            written[attempt.key] = _charged(before, attempt.count, cause, now, suspect=before.suspect)
        elif len(running) == 1:
            # It stays a suspect: run beside others, it would make suspects of them.
            written[attempt.key] = _charged(before, attempt.count, CRASH, now, suspect=True)
        else:
            written[attempt.key] = replace(before, suspect=True)
    return {key: entry for key, entry in written.items() if entry != known.get(key)}


def _charged(before: Entry, count: int, cause: str, now: float, *, suspect: bool) -> Entry:
    if before.count > count:
        # This attempt has been charged already.
        return replace(before, suspect=suspect)
    first = now if before.first is None else before.first
    return replace(before, count=count + 1, cause=cause, first=first, last=now, suspect=suspect)


def counted(entry: Entry | None, elsewhere: Iterable[AttemptMark]) -> Entry | None:
    """Return an entry with the failures that another, living process has still to write, and with what it has open."""
    for attempt in elsewhere:
        before = entry or Entry()
        if attempt.state != "failed":
            entry = replace(before, elsewhere=True)
        elif attempt.count >= before.count:
            entry = replace(before, count=attempt.count + 1, cause=before.cause or UNSAID)
    return entry
