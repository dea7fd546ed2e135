"""Circuit breaker of one consumer: decides if a failure is charged, and how many messages may be handled at once.

Sans-IO: `now` is an argument. The module knows no exceptions: the classifier gives each failure a weight.

| weight | the exception |
|---|---|
| `outage` | named: registered with `Classifier.trip`; a service that handlers need is down |
| `maybe` | unnamed: caused by an outage or by the message itself |
| `own` | about a value: caused by the message itself |

| state | may be dispatched | a success | a failure `maybe` or `outage` |
|---|---|---|---|
| closed | all | ends the failures in a row | counted; the last of a row opens the breaker |
| open | what the last round has left, of messages not yet tried | begins the ramp | spared |
| probing | a round: one message, and messages not yet tried | begins the ramp | spared; after the last one: open |
| ramp | n + 1 at a time after n successes | one more; the last closes the breaker | spared; several in a row open it |

A handler may also decide: it discards, poisons or defers the message, or its value is wrong (`own`).

The rule:

1. A round tries one message, and more that were not yet tried, as its size allows: 1, 4, 16, 64 and so on. So a run
   of bad messages is passed within a minute; during an outage each message is tried once, and then one in each round,
   the one that was tried least recently. After a round of decisions alone the next one is due at once, and may try four
   times as many messages that were tried before. A decision is no success, but a step of the ramp. The breaker closes
   when no tried message is left, or after ten minutes of decisions.
2. A spared failure is not charged. An unnamed one is charged in every state once there is evidence: other messages have
   succeeded between two failures of this one. Failures during an outage are no evidence; an outage is proven when a
   message that failed in it succeeds later.
3. After another message has succeeded since a message's first failure, at any consumer of the source, `uncharged` of
   its failures are spared at most, if they are named each after a longer wait, an hour in all. While the breaker is
   closed, a named one is charged at once if another message has succeeded here since the failure before.
4. Openings are one until most of the last 200 results are successes, or until it has been closed for ten minutes, or
   in its ramp, which a quiet queue may never end. Their time counts from the first, as does the size of the rounds.
   The longest time is that of named failures if they are most of the last failures and deferrals, of as many as may
   be parked, and one was seen within ten minutes.
   After it the breaker closes, and failures are charged until one success: the named ones only if most were named, or
   after their own longest time. Then unnamed failures do not open it before most of the last 200 results are successes;
   named ones open it anew once most failures are named. If that is ten minutes after the success, or after the last
   named failure without one, the time counts anew.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Literal

from redelivery.core.option_values import option_choice, refuse, seconds, whole
from redelivery.core.source_memory import SourceMemory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from random import Random

    from redelivery.core.delivery import Delivery, Record

__all__ = ["OWN", "Breaker", "BreakerState", "Circuit", "Weight"]

BreakerState = Literal["closed", "open", "probing", "ramp"]
Weight = Literal["outage", "maybe", "own"]

# `Record.failed_at` of a message that is known to cause its failures itself.
OWN = -inf
# Seconds. After the breaker has been closed for longer, the next opening is a new one.
FORGET = 600.0
# Number of results of which most must be successes before an opening is over.
RESULTS = 200
ALL_RESULTS = (1 << RESULTS) - 1
# Each round may try so many times the messages of the one before. With the times between rounds, 1 to 10 s, a thousand
# messages are passed within 35 s, and twenty thousand within a minute.
GROWTH = 4
MOST_TRIES = GROWTH**7
# Number of outages that are remembered. A message can wait untried through this many.
MOST_OUTAGES = 16
# Seconds by which a time that a broker has kept on a message may be earlier: it is cut to milliseconds.
CUT = 0.001
# Seconds until tries that have not ended no longer delay the next round: a handler may hang for ever.
PATIENCE = 60.0
# Seconds for which a message waits at most whose named failures are spared beside successes. Twenty tries then last for
# an hour: it outlives an outage in which another message has succeeded once.
LONGEST_PAUSE = 300.0
# Share by which the time between probes varies: several processes must not probe together.
SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Breaker:
    """Rules of the circuit breaker: when a consumer pauses because everything fails, and how it resumes.

    While the breaker is open, messages are tried in rounds, and failures are not charged: no redelivery is used up.
    Failures that the message itself causes (a `ValueError` and its like, `Poison`) still dead-letter it, and so do
    failures of a message while others succeed. Times are seconds, or a `timedelta`.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    failures: int = 200
    """Failures in a row, with no success between, that open the breaker. 0: only `Classifier.trip` failures open it."""
    messages: int | None = None
    """Least number of different messages among those failures. Fewer may be bad messages and follow their policy.
    None: half of `failures`, 100 by default."""
    named: int = 3
    """Failures in a row of exceptions registered with `Classifier.trip` that open the breaker."""
    probe: float | timedelta = 1.0
    """Time from the opening to the first round of tries. It doubles for each further round."""
    maximum_probe: float | timedelta = 10.0
    """Longest time between two rounds."""
    ramp: int = 8
    """Successes in the ramp until the breaker closes. After n of them n + 1 messages are handled at a time."""
    reopen: int = 3
    """Failures in a row in the ramp that open the breaker again."""
    uncharged: int = 20
    """Failures of one message that are not charged, at most, after another message has succeeded since its first."""
    maximum_open: float | timedelta | None = 12 * 3600.0
    """Time since the first opening after which `at_maximum` applies. None: no limit."""
    maximum_unnamed: float | timedelta = 600.0
    """The same if most failures are of exceptions that are not registered with `Classifier.trip`, or no registered one
    was seen for ten minutes; `maximum_open` if that is shorter."""
    at_maximum: Literal["charge", "stop"] = "charge"
    """`charge`: failures are charged by the policy again. `stop`: if nothing has succeeded since the first opening, the
    consumer stops with `BreakerOpen`, and its messages stay on the broker; otherwise as `charge`."""

    def __post_init__(self) -> None:
        if self.messages is None and isinstance(self.failures, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            object.__setattr__(self, "messages", max(1, (self.failures + 1) // 2))
        for name, low in (
            ("failures", 0),
            ("messages", 1),
            ("named", 1),
            ("ramp", 1),
            ("reopen", 1),
            ("uncharged", 0),
        ):
            whole(getattr(self, name), f"Breaker.{name}", low)
        for name in ("probe", "maximum_probe", "maximum_open", "maximum_unnamed"):
            value: object = getattr(self, name)
            if value is None and name == "maximum_open":
                continue
            option = f"Breaker.{name}"
            if (length := seconds(value, option)) <= 0:
                raise refuse(option, value, "more than 0 seconds")
            object.__setattr__(self, name, length)
        option_choice(self.at_maximum, "Breaker.at_maximum", ("charge", "stop"))


@dataclass(slots=True)
class _Opening:
    """Time in which the breaker was not closed, including the failures that opened it."""

    began: float
    ended: float
    proven: bool
    """True if a message that failed in this time has succeeded later. That proves an outage."""


@dataclass(slots=True)
class _Rounds:
    """Rounds of tries while the breaker is open, each larger than the one before."""

    size: int = 1
    """Messages that the next round may try; `wide`: how many of them may have been tried before."""
    wide: int = 1
    left: int = 0
    """Messages that the present round may still try; `retries`: how many of them may have been tried before."""
    retries: int = 0
    tries: set[Delivery] = field(default_factory=set["Delivery"])
    """Tries that have not ended; `overdue`: those of earlier rounds."""
    overdue: set[Delivery] = field(default_factory=set["Delivery"])
    failed_at: float = -inf
    """When the last try of the present round failed."""

    def begin(self) -> None:
        """Begin the next round."""
        self.overdue |= self.tries
        self.tries.clear()
        self.left, self.retries, self.failed_at = self.size, self.wide, -inf

    def take(self) -> None:
        """Count a message that is dispatched."""
        self.left, self.retries = max(0, self.left - 1), max(0, self.retries - 1)

    def grow(self) -> None:
        """Increase the number of tries of the next round."""
        self.size = min(self.size * GROWTH, MOST_TRIES)

    def end(self) -> None:
        """Wait for no try any more, and let none begin in this round."""
        self.tries.clear()
        self.overdue.clear()
        self.left = self.retries = 0


class Circuit:
    """State of one consumer's breaker.

    `blocking`: the consumer can try the message at the head only. An outage and one bad message then look the same,
    therefore weight `outage` alone counts, and `maybe` is charged. `source`: all its consumers' successes are evidence.
    `room`: how many messages may be parked. Tries go round them: of so many failures most must be named, for the
    opening to be the outage of a service.
    """

    __slots__ = (
        "_allowed", "_before", "_began", "_bits", "_calm_since", "_charges_named", "_closed_at", "_delay",
        "_ended", "_extra", "_failed_at", "_kinds", "_limits", "_longest", "_most_open", "_most_unnamed", "_named",
        "_named_at", "_off", "_past", "_proven", "_random", "_room", "_rounds", "_row_began", "_rules", "_shortest",
        "_strict", "alert",
        "charging", "failures", "messages", "opened", "since", "source", "spared", "state", "until",
    )  # fmt: skip

    def __init__(
        self,
        rules: Breaker,
        room: int = RESULTS,
        *,
        blocking: bool = False,
        random: Random | None = None,
        source: SourceMemory | None = None,
    ) -> None:
        self._rules = rules
        self.source = SourceMemory() if source is None else source
        self._strict, self._random, self._room = blocking, random, max(1, room)
        self._longest = seconds(rules.maximum_probe, "Breaker.maximum_probe")
        self._shortest = min(seconds(rules.probe, "Breaker.probe"), self._longest)
        most = inf if rules.maximum_open is None else seconds(rules.maximum_open, "Breaker.maximum_open")
        self._limits = most, seconds(rules.maximum_unnamed, "Breaker.maximum_unnamed")
        self.limit(inf)
        self.state: BreakerState = "closed"
        self.alert = False
        """True if a success changes the breaker."""
        self.charging = False
        """True if the breaker was open for too long, and nothing has succeeded since it closed."""
        self.failures = self.messages = self._named = 0
        """Failures in a row; number of different messages among them."""
        # Time of the last success after a failure. A message that failed before it and fails again causes that itself.
        self._ended = -inf
        # Start of the present failures in a row; the earlier times in which the breaker was not closed; and True if a
        # message that failed in the present opening has succeeded in it.
        self._row_began = 0.0
        self._past: deque[_Opening] = deque(maxlen=MOST_OUTAGES)
        self._proven = False
        # Openings that follow each other count as one: when the first began (None: it is over), when a named exception,
        # and any, was last seen in them, if unnamed failures do not open the breaker again, and the last results as
        # bits (1: a success); and the last failures and deferrals (1: named), behind a 1: `_room` of them, as a
        # rotation of tries is so long. `_charges_named`: `charging` is for named failures, too.
        self._began: float | None = None
        self._named_at = self._failed_at = -inf
        self._off = self._charges_named = False
        self._bits, self._kinds = 0, 1
        self._rounds = _Rounds()
        # `_calm_since`: when it closed, or when failures were last charged because it was open for too long.
        self._closed_at = self._calm_since = self._delay = self.until = 0.0
        """`until`: when the next round is due. In the ramp: when a handler that has not ended allows one more."""
        self.since = self.opened = 0.0
        self.spared = 0
        """Failures not charged since `since`, the last time it was closed. `opened`: time of the last success."""
        # In the ramp: the number of successes and decisions, and of deliveries allowed because others took too long;
        # and the deliveries whose handlers ran when the ramp began, which may never end.
        self._allowed = self._extra = 0
        self._before: set[Delivery] = set()

    def limit(self, most: float) -> None:
        """Shorten the longest time of an opening to `most` seconds, if the rules allow more."""
        self._most_open, self._most_unnamed = min(most, self._limits[0]), min(most, *self._limits)

    @property
    def most(self) -> float:
        """How many deliveries may run at once, beside the tries of a round."""
        if self.state == "closed":
            return inf
        return len(self._before) + self._extra + self._allowed + 1 if self.state == "ramp" else 0

    @property
    def calm(self) -> bool:
        """True if it is closed, and its last opening is over, or was open for so long that failures are charged."""
        return self.state == "closed" and (self._began is None or self._off)

    @property
    def tries(self) -> bool:
        """True if what is dispatched is a try: a message not yet tried, if there is one."""
        return self.state in ("open", "probing")

    @property
    def left(self) -> int:
        """How many messages may be dispatched at once, before the next round: not yet tried ones, but for `retries`."""
        return self._rounds.left

    @property
    def retries(self) -> int:
        """How many of `left` may have been tried before."""
        return self._rounds.retries

    @property
    def next_tries(self) -> int:
        """How many messages not yet tried should be here: for the next round, or for the rest of this one."""
        return max(1, self._rounds.left if self.state == "probing" else self._rounds.size)

    def admits(self, now: float) -> bool:
        """True if one more than `most` may run: it is a try, or a handler takes too long."""
        return self.state != "closed" and (now >= self.until or self._rounds.left > 0)

    def dispatched(self, delivery: Delivery, now: float) -> None:
        """Record a dispatch. Called while the breaker is not closed."""
        begins, rounds = now >= self.until, self._rounds
        if self.state == "ramp":
            self._extra += begins
            self.until = now + PATIENCE
            return
        if begins:
            rounds.begin()
        rounds.take()
        if begins or self.state == "probing":
            self.state = "probing"
            rounds.tries.add(delivery)
            self.until = now + PATIENCE

    def failed(self, delivery: Delivery, record: Record, weight: Weight, now: float) -> bool:
        """Record a failure. Return True if it is spared (not charged)."""
        self._before.discard(delivery)
        if weight == "own":
            self.decided(delivery, now, waits=True)
            return False
        if weight == "maybe" and self._strict:
            self.ended(delivery)
            return False
        if self.state == "ramp" and now - self.opened > FORGET:
            # A quiet queue: too few messages came for the whole ramp, and for ten minutes none that failed as often.
            self._close(self.opened)
        if not self.failures and self.state == "closed":
            self._row_began = now
        own, first = self._is_own(record), self.is_first(record)
        beside = self._beside_successes(record)
        may = not beside or record.uncharged < self._rules.uncharged
        named = weight == "outage"
        self._bits = self._bits << 1 & ALL_RESULTS
        self._note_kind(named=named)
        # A named failure is evidence only with a success since the one before: a service may be down from now on.
        record.failed_at = self, OWN if own and not named and self.state == "closed" else now
        if not own:
            self.alert = True
        if self.state == "closed":
            spared = self._failed_closed(now, named=named, own=own, first=first)
        else:
            # In an outage of a named service, unnamed failures are no part of it once a message has succeeded.
            own = own or (beside and self.is_down(now))
            spared = self._failed_open(delivery, now, named=named, own=own)
        if spared and may:
            record.uncharged += beside
            return True
        return False

    def _failed_closed(self, now: float, *, named: bool, own: bool, first: bool) -> bool:
        # A breaker that was open for too long charges named failures until a success.
        if own or (self.charging and self._charges_named):
            return False
        if not named and (self._off or not self._rules.failures):
            return False
        self.failures += 1
        self.messages += first
        self._named += named
        if self.charging:
            # Named ones, among many unnamed ones that are charged already: these are spared for the longer time, and
            # the opening is not over before that.
            self._calm_since = now
        if opens := self._is_outage():
            self._open(now)
        return opens or (named and not (self.charging and self._lasts(now) >= self._most_open))

    def _failed_open(self, delivery: Delivery, now: float, *, named: bool, own: bool) -> bool:
        self._named_at = now if named else self._named_at
        if self.over(now) and not self.stops:
            spared = named and self._lasts(now) < self._most_open
            self._charge_again(now)
            return spared
        # A consumer that is to stop charges nothing for the time that has passed.
        long = self.is_down(now) and self._lasts(now) >= self._most_unnamed and not self.stops
        spared = named or not (own or long)
        self.spared += spared
        self._failed_at = now
        if self.state == "ramp":
            self.failures += 1
            if self.failures >= self._rules.reopen:
                self._open(now)
        else:
            self._tried(delivery, now, failed=True)
        return spared

    def _tried(self, delivery: Delivery, now: float, *, failed: bool) -> None:
        """Note the result of a try. `failed`: it may have failed for the outage; otherwise the handler has decided."""
        rounds = self._rounds
        if failed:
            rounds.wide, rounds.retries = 1, 0
        if delivery in rounds.tries:
            rounds.tries.discard(delivery)
            rounds.failed_at = now if failed else rounds.failed_at
            if not rounds.tries:
                self._end_round(now)
        elif delivery in rounds.overdue:
            # Slow handlers: the rounds grow when the last of them has ended. One that hangs keeps them small.
            rounds.overdue.discard(delivery)
            if not rounds.overdue:
                rounds.grow()

    def _end_round(self, now: float) -> None:
        rounds = self._rounds
        if rounds.failed_at > -inf:
            self._open(rounds.failed_at)
            return
        # Nothing has failed: the next round is due at once, and may try more of those that were tried before.
        rounds.grow()
        rounds.wide = min(rounds.wide * GROWTH, MOST_TRIES)
        self.state, self.until = "open", now

    def succeeded(self, delivery: Delivery, now: float, running: Iterable[Delivery]) -> None:
        """Record a success. `running`: the deliveries whose handlers run, this one included."""
        self.failures = self.messages = self._named = 0
        self._before.discard(delivery)
        self._exculpate(delivery.record)
        self._ended = now
        self._bits = (self._bits << 1 | 1) & ALL_RESULTS
        if self.state == "closed":
            if self.charging:
                self.charging, self._calm_since = False, now
            self._forget(now)
            # The later success of a message that failed in the last opening would prove an outage.
            unproven = bool(self._past) and not self._past[-1].proven
            self.alert = self._began is not None or self._off or (unproven and now - self._closed_at < FORGET)
            return
        if self.state != "ramp":
            self.state = "ramp"
            self._rounds.end()
            self._allowed = self._extra = 0
            self._before = {each for each in running if each is not delivery}
        self.opened = now
        self._step(now)

    def _step(self, now: float) -> None:
        """Allow one more to run in the ramp, or end it."""
        self._allowed += 1
        self.until = now + PATIENCE
        if self._allowed >= self._rules.ramp:
            self._close(now)

    def decided(self, delivery: Delivery, now: float, *, waits: bool) -> None:
        """Record a decision of the handler: it discards or defers the message, or its value is wrong.

        `waits`: the message is tried again, and takes room until then, as one that failed by an unnamed exception.
        It is no success, and no evidence, but the handler ran to its end: the next may run at once. If nothing else
        comes for ten minutes, the outage is over.
        """
        self._before.discard(delivery)
        if waits:
            self._note_kind(named=False)
        if self.state == "closed":
            return
        if now - max(self.opened, self._failed_at) > FORGET:
            self._close(now)
        elif self.state == "ramp":
            self._step(now)
        else:
            self._tried(delivery, now, failed=False)

    def emptied(self, now: float) -> None:
        """Note that no message is left here which was tried: close, as nothing is spared any more."""
        if self.tries:
            self._close(now)

    def _forget(self, now: float) -> None:
        """End the opening, once most of the last results are successes, or after a while without another."""
        most = self._bits.bit_count() > RESULTS // 2
        self._off = self._off and not most
        if most or now - self._calm_since > FORGET:
            self._began = None

    def _close(self, now: float) -> None:
        self.state, self._closed_at, self._calm_since = "closed", now, now
        self.failures = self.messages = self._named = 0
        self._past.append(_Opening(self._row_began, now, proven=self._proven))
        self.alert = True
        self._proven = False
        self._rounds.end()
        self._allowed = 0
        self._before.clear()

    def ended(self, delivery: Delivery) -> None:
        """Record a try that proves nothing: its handler did not run, or did not say what it has decided."""
        rounds = self._rounds
        self._before.discard(delivery)
        rounds.overdue.discard(delivery)
        if delivery in rounds.tries:
            rounds.tries.discard(delivery)
            if not rounds.tries:
                # If no try has failed, the next round is due at once.
                rounds.left = rounds.retries = 0
                self.state, self.until = "open", rounds.failed_at + self._delay

    def lost(self) -> None:
        """Stop waiting for the tries of a round. The next round is due at once."""
        self._rounds.overdue.clear()
        if self.state == "probing":
            self._rounds.end()
            self.state, self.until = "open", -inf

    def _lasts(self, now: float) -> float:
        return 0.0 if self._began is None else now - self._began

    def is_down(self, now: float) -> bool:
        """True if most failures of the opening are named, one of them lately: a few keep no others here for hours."""
        return self._mostly_named() and now - self._named_at < FORGET

    def _note_kind(self, *, named: bool) -> None:
        room = self._room
        self._kinds = self._kinds << 1 & (1 << room) - 1 | named | 1 << min(self._kinds.bit_length(), room)

    def _mostly_named(self) -> bool:
        kinds = self._kinds
        return 2 * (kinds.bit_count() - 1) > kinds.bit_length() - 1

    def over(self, now: float) -> bool:
        """True if the breaker is not closed, and the longest time since its first opening has passed."""
        most = self._most_open if self.is_down(now) else self._most_unnamed
        return self.state != "closed" and self._lasts(now) >= most

    def kept(self, after: float, now: float) -> float:
        """Return for how many seconds after `after` the breaker was not closed; only the last opening counts."""
        end = self._closed_at if self.state == "closed" else now
        return max(0.0, end - max(after, self.since))

    @property
    def stops(self) -> bool:
        """True if the consumer must stop when `over` is true: nothing has succeeded since the first opening."""
        return self._rules.at_maximum == "stop" and self._began is not None and self._ended < self._began

    def pause(self, record: Record, *, named: bool) -> float:
        """Return how long a message waits at least, in seconds, that is spared beside successes, or without a round."""
        if self.charging and named:
            # A few among many unnamed ones, which need the workers until they are dead.
            return LONGEST_PAUSE
        pause = self._shortest * 2.0 ** min(record.uncharged, 60)
        return min(pause, LONGEST_PAUSE if named else self._longest)

    def _is_own(self, record: Record) -> bool:
        """True if other messages succeeded between two failures of this one."""
        if record.failed_at is None or record.failed_at[0] is not self:
            # Another consumer's breaker noted the failure: its successes do not count here.
            return False
        at = record.failed_at[1]
        if at == OWN:
            return True
        proven = self._proven and at >= self._row_began
        proven = proven or any(each.proven and each.began <= at <= each.ended for each in self._past)
        return at < self._ended and not proven

    def _beside_successes(self, record: Record) -> bool:
        """True if another message of the source has succeeded since this one failed for the first time."""
        successes = self.source.successes
        if record.failed_first is None or record.failed_first[0] is not self.source:
            record.failed_first = self.source, successes
        return record.failed_first[1] < successes

    def _exculpate(self, record: Record | None) -> None:
        """Note that a message succeeds which failed before: an outage caused the failures of that time.

        Otherwise, after two outages with a moment between them, every message tried in the first would be charged.
        """
        if record is None or record.failed_at is None or record.failed_at[0] is not self:
            return
        at = record.failed_at[1]
        if self.state != "closed" and at >= self._row_began:
            self._proven = True
        for each in self._past:
            if each.began <= at <= each.ended:
                each.proven = True

    def is_first(self, record: Record) -> bool:
        """True if the message has not failed in the present failures in a row."""
        at = record.failed_at
        if at is not None and at[0] is self:
            return at[1] < self._row_began
        # It was charged elsewhere, or as the delayed copy that this one was made of.
        return record.last_failure is None or record.last_failure < self._row_began - CUT

    def _is_outage(self) -> bool:
        rules = self._rules
        enough = self.failures >= rules.failures > 0 and self.messages >= (rules.messages or 1)
        if self._off:
            # A few messages that fail by a named exception among many unnamed ones are no outage.
            return self._named >= rules.named and self._mostly_named()
        return enough or self._named >= rules.named

    def _open(self, now: float) -> None:
        again = self.tries
        if self.state == "closed":
            self.since, self.spared = now, 1
            self._forget(now)
            if self._began is None:
                self._began, self._named_at, self._rounds.size = now, -inf, 1
                many = min(self.failures, self._room)
                self._kinds = 1 << many | (1 << min(self._named, many)) - 1
                self._bits = self._bits if self._off else 0
            self._named_at = now if self._named else self._named_at
        if not again:
            self.opened = now
        else:
            self._rounds.grow()
        self._delay = min(self._delay * 2, self._longest) if again else self._shortest
        spread = 0.0 if self._random is None else SPREAD * (2 * self._random.random() - 1)
        self.until = now + self._delay * (1 + spread)
        self.state, self._rounds.wide, self._rounds.retries = "open", 1, 0
        self.failures = self.messages = self._named = 0

    def _charge_again(self, now: float) -> None:
        """Close, and charge failures: bad messages must not be retried for ever."""
        self._close(now)
        self._charges_named = self.is_down(now)
        self.charging = self._off = True
        self._bits = 0
