"""One dead letter: its cause, origin and times, as the tools show it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from redelivery.core.dead_lettering.dead_letter_headers import (
    count_in,
    moment,
    origin_of,
    readable_origin,
    recorded_origin,
    text_in,
    time_in,
)
from redelivery.core.dead_lettering.redrive import first_id, redrives_of
from redelivery.core.dead_lettering.routing import WHOLE, arrived_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from redelivery.core.delivery import BodyKind, Delivery
    from redelivery.core.ledger_entry import Buried
    from redelivery.ledger import Ledger

__all__ = [
    "UNKNOWN",
    "CauseGroup",
    "CauseOf",
    "CountedLetters",
    "DeadLetter",
    "LedgerCauses",
    "LineProblem",
    "Purged",
    "Redriven",
    "Resent",
    "contents_of",
    "read_letter",
    "summarise",
    "together",
]


# ---- Ledger causes ---------------------------------------------------------------------------------------
# Causes of messages that the broker dead-lettered itself, out of a ledger: the messages carry none.

# Ids that no two messages have: a JMS provider's (as AMQP libraries write it, too), or a UUID, with or without hyphens.
_UNIQUE = re.compile(r"^(?i:ID:)|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


class CauseOf(Protocol):
    """Callable that returns the cause of a message that carries none."""

    def __call__(self, destination: str, message_id: str, /) -> str | None:
        """Return the cause of the message `message_id` of `destination` (qualified), or None if it is not known."""
        ...


class LedgerCauses:
    """A ledger's causes as they were when a look began, and a callable that is called first."""

    def __init__(self, ledger: Ledger | None = None, cause_of: CauseOf | None = None) -> None:
        self._ledger = ledger
        self._cause_of = cause_of
        self._known: dict[str, dict[str, Buried]] = {}  # by id, then by destination

    def refresh(self) -> None:
        """Read the ledger again. Raises LedgerError."""
        if self._ledger is None:
            return
        known: dict[str, dict[str, Buried]] = {}
        for one in self._ledger.buried():
            if one.message_id is not None:
                known.setdefault(one.message_id, {})[one.destination] = one  # the last of them is the newest
        self._known = known

    def of(self, delivery: Delivery) -> Buried | None:
        """Return the ledger's record of a dead letter; None if it may be that of another message."""
        identity = delivery.message_id
        if not self._known or identity is None or text_in(delivery.headers, "redeliveryCause"):
            return None
        found = self._known.get(identity, {})
        exact = found.get(recorded_origin(delivery) or "")
        # Not every broker records the origin, and Classic records a virtual topic instead of the queue. But producers
        # of two queues may both count "1", "2": such an id alone proves nothing.
        if exact is not None or len(found) != 1 or not _UNIQUE.search(identity):
            return exact
        return next(iter(found.values()))

    def origin(self, delivery: Delivery) -> str | None:
        """Return the origin of a dead letter, qualified, as the broker, the ledger or its copy has it; or None."""
        # The broker dead-lettered a message that the ledger has: its properties are those of its producer.
        if delivery.origin is None and (buried := self.of(delivery)) is not None:
            return readable_origin(buried.destination)
        return origin_of(delivery)

    def cause(self, delivery: Delivery) -> str | None:
        """Return the cause of a dead letter that carries none, or None."""
        if self._cause_of is not None and delivery.message_id is not None:
            told = self._cause_of(self.origin(delivery) or delivery.destination, delivery.message_id)
            if told:
                return told
        buried = self.of(delivery)
        return None if buried is None else buried.cause


# ---- Dead letter -----------------------------------------------------------------------------------------

UNKNOWN = "unknown"
_TYPE = re.compile(r"[A-Za-z_][\w.]*")


def kind_of_cause(cause: str) -> str:
    """Return the kind that a cause is counted under: the exception's type without its text, or the whole cause."""
    head, colon, _ = cause.partition(":")
    return head if colon and _TYPE.fullmatch(head) else cause


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message on a dead-letter queue. Times are aware, in UTC."""

    message_id: str | None
    """Message id on the dead-letter queue; None: the broker gives none."""
    original_id: str | None
    """Message id when it was dead-lettered first; `message_id` where no property says it."""
    queue: str
    """Dead-letter queue, qualified."""
    original_destination: str | None
    """Destination it was consumed from, qualified; None: neither its properties nor the broker say it."""
    cause: str
    """Why it was dead-lettered: type and text of the exception.

    `unknown` where it is not recorded: no broker keeps the cause of a poison acknowledgement, but a ledger does.
    """
    first_failure: datetime | None
    """Time of the first failure; None: not recorded."""
    died_at: datetime | None
    """Time of the last failure; where it is not recorded, the time when the message was sent."""
    redelivery_count: int | None
    """Number of charged failures, that of the first delivery included; None: not recorded."""
    redrives: int
    """Number of earlier redrives."""
    whole: bool
    """True if its body is all that was sent. Only then can it be redriven."""
    headers: Mapping[str, Any]
    body: bytes
    content_type: str | None
    correlation_id: str | None
    message_type: str | None
    priority: int
    persistent: bool
    body_kind: BodyKind = "bytes"
    """Type of the body for a JMS consumer: `text`, `bytes`, or another one if it may not be whole."""
    reply_to: str | None = None
    """Destination for an answer, qualified; None: none."""
    group: str | None = None
    """Message group; None: none."""
    lossy: str = ""
    """Parts of the message that these fields do not keep, in words; a redrive keeps them. Empty: none."""

    @property
    def cause_kind(self) -> str:
        """Kind of the cause, for counts: the exception's type, or the whole cause."""
        return kind_of_cause(self.cause)

    @property
    def topic(self) -> bool:
        """True if it came from a topic. Every subscriber gets it when it is redriven."""
        origin = self.original_destination
        return origin is not None and origin.startswith(("topic://", "temp-topic://"))

    @property
    def day(self) -> str:
        """Day of its death in UTC, as `2026-11-22`; `unknown` where no time is recorded."""
        return UNKNOWN if self.died_at is None else self.died_at.date().isoformat()


def read_letter(
    delivery: Delivery, queue: str, memories: LedgerCauses | None = None, *, empty_is_whole: bool = False
) -> DeadLetter:
    """Return a delivery from a dead-letter queue as a dead letter."""
    # The id is read first: on Classic that reads all headers.
    identity, memories = (
        delivery.message_id,
        memories or LedgerCauses(),
    )
    headers, noted, buried = delivery.headers, delivery.noted, memories.of(delivery)
    first, last = time_in(noted, "redeliveryFirstFailure"), time_in(noted, "redeliveryLastFailure")
    count = count_in(noted, "redeliveryCount")
    if buried is not None:
        first, last = first or moment(buried.first), last or moment(buried.last or buried.at or None)
        count = buried.count if count is None else count
    told = text_in(noted, "redeliveryCause") or memories.cause(delivery) or delivery.died_of or UNKNOWN
    return DeadLetter(
        message_id=identity,
        original_id=first_id(delivery),
        queue=queue,
        original_destination=memories.origin(delivery),
        cause=told,
        first_failure=first,
        died_at=last or delivery.timestamp,
        redelivery_count=count,
        redrives=redrives_of(headers),
        whole=arrived_whole(delivery, empty_is_whole=empty_is_whole) and headers.get(WHOLE) != "false",
        headers=headers,
        body=delivery.body,
        content_type=delivery.content_type,
        correlation_id=delivery.correlation_id,
        message_type=delivery.message_type,
        priority=delivery.priority,
        persistent=delivery.persistent,
        body_kind=delivery.body_kind,
        reply_to=delivery.reply_to,
        group=delivery.group,
        lossy=", ".join(_not_kept(delivery)),
    )


def _not_kept(delivery: Delivery) -> Iterator[str]:
    """Yield what of a message is in no field of a dead letter."""
    yield from delivery.typed
    if delivery.content_encoding is not None:
        yield f"content-encoding {delivery.content_encoding}"
    for name, value in delivery.headers.items():
        if not isinstance(value, str | bool | int | float | None):
            yield f"the property {name}, a {type(value).__name__}"


# ---- Results ---------------------------------------------------------------------------------------------
# Results of a summary, a redrive, a purge, and the resending of an export.

# Different causes, or origins, that are counted apart: producers can write more of them than fit into memory.
KINDS = 1000
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """Number of dead letters of one destination, one kind of cause and one day (UTC), on one dead-letter queue."""

    original_destination: str
    cause: str
    day: str
    count: int
    queue: str = ""
    """Dead-letter queue, qualified."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """Counts of a redrive, or of its dry run. Dead letters that stay are still on the dead-letter queue."""

    redriven: int = 0
    """Dead letters redriven: the broker has confirmed their copies."""
    destinations: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers by destination, the quarantine included; the most first."""
    quarantined: int = 0
    """Those of `redriven` that went to the quarantine."""
    skipped: int = 0
    """Stay: they did not match the filters. Messages that a selector keeps at the broker are not counted."""
    again: int = 0
    """Stay: redriven by this run, and dead-lettered again already."""
    without_origin: int = 0
    """Stay: their origin is not known, or only their own property names it, which cannot be trusted."""
    overruled: int = 0
    """Those of `redriven` whose property named another origin than the broker's record, which decides."""
    doubles: int = 0
    """Removed, beside those of `redriven`: the broker had put these dead letters into another queue, too (Artemis)."""
    partial: int = 0
    """Stay: their bodies do not arrive whole over this protocol, or the messages could not be decoded."""
    topics: int = 0
    """Stay: they came from a topic, where every subscriber would get them."""
    incomplete: str | None = None
    """Reason why more of them may match; None: all were read."""
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """Number of dead letters read that match the filters."""
        return self.redriven + self.again + self.without_origin + self.partial + self.topics

    @property
    def complete(self) -> bool:
        """True if everything that matches was redriven."""
        return not (self.without_origin or self.partial or self.topics or self.incomplete)


@dataclass(frozen=True, slots=True)
class Purged:
    """Counts of a purge, or of its dry run."""

    purged: int = 0
    skipped: int = 0
    """Stay: they did not match the filters."""
    incomplete: str | None = None
    """Reason why more of them may match; None: all were read."""
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """True if everything that matches was deleted."""
        return self.incomplete is None


@dataclass(frozen=True, slots=True)
class LineProblem:
    """Reason why a line of an export was not sent."""

    line: int
    """Number of the line, from 1."""
    text: str


@dataclass(frozen=True, slots=True)
class Resent:
    """Counts of the lines of an export that were sent again, or of the dry run."""

    resent: int = 0
    """Lines sent: the broker has confirmed their messages."""
    destinations: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers by destination; the most first."""
    before: int = 0
    """Lines that an earlier run had sent, which was interrupted, or left some."""
    skipped: int = 0
    """Lines that did not match the filters."""
    refused: int = 0
    """Lines that cannot be sent, or that the broker refused."""
    problems: Sequence[LineProblem] = ()
    """Reasons of the first 100 of them."""
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """Number of lines that match the filters, and of those that cannot be read."""
        return self.resent + self.before + self.refused

    @property
    def complete(self) -> bool:
        """True if every line that matches was sent, by this run or an earlier one."""
        return not self.refused


@dataclass(frozen=True, slots=True)
class CountedLetters:
    """Numbers of dead letters by kind of cause, and by origin; the most first, 1,000 different ones at most."""

    count: int = 0
    causes: Mapping[str, int] = field(default_factory=dict[str, int])
    origins: Mapping[str, int] = field(default_factory=dict[str, int])


def together(*results: Redriven | Purged) -> Redriven | Purged:
    """Return the result of several queues: all of a redrive, or all of a purge."""
    counts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for one in results:
        numbers = {each.name: getattr(one, each.name) for each in fields(one)}
        counts.update({name: value for name, value in numbers.items() if type(value) is int})
        places.update(numbers.get("destinations", {}))
    reasons = [one.incomplete for one in results if one.incomplete is not None]
    own: dict[str, Any] = {**counts, "incomplete": "; ".join(dict.fromkeys(reasons)) or None}
    if isinstance(results[0], Redriven):
        own["destinations"] = dict(places.most_common())
    return replace(results[0], **own)


def contents_of(letters: Iterable[DeadLetter]) -> CountedLetters:
    """Count dead letters by kind of cause, and by origin; past 1,000 different ones as `others`."""
    causes, origins, count = Counter[str](), Counter[str](), 0
    for count, one in enumerate(letters, 1):  # noqa: B007 - the last one counts
        for found, name in ((causes, one.cause_kind), (origins, one.original_destination or UNKNOWN)):
            found[name if name in found or len(found) < KINDS else OTHERS] += 1
    return CountedLetters(count, dict(causes.most_common()), dict(origins.most_common()))


def summarise(letters: Iterable[DeadLetter]) -> list[CauseGroup]:
    """Count dead letters by original destination, kind of cause, day and dead-letter queue; the most first."""
    counts = Counter(
        (one.original_destination or UNKNOWN, one.cause_kind, one.day, one.queue) for one in letters
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [CauseGroup(origin, cause, day, count, queue) for (origin, cause, day, queue), count in ordered]
