"""Number of deliveries of one consumer that may run at once: its credit, reduced by breaker, pause or rate limit.

For each dispatch the engine compares with one number, `most`. This module knows the reasons for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING

from redelivery.core.commands import BreakerChanged, Stop
from redelivery.core.delivery import Record
from redelivery.core.option_values import real, refuse, seconds, whole
from redelivery.errors import BreakerOpen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from redelivery.core.breaker import BreakerState, Circuit
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.events import Failed
    from redelivery.core.source_memory import SourceMemory

__all__ = ["DispatchGate", "Rate"]


# ---- Dispatch gate ---------------------------------------------------------------------------------------

# RabbitMQ 4 drops a message of a quorum queue after 20 deliveries by default: half of them may be used by an outage.
MOST_RETURNS = 10
# Withheld messages are released so many times at most in the time for which the broker lets one be held.
SHARE = 4
# Seconds after which the log reports an open breaker again.
REMINDER = 600.0


class DispatchGate:
    """Credit, breaker, pause, rate limit and end of one consumer, combined for the decision to dispatch."""

    __slots__ = (
        "_bucket", "_credit", "_known", "_named", "_reminded", "_unasked", "alert", "cause", "circuit",
        "closed", "held_since", "most", "paused", "watches", "withholds", "yields",
    )  # fmt: skip

    def __init__(
        self, credit: int, circuit: Circuit | None, rate: Rate | None = None, *, asks_above: int | None = None
    ) -> None:
        """`asks_above`: see `ask_above`."""
        self._credit = credit
        self._unasked = credit if asks_above is None else min(asks_above, credit)
        self._bucket = None if rate is None else rate.bucket()
        self.circuit = circuit
        self.closed = self.paused = False
        self.most = self._unasked if rate is None else 0
        """Number of running deliveries from which `admits` decides: below it the credit alone decides."""
        self.alert = False
        """True if a success changes the breaker."""
        self.withholds = False
        """True if the breaker or a pause keeps messages from being dispatched: none should be here."""
        self.watches = rate is not None
        """True if `admits` decides, and dispatches must be reported."""
        self.held_since = 0.0
        """Time since which messages are withheld; or when they were last released for that reason."""
        self.yields = False
        """True if one may be dispatched, and only a crash suspect is there."""
        self.cause: Cause | None = None
        """Cause of the last failure."""
        self._named = False
        self._reminded = 0.0
        # State that was reported last.
        self._known: BreakerState = "closed"

    @property
    def state(self) -> BreakerState:
        """State of the breaker; `closed` without one."""
        return "closed" if self.circuit is None else self.circuit.state

    def share(self, memory: SourceMemory) -> None:
        """Share the memory of all consumers of the source."""
        if self.circuit is not None:
            self.circuit.source = memory

    def close(self) -> None:
        """Stop dispatching: the consumer drains, or has stopped."""
        self.closed = True
        self.most = 0
        self.withholds = False

    def pause(self, now: float, *, paused: bool) -> None:
        """Stop dispatching until the pause ends; or end the pause."""
        self.paused = paused
        self._update(now)

    def ask_above(self, running: int) -> None:
        """Make `admits` decide once so many deliveries run, although the credit alone decides."""
        self._unasked = min(running, self._credit)
        if not (self.watches or self.closed):
            self.most = self._unasked

    @property
    def wanted(self) -> int:
        """Number of fresh messages that may be here while it withholds: for a round of tries, or as many as may run."""
        circuit = self.circuit
        if self.paused or circuit is None:
            return 0
        return int(min(circuit.next_tries if circuit.tries else max(1, circuit.most), self._credit))

    def holds_until(self, most_delay: float, held: float) -> float:
        """Return when withheld messages must be released to a broker that limits how long they may stay unsettled.

        `most_delay`: `Capabilities.most_delay`. `held`: seconds for which one of them has been parked already, at
        most. A quarter of the limit is kept for withholding, even if a message was parked for all of it.
        """
        return self.held_since + max(most_delay - held, most_delay / SHARE)

    def connected(self, capabilities: Capabilities) -> None:
        """Limit how long the breaker may be open where the broker counts each release of the withheld messages."""
        if self.circuit is not None:
            most = capabilities.most_delay if capabilities.release_counts else None
            self.circuit.limit(inf if most is None else MOST_RETURNS * most)

    def gave_back(self, now: float) -> None:
        """Note that all withheld messages were released."""
        self.held_since = now

    def admits(self, now: float, running: int) -> bool:
        """Return True if one more delivery may be dispatched while `running` run."""
        if self.closed or self.paused or running >= self._credit:
            return False
        if self._bucket is not None and not self._bucket.has(now):
            return False
        circuit = self.circuit
        return circuit is None or running < circuit.most or circuit.admits(now)

    @property
    def tries(self) -> bool:
        """True if the next dispatch is a try of the breaker: a fresh message, if there is one."""
        return self.circuit is not None and self.circuit.tries

    def only_fresh(self, now: float) -> bool:
        """True if the breaker admits fresh messages only: the next round is not due."""
        circuit = self.circuit
        return circuit is not None and circuit.tries and now < circuit.until and not circuit.retries

    @property
    def left(self) -> int:
        """Number of fresh messages that the breaker lets try at once."""
        return 0 if self.closed or self.paused or self.circuit is None else self.circuit.left

    def slots(self, running: int) -> int:
        """Return how many may be dispatched at once, as far as that is known without the time."""
        if self.closed or self.paused:
            return 0
        free = self._credit if self.circuit is None else min(self.circuit.most, self._credit)
        free -= running
        return max(0, int(free if self._bucket is None else min(free, self._bucket.tokens)))

    def suspect_waits(self) -> None:
        """Allow a crash suspect as the next dispatch, because no other message is there."""
        self.yields = self.withholds and not self.paused

    def next_due(self, due: float | None, *, ready: bool, running: int) -> float | None:
        """Return when a delivery may be dispatched; the first is due at `due`; `ready`: one could go at once."""
        if self.closed or self.paused:
            return None
        circuit, token = self.circuit, None if self._bucket is None else self._bucket.next
        opens, kept = -inf if token is None else token, token is not None
        if circuit is not None and circuit.state != "closed" and running >= circuit.most:
            at_once = circuit.retries > 0 or (ready and circuit.left > 0)
            opens, kept = opens if at_once else max(opens, circuit.until), True
        if ready and kept:
            # At once, if the last probe proved nothing.
            return opens
        return due if due is None else max(due, opens)

    def dispatched(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Record a dispatch, while it `watches`."""
        self.yields = False
        circuit = self.circuit
        if self._bucket is not None:
            self._bucket.take(now)
        if circuit is None or circuit.state == "closed":
            return ()
        before = circuit.state
        circuit.dispatched(delivery, now)
        self._update(now)
        return self._changed(before, now)

    @property
    def next_probe(self) -> float | None:
        """When the next round of tries is due; None: the breaker is not open, or a round runs."""
        circuit = self.circuit
        return circuit.until if circuit is not None and circuit.state == "open" else None

    def spared_for(self, record: Record) -> float:
        """Return how long the message that was spared just now waits at least, in seconds.

        While rounds of tries are planned, only named failures beside successes make it wait for more than the next one.
        """
        circuit, named = self.circuit, self._named
        if circuit is None or (circuit.state == "open" and not (named and record.uncharged)):
            return 0.0
        return circuit.pause(record, named=named)

    def failed(self, delivery: Delivery, event: Failed, now: float) -> tuple[bool, Sequence[Command]]:
        """Record a failure. Return True if it is spared (not charged), and the breaker's commands."""
        circuit = self.circuit
        if circuit is None:
            return False, ()
        record = delivery.record = delivery.record or Record()
        if record.first_failure is not None:
            # The time for which the breaker kept the message is not time in which it was tried.
            tried = record.last_failure or -inf, -inf if record.failed_at is None else record.failed_at[1]
            record.idle += circuit.kept(max(tried), now)
        before, failures, messages = circuit.state, circuit.failures, circuit.messages
        if circuit.is_first(record):
            messages += 1
        spared = circuit.failed(delivery, record, event.weight, now)
        if event.weight != "own":
            self.cause, self._named = event.cause, event.weight == "outage"
        self._update(now)
        if spared and circuit.stops and circuit.over(now):
            self.close()
            stop = Stop(
                BreakerOpen(f"nothing has succeeded for {now - circuit.opened:.0f} s: {event.cause.text}")
            )
            return True, (*self._changed(before, now), stop)
        return spared, self._changed(before, now, failures + 1, messages)

    def succeeded(self, delivery: Delivery, now: float, running: Iterable[Delivery]) -> Sequence[Command]:
        """Record a success, while `alert` says that it changes the breaker."""
        circuit = self.circuit
        if circuit is None or delivery.state != "running":
            return ()
        before = circuit.state
        circuit.succeeded(delivery, now, running)
        self._update(now)
        return self._changed(before, now)

    def decided(self, delivery: Delivery, now: float, *, waits: bool) -> Sequence[Command]:
        """Record a decision of the handler that is neither success nor failure.

        `waits`: the message is deferred.
        """
        circuit = self.circuit
        if circuit is None or delivery.state != "running":
            return ()
        before = circuit.state
        circuit.decided(delivery, now, waits=waits)
        self._update(now)
        # A round that ends so is not reported: the next one is due at once.
        return () if circuit.state == "open" and circuit.until <= now else self._changed(before, now)

    def emptied(self, now: float) -> Sequence[Command]:
        """Note that nothing is left here which the breaker could keep."""
        circuit = self.circuit
        if circuit is None or not circuit.tries:
            return ()
        before = circuit.state
        circuit.emptied(now)
        self._update(now)
        return self._changed(before, now)

    def ended(self, delivery: Delivery) -> None:
        """Record a result that proves nothing, or a dispatch that did not begin."""
        if self.circuit is not None:
            self.circuit.ended(delivery)

    def lost(self, now: float) -> Sequence[Command]:
        """Note that the connection is lost: do not wait for the handler of a probe."""
        if self.circuit is None:
            return ()
        before = self.circuit.state
        self.circuit.lost()
        return self._changed(before, now)

    def _update(self, now: float) -> None:
        circuit = self.circuit
        open_ = circuit is not None and circuit.state != "closed"
        self.alert = circuit is not None and (open_ or circuit.alert)
        if self.closed:
            return
        withholds = self.paused or open_
        if withholds and not self.withholds:
            self.held_since = now
        self.withholds = withholds
        self.watches = withholds or self._bucket is not None
        self.most = 0 if self.watches else self._unasked

    def _changed(
        self, before: BreakerState, now: float, failures: int = 0, messages: int = 0
    ) -> Sequence[Command]:
        """Return the commands for the log and observers: each change of state, and a reminder.

        A probe that proved nothing has opened the breaker again unreported: the state reported last is `probing`.
        """
        circuit = self.circuit
        assert circuit is not None, "only called with a breaker"
        known, self._known = self._known, circuit.state
        if circuit.state in (known, before):
            return ()
        if known in ("closed", "ramp") and circuit.state == "open":
            self._reminded = now
        reminds = known == "probing" and circuit.state == "open" and now - self._reminded >= REMINDER
        if reminds:
            self._reminded = now
        return (
            BreakerChanged(
                known, circuit.state, self.cause, failures, messages, max(0.0, circuit.until - now), circuit.spared,
                now - circuit.since, charging=circuit.charging, named=self._named, reminds=reminds,
            ),
        )  # fmt: skip


# ---- Rate ------------------------------------------------------------------------------------------------
# Rate limit of dispatches: a token bucket. Sans-IO: `now` is an argument.

# Fraction of a token by which a bucket may fall short: times are doubles, and rounding must not cause a second wait.
NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate limit of a consumer: `Rate(100, per=60)` handles 100 messages a minute. Redeliveries count.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    messages: float
    """Messages in the time `per`; more than 0."""
    per: float | timedelta = 1.0
    """Time in seconds, or a `timedelta`; more than 0. Default 1 s."""
    burst: int | None = None
    """Messages at once after a pause. None: as many as in one second, at least 1."""

    def __post_init__(self) -> None:
        if real(self.messages, "Rate.messages") <= 0:
            raise refuse("Rate.messages", self.messages, "more than 0")
        if (per := seconds(self.per, "Rate.per")) <= 0:
            raise refuse("Rate.per", self.per, "more than 0 seconds")
        object.__setattr__(self, "per", per)
        if self.burst is not None:
            whole(self.burst, "Rate.burst", 1)

    def ahead(self, time: float) -> int:
        """Return how many messages are handled in `time` seconds, at least 1."""
        return max(1, int(min(self.messages / seconds(self.per, "Rate.per") * time, 1e9)))

    def bucket(self) -> TokenBucket:
        """Return a full bucket."""
        a_second = self.messages / seconds(self.per, "Rate.per")
        return TokenBucket(a_second, self.burst or max(1, ceil(a_second)))


class TokenBucket:
    """Bucket of tokens, filled at a rate up to a maximum; each dispatch takes one."""

    __slots__ = ("_a_second", "_at", "_most", "_tokens")

    def __init__(self, a_second: float, most: int) -> None:
        self._a_second = a_second
        self._most = most
        self._tokens: float = most
        self._at: float | None = None

    def take(self, now: float) -> None:
        """Take a token, even if there is none."""
        self._fill(now)
        self._tokens -= 1

    def has(self, now: float) -> bool:
        """Return True if there is a token."""
        self._fill(now)
        return self._tokens >= 1 - NEARLY

    @property
    def tokens(self) -> float:
        """Number of tokens at the last `has` or `take`."""
        return self._tokens + NEARLY

    @property
    def next(self) -> float | None:
        """When there will be a token; None: there is one."""
        missing = 1 - self._tokens
        return None if missing <= NEARLY or self._at is None else self._at + missing / self._a_second

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._a_second)
        self._at = now
