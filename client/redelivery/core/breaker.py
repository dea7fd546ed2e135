"""The circuit breaker of one consumer: whether a failure is charged, and how many messages may be handled at once.

Sans-IO: `now` is an argument. It knows no exceptions: the classifier gives each failure a weight.

| weight | the exception |
|---|---|
| `outage` | was registered with `Classifier.trip`: a service that handlers need is down |
| `maybe` | may be an outage or the message's own fault |
| `own` | is about a value, so the message itself is at fault |

| state | may be dispatched | a success | a failure `maybe` or `outage` |
|---|---|---|---|
| closed | all | ends the row of failures | counted; the last of a row opens the breaker |
| open | nothing, until the next probe is due | begins the ramp | is spared |
| probing | nothing: one message is tried | begins the ramp | is spared; open again, for twice as long |
| ramp | n + 1 at a time after n successes | one more; the last closes the breaker | is spared; a row opens it again |

A spared failure is not charged. What separates an outage from many bad messages: a message that failed, and fails again
although others have succeeded in between, is at fault itself; from then on it is charged, and not counted. Failures
while a service was down are no such evidence; that it was is known when a message that failed then succeeds.
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

# `Record.failed_at` of a message that is known to be at fault itself.
OWN = -inf
# Seconds for which the breaker must be closed before earlier openings no longer raise its thresholds.
FORGET = 600.0
# Each opening doubles the threshold of failures of weight `maybe`, so a queue that is nearly all bad does not stand
# still: 256 times at most. A service that `Classifier.trip` names is known to be one.
MOST_DOUBLED = 8
# In the ramp: eight times.
MOST_DOUBLED_REOPEN = 3
# Outages that are remembered: a message waits through no more of them untried.
MOST_OUTAGES = 16
# Seconds after which a probe that has not ended no longer keeps another one waiting: a handler may hang for ever.
PATIENCE = 60.0
# Share by which the time between probes varies, so several processes do not probe together.
SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a consumer pauses because everything fails, and how it goes on. Times are seconds, or a `timedelta`.

    While the breaker is open, failures are not charged: no redelivery is used up, and nothing is dead-lettered but
    what is at fault itself (a `ValueError` and its like, `Poison`). One message at a time is tried.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    failures: int = 200
    """Failures in a row, with no success between, that open it. 0: only what `Classifier.trip` names opens it."""
    messages: int = 100
    """Of at least so many different messages. Fewer follow their policy: they may be bad themselves."""
    told: int = 3
    """Failures in a row of what `Classifier.trip` names that open it."""
    probe: float | timedelta = 1.0
    """Time until the first probe, doubled for each further one."""
    maximum_probe: float | timedelta = 10.0
    """Time between two probes at most."""
    ramp: int = 8
    """Successes until it is closed: after n of them n + 1 messages are handled at a time."""
    reopen: int = 3
    """Failures in a row that open it again before it is closed."""
    maximum_open: float | timedelta | None = 12 * 3600.0
    """Time without a success after which `at_maximum` applies. None: no limit."""
    at_maximum: Literal["charge", "stop"] = "charge"
    """`charge`: failures are charged as the policy says, until one message succeeds. `stop`: the consumer stops with
    `BreakerOpen`, and its messages stay on the broker."""

    def __post_init__(self) -> None:
        for name, low in (("failures", 0), ("messages", 1), ("told", 1), ("ramp", 1), ("reopen", 1)):
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
    """A time in which the breaker was not closed, with the row of failures that opened it."""

    began: float
    ended: float
    proven: bool
    """Whether a message that failed in it has succeeded later: then a service was down."""


class Circuit:
    """The state of one consumer's breaker.

    `blocking`: only the message at the head can be tried, so nothing distinguishes an outage from a bad message. Then
    only weight `outage` counts, and `maybe` is charged.
    """

    __slots__ = (
        "_allowed", "_before", "_closed_at", "_delay", "_ended", "_extra", "_longest", "_most_open", "_openings",
        "_past", "_proven", "_random", "_row_began", "_rules", "_shortest", "_strict", "_told", "alert",
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
        """Whether a success changes something."""
        self.charging = False
        """Whether it has been open for too long: all is charged until one message succeeds."""
        self.failures = self.messages = self._told = 0
        """Failures in a row; different messages among them."""
        # When a success last followed a failure. What failed before that, and fails again, is at fault itself.
        self._ended = -inf
        # When the present row of failures began; and when it was not closed, the last times.
        self._row_began = 0.0
        self._past: deque[_Opening] = deque(maxlen=MOST_OUTAGES)
        # Whether what failed in the present opening has succeeded in it.
        self._proven = False
        self.cut_short = False
        """Whether it counts as open for too long already: the broker would not stand more of it."""
        # Openings that ended with a success: each has doubled the threshold of failures.
        self._openings = 0
        self._closed_at = self._delay = 0.0
        self.until = 0.0
        """When the next probe is due; in other states: when a handler that has not ended makes room for one more."""
        self.since = self.opened = 0.0
        self.spared = 0
        """Failures that were not charged since `since`, when it was closed last; `opened`: since the last success."""
        self.probe: Delivery | None = None
        # In the ramp: successes; deliveries whose handlers ran when it began, and may never end; and room for as many
        # as have taken too long.
        self._allowed = self._extra = 0
        self._before: set[Delivery] = set()

    @property
    def most(self) -> float:
        """How many deliveries may run at once."""
        if self.state == "closed":
            return inf
        return len(self._before) + self._extra + self._allowed + 1 if self.state == "ramp" else 0

    def admits(self, now: float) -> bool:
        """Whether one delivery more may run although `most` do: a probe is due, or a handler takes too long."""
        return self.state != "closed" and now >= self.until

    def dispatched(self, delivery: Delivery, now: float) -> None:
        """Take a dispatch, while it is not closed."""
        if self.state != "ramp":
            self.state, self.probe = "probing", delivery
        elif now >= self.until:
            self._extra += 1
        self.until = now + PATIENCE

    def failed(self, delivery: Delivery, record: Record, weight: Weight, now: float) -> bool:
        """Take a failure; return whether it is spared, which means: not charged."""
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
            self._told += 1 if weight == "outage" else 0
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
            # The first ramp after a while has the plain threshold.
            if self.failures >= self._rules.reopen << min(self._openings - 1, MOST_DOUBLED_REOPEN):
                self._open(now)
        elif delivery is self.probe:
            self._open(now)
        return True

    def succeeded(self, delivery: Delivery, now: float, running: Iterable[Delivery]) -> None:
        """Take a success of any message; `running`: what runs on, it among them."""
        self.failures = self.messages = self._told = 0
        self._before.discard(delivery)
        self._exculpate(delivery.record)
        if self.state == "closed":
            if self.charging:
                self._openings += 1
                self._closed_at = now
            self._ended = now
            self.charging = False
            # A success of what failed in the last opening is still of interest.
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
        """Take a result that proves nothing: dead-lettered, discarded, deferred or released by the application."""
        self._before.discard(delivery)
        if delivery is self.probe:
            self.lost()

    def lost(self) -> None:
        """Wait for the probe no longer: another message may prove more, at once."""
        if self.state == "probing":
            self.state, self.probe, self.until = "open", None, -inf

    def over(self, now: float) -> bool:
        """Whether nothing has succeeded for too long."""
        lasts = self.cut_short or now - self.opened >= self._most_open
        return self.state in ("open", "probing") and lasts

    def kept(self, after: float, now: float) -> float:
        """Return for how many seconds after a time it was not closed; of several openings, the last one's."""
        end = self._closed_at if self.state == "closed" else now
        return max(0.0, end - max(after, self.since))

    @property
    def stops(self) -> bool:
        """Whether the consumer is to stop when it is over."""
        return self._rules.at_maximum == "stop"

    def _is_own(self, record: Record) -> bool:
        """Whether others have succeeded between two failures of a message."""
        if record.failed_at is None or record.failed_at[0] is not self:
            # Or another consumer's: its successes are none of ours.
            return False
        at = record.failed_at[1]
        outage = any(each.proven and each.began <= at <= each.ended for each in self._past)
        return at == OWN or (at < self._ended and not outage)

    def _exculpate(self, record: Record | None) -> None:
        """Take in that a message has succeeded that had failed: it was no fault of those that failed with it.

        Else, after two outages with a moment between them, all that was tried in the first would be at fault.
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
        """Whether it has not failed in the present row."""
        at = record.failed_at
        return at is None or at[0] is not self or at[1] < self._row_began

    def _is_outage(self, now: float) -> bool:
        if self._openings and now - self._closed_at > FORGET:
            self._openings = 0
        rules, doubled = self._rules, min(self._openings, MOST_DOUBLED)
        if self._told >= rules.told:
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
        self.failures = self.messages = self._told = 0

    def _charge_again(self, now: float) -> None:
        """Close, and charge all until one message succeeds: the messages may be at fault, and nothing runs for ever."""
        self._close(now)
        self.charging = self.alert = True
        self.failures = self.messages = self._told = 0
