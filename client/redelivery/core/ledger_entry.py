"""What a ledger knows of a message, by which name, and what the death of a process means for what it was handling.

Values and decisions only; the files are in `redelivery.ledger`.
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
"""The cause of a failure that took its process with it."""
HUNG = "timeout: the handler did not end"
UNSAID = "failed; its process ended before the cause was written down"

AttemptState = Literal["running", "failed", "hung"]
"""`failed`: the handler has ended, and the failure is on its way into the ledger. `hung`: it is past all patience."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one message. `count`: failures charged so far. Times are seconds since the Unix epoch.

    `poisoned`: the verdict has been given, and only its confirmation is outstanding. `suspect`: it was open when a
    process died, so it runs alone until it has ended otherwise.
    """

    count: int = 0
    cause: str | None = None
    first: float | None = None
    last: float | None = None
    poisoned: bool = False
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class AttemptMark:
    """An attempt that is marked. `count`: what was charged when it began, so that none is charged twice."""

    key: bytes
    count: int
    state: AttemptState


@dataclass(frozen=True, slots=True)
class Buried:
    """Why a message became a dead letter by the broker's own poison acknowledgement, which carries no cause."""

    destination: str
    message_id: str | None
    cause: str
    count: int
    at: float
    """When it became one: seconds since the Unix epoch."""
    first: float | None = None
    """When it failed first."""
    last: float | None = None
    """When it failed last."""


def fingerprint(delivery: Delivery) -> bytes:
    """Return the name of a message in a ledger: what no other message has, be it only a digest of all that it says.

    Counts, verdicts and suspects never pass from one message to another one that has the same id.
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
    """Return what is to be written after a process has died over these attempts.

    One that ran alone is charged; of several none is, for nobody knows which of them it was: they are suspects.
    Doing it twice, or after the failure has been written, changes nothing more.
    """
    written: dict[bytes, Entry] = {}
    running = [attempt for attempt in attempts if attempt.state == "running"]
    for attempt in attempts:
        before = written.get(attempt.key) or known.get(attempt.key) or Entry()
        if attempt.state != "running":
            cause = HUNG if attempt.state == "hung" else UNSAID
            written[attempt.key] = _charged(before, attempt.count, cause, now, suspect=before.suspect)
        elif len(running) == 1:
            # It goes on alone: beside others it would make suspects of them.
            written[attempt.key] = _charged(before, attempt.count, CRASH, now, suspect=True)
        else:
            written[attempt.key] = replace(before, suspect=True)
    return {key: entry for key, entry in written.items() if entry != known.get(key)}


def _charged(before: Entry, count: int, cause: str, now: float, *, suspect: bool) -> Entry:
    if before.count > count:
        # This very attempt has been charged already.
        return replace(before, suspect=suspect)
    first = now if before.first is None else before.first
    return replace(before, count=count + 1, cause=cause, first=first, last=now, suspect=suspect)


def counted(entry: Entry | None, elsewhere: Iterable[AttemptMark]) -> Entry | None:
    """Return an entry with the failures that another process, which lives, has yet to write down."""
    for attempt in elsewhere:
        before = entry or Entry()
        if attempt.state == "failed" and attempt.count >= before.count:
            entry = replace(before, count=attempt.count + 1, cause=before.cause or UNSAID)
    return entry
