"""Circuit breaker of one consumer: decides if a failure is charged, and how many messages may be handled at once.

Sans-IO: `now` is an argument. The module knows no exceptions: the classifier gives each failure a weight.

| weight | the exception |
|---|---|
| `outage` | registered with `Classifier.trip`: a service that handlers need is down |
| `maybe` | caused by an outage or by the message itself |
| `own` | about a value: caused by the message itself |

| state | may be dispatched | a success | a failure `maybe` or `outage` |
|---|---|---|---|
| closed | all | ends the failures in a row | counted; the last of a row opens the breaker |
| open | nothing, until the next probe is due | begins the ramp | spared |
| probing | nothing: one message is tried | begins the ramp | spared; open again, for twice as long |
| ramp | n + 1 at a time after n successes | one more; the last closes the breaker | spared; several in a row open it |

A spared failure is not charged. An outage differs from many bad messages as follows. A message that fails, and fails
again although others succeeded in between, causes its failures itself. From then on it is charged, no longer counted.
Failures during an outage are no such evidence. An outage is proven when a message that failed in it succeeds later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from redelivery.core.option_values import option_choice, refuse, seconds, whole

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
# Seconds. When the breaker has been closed for longer, earlier openings no longer raise its thresholds.
FORGET = 600.0
# Each opening doubles the threshold of failures of weight `maybe`, up to 2 ** 8 = 256 times: a queue of mostly bad
# messages must not stand still. Failures that `Classifier.trip` names need no such caution.
MOST_DOUBLED = 8
# In the ramp the threshold doubles up to 2 ** 3 = 8 times.
MOST_DOUBLED_REOPEN = 3
# Number of outages that are remembered. A message can wait untried through this many.
MOST_OUTAGES = 16
# Seconds until a probe that has not ended no longer delays the next one: a handler may hang for ever.
PATIENCE = 60.0
# Share by which the time between probes varies: several processes must not probe together.
SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Breaker:
    """Rules of the circuit breaker: when a consumer pauses because everything fails, and how it resumes.

    While the breaker is open, one message at a time is tried, and failures are not charged: no redelivery is used up.
    Only failures that the message itself causes (a `ValueError` and its like, `Poison`) still dead-letter it.
    Times are seconds, or a `timedelta`.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    failures: int = 200
    """Failures in a row, with no success between, that open the breaker. 0: only `Classifier.trip` failures open it."""
    messages: int = 100
    """Least number of different messages among those failures. Fewer may be bad messages and follow their policy."""
    named: int = 3
    """Failures in a row of exceptions registered with `Classifier.trip` that open the breaker."""
    probe: float | timedelta = 1.0
    """Time from the opening to the first probe. It doubles for each further probe."""
    maximum_probe: float | timedelta = 10.0
    """Longest time between two probes."""
    ramp: int = 8
    """Successes in the ramp until the breaker closes. After n of them n + 1 messages are handled at a time."""
    reopen: int = 3
    """Failures in a row in the ramp that open the breaker again."""
    maximum_open: float | timedelta | None = 12 * 3600.0
    """Time without a success after which `at_maximum` applies. None: no limit."""
    at_maximum: Literal["charge", "stop"] = "charge"
    """`charge`: failures are charged by the policy again, until one message succeeds. `stop`: the consumer stops with
    `BreakerOpen`, and its messages stay on the broker."""

    def __post_init__(self) -> None:
        for name, low in (("failures", 0), ("messages", 1), ("named", 1), ("ramp", 1), ("reopen", 1)):
            whole(getattr(self, name), f"Breaker.{name}", low)
        for name in ("probe", "maximum_probe", "maximum_open"):
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


class Circuit:
    """State of one consumer's breaker.

    `blocking`: the consumer can try the message at the head only. An outage and one bad message then look the same,
    therefore weight `outage` alone counts, and `maybe` is charged.
    """

    __slots__ = (
        "_allowed", "_before", "_closed_at", "_delay", "_ended", "_extra", "_longest", "_most_open", "_named",
        "_openings", "_past", "_proven", "_random", "_row_began", "_rules", "_shortest", "_strict", "alert",
        "charging", "cut_short", "failures", "messages", "opened", "probe", "since", "spared", "state", "until",
    )  # fmt: skip

    def __init__(self, rules: Breaker, *, blocking: bool = False, random: Random | None = None) -> None:
        self._rules = rules
        self._strict = blocking
        self._random = random
        self._longest = seconds(rules.maximum_probe, "Breaker.maximum_probe")
        self._shortest = min(seconds(rules.probe, "Breaker.probe"), self._longest)
        most = rules.maximum_open
        self._most_open = inf if most is None else seconds(most, "Breaker.maximum_open")
        self.state: BreakerState = "closed"
        self.alert = False
        """True if a success changes the breaker."""
        self.charging = False
        """True if the breaker was open for too long: every failure is charged until one message succeeds."""
        self.failures = self.messages = self._named = 0
        """Failures in a row; number of different messages among them."""
        # Time of the last success after a failure. A message that failed before it and fails again causes that itself.
        self._ended = -inf
        # Start of the present failures in a row; and the earlier times in which the breaker was not closed.
        self._row_began = 0.0
        self._past: deque[_Opening] = deque(maxlen=MOST_OUTAGES)
        # True if a message that failed in the present opening has succeeded in it.
        self._proven = False
        self.cut_short = False
        """True if the opening counts as too long already, because the broker does not allow more deliveries."""
        # Openings that ended with a success. Each has doubled the threshold of failures.
        self._openings = 0
        self._closed_at = self._delay = 0.0
        self.until = 0.0
        """When the next probe is due. In other states: when a handler that has not ended allows one more."""
        self.since = self.opened = 0.0
        self.spared = 0
        """Failures not charged since `since`, the last time it was closed. `opened`: time of the last success."""
        self.probe: Delivery | None = None
        # In the ramp: the number of successes, and of deliveries allowed because others took too long; and the
        # deliveries whose handlers ran when the ramp began, which may never end.
        self._allowed = self._extra = 0
        self._before: set[Delivery] = set()

    @property
    def most(self) -> float:
        """How many deliveries may run at once."""
        if self.state == "closed":
            return inf
        return len(self._before) + self._extra + self._allowed + 1 if self.state == "ramp" else 0

    def admits(self, now: float) -> bool:
        """True if one more than `most` may run: a probe is due, or a handler takes too long."""
        return self.state != "closed" and now >= self.until

    def dispatched(self, delivery: Delivery, now: float) -> None:
        """Record a dispatch. Called while the breaker is not closed."""
        if self.state != "ramp":
            self.state, self.probe = "probing", delivery
        elif now >= self.until:
            self._extra += 1
        self.until = now + PATIENCE

    def failed(self, delivery: Delivery, record: Record, weight: Weight, now: float) -> bool:
        """Record a failure. Return True if it is spared (not charged)."""
        self._before.discard(delivery)
        if weight == "own" or (weight == "maybe" and self._strict):
            self.ended(delivery)
            return False
        if not self.failures and self.state == "closed":
            self._row_began = now
        own, first = self._is_own(record), self.is_first(record)
        record.failed_at = self, OWN if own else now
        if not own:
            self.alert = True
        if self.state == "closed":
            if own or self.charging or (weight == "maybe" and not self._rules.failures):
                return False
            self.failures += 1
            self.messages += 1 if first else 0
            self._named += 1 if weight == "outage" else 0
            opens = self._is_outage(now)
            if opens:
                self._open(now)
            return opens or weight == "outage"
        if self.over(now) and self._rules.at_maximum == "charge":
            self._charge_again(now)
            return False
        self.spared += 1
        if self.state == "ramp":
            self.failures += 1
            # The first ramp for a while has the threshold of the rules, not doubled.
            if self.failures >= self._rules.reopen << min(self._openings - 1, MOST_DOUBLED_REOPEN):
                self._open(now)
        elif delivery is self.probe:
            self._open(now)
        return True

    def succeeded(self, delivery: Delivery, now: float, running: Iterable[Delivery]) -> None:
        """Record a success. `running`: the deliveries whose handlers run, this one included."""
        self.failures = self.messages = self._named = 0
        self._before.discard(delivery)
        self._exculpate(delivery.record)
        if self.state == "closed":
            if self.charging:
                self._openings += 1
                self._closed_at = now
            self._ended = now
            self.charging = False
            # The later success of a message that failed in the last opening would prove an outage.
            unproven = bool(self._past) and not self._past[-1].proven
            self.alert = unproven and now - self._closed_at < FORGET
            return
        if self.state != "ramp":
            self.state, self.probe = "ramp", None
            self._openings += 1
            self._allowed = self._extra = 0
            self._before = {each for each in running if each is not delivery}
        self._allowed += 1
        self.opened = self.until = now
        self.until += PATIENCE
        if self._allowed >= self._rules.ramp:
            self._close(now)
            self._ended = now

    def _close(self, now: float) -> None:
        self.state, self.probe, self._closed_at = "closed", None, now
        self._past.append(_Opening(self._row_began, now, proven=self._proven))
        self.alert = not self._proven
        self._proven = False
        self._allowed = 0
        self._before.clear()
        self.cut_short = False

    def ended(self, delivery: Delivery) -> None:
        """Record a result that proves nothing: dead-lettered, discarded, deferred or released by the application."""
        self._before.discard(delivery)
        if delivery is self.probe:
            self.lost()

    def lost(self) -> None:
        """Stop waiting for the probe. The next probe is due at once."""
        if self.state == "probing":
            self.state, self.probe, self.until = "open", None, -inf

    def over(self, now: float) -> bool:
        """True if nothing has succeeded for longer than `maximum_open`."""
        lasts = self.cut_short or now - self.opened >= self._most_open
        return self.state in ("open", "probing") and lasts

    def kept(self, after: float, now: float) -> float:
        """Return for how many seconds after `after` the breaker was not closed; only the last opening counts."""
        end = self._closed_at if self.state == "closed" else now
        return max(0.0, end - max(after, self.since))

    @property
    def stops(self) -> bool:
        """True if the consumer must stop when `over` is true."""
        return self._rules.at_maximum == "stop"

    def _is_own(self, record: Record) -> bool:
        """True if other messages succeeded between two failures of this one."""
        if record.failed_at is None or record.failed_at[0] is not self:
            # Another consumer's breaker noted the failure: its successes do not count here.
            return False
        at = record.failed_at[1]
        outage = any(each.proven and each.began <= at <= each.ended for each in self._past)
        return at == OWN or (at < self._ended and not outage)

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
        return at is None or at[0] is not self or at[1] < self._row_began

    def _is_outage(self, now: float) -> bool:
        if self._openings and now - self._closed_at > FORGET:
            self._openings = 0
        rules, doubled = self._rules, min(self._openings, MOST_DOUBLED)
        if self._named >= rules.named:
            return True
        most = rules.failures << doubled
        return 0 < most <= self.failures and self.messages >= rules.messages

    def _open(self, now: float) -> None:
        if self.state == "closed":
            self.since, self.spared = now, 1
        again = self.state in ("open", "probing")
        if not again:
            self.opened = now
        self._delay = min(self._delay * 2, self._longest) if again else self._shortest
        spread = 0.0 if self._random is None else SPREAD * (2 * self._random.random() - 1)
        self.until = now + self._delay * (1 + spread)
        self.state, self.probe = "open", None
        self.failures = self.messages = self._named = 0

    def _charge_again(self, now: float) -> None:
        """Close, and charge every failure until one message succeeds: bad messages must not be retried for ever."""
        self._close(now)
        self.charging = self.alert = True
        self.failures = self.messages = self._named = 0
