"""Schedule of a policy for a destination's messages; `policy` shows it and `plot` draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.brokers.rabbitmq import CONSUMER_TIMEOUT
from redelivery.cli.formatting import credit_words
from redelivery.core.capabilities import HOLDABLE, Capabilities
from redelivery.core.destination import Destination
from redelivery.core.policy.policy_guard import elapsed_of
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.policy.wildcards import is_pattern
from redelivery.uri.java_options import COUNTERPARTS
from redelivery.uri.schemes import JAVA_PORTS, SCHEMES

if TYPE_CHECKING:
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.settings import Settings

__all__ = ["Explanation", "Row", "explain", "explain_all", "explain_places"]

# Redeliveries shown unless more are asked for.
ROWS = 100
UNLIMITED_ROWS = 10
# Redeliveries computed to find the last one within a limit of time.
SCANNED = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One redelivery. Milliseconds; `low` and `high` are the bounds of collision avoidance."""

    redelivery: int
    delay: int
    low: int
    high: int
    elapsed: int
    elapsed_low: int
    elapsed_high: int

    @property
    def varies(self) -> bool:
        """True if collision avoidance changes this delay, or one before it."""
        return self.elapsed_low != self.elapsed_high

    def fields(self) -> dict[str, int]:
        """Return the row for JSON."""
        return {
            "redelivery": self.redelivery,
            "delay_ms": self.delay,
            "min_delay_ms": self.low,
            "max_delay_ms": self.high,
            "elapsed_ms": self.elapsed,
            "min_elapsed_ms": self.elapsed_low,
            "max_elapsed_ms": self.elapsed_high,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Policy of a destination, with its schedule."""

    source: str
    """The URI without secrets, or the file."""
    destination: str | None
    """None: any destination that no pattern matches."""
    pattern: str | None
    policy: Policy
    options: dict[str, str]
    defaults: dict[str, str]
    rows: tuple[Row, ...]
    then: str
    notes: tuple[str, ...]
    most: int | None
    """Redeliveries at most, by the maximum or within the limit of time; None: more than were computed."""
    limit_ms: int | None
    """Limit of time, in milliseconds; None: no limit."""
    credit: str
    """Credit of a consumer, in words."""

    @property
    def deliveries(self) -> int | None:
        """Deliveries of a message at most; None: no limit, or more than were computed."""
        return None if self.most is None else self.most + 1

    @property
    def complete(self) -> bool:
        """True if the rows are all redeliveries."""
        return len(self.rows) == self.most

    def fields(self, source: str = "uri") -> dict[str, Any]:
        """Return the fields for JSON. `source`: `uri` or `file`, the kind of source of the policy."""
        return {
            source: self.source,
            "destination": self.destination,
            "pattern": self.pattern,
            "policy": self.options,
            "maximum_deliveries": self.deliveries,
            "maximum_elapsed_ms": self.limit_ms,
            "redeliveries": [row.fields() for row in self.rows],
            "worst_case_ms": self.policy.worst_case_ms(),
            "then": self.then,
            **({"credit": self.credit} if source == "uri" else {}),
        }


def explain(settings: Settings, source: str, destination: str, redeliveries: int | None) -> Explanation:
    """Explain the policy of a destination. `source` is shown as it is: give a URI without secrets.

    Raises ConfigurationError if a text is no destination.
    """
    parsed = Destination.parse(destination)
    policies = settings.policies
    return _explained(
        settings, source, str(parsed), policies.pattern_for(parsed), policies.policy_for(parsed), redeliveries
    )


def explain_all(settings: Settings, source: str, redeliveries: int | None) -> list[Explanation]:
    """Explain the policy of each pattern, and last the default; their destinations are the patterns."""
    entries = [*dict(settings.policies.entries).items(), (None, settings.policies.default)]
    return [
        _explained(settings, source, pattern, pattern, policy, redeliveries) for pattern, policy in entries
    ]


def explain_places(settings: Settings) -> list[tuple[str, str]]:
    """Return each pattern of the dead-letter map, and what happens to its messages after the last delivery."""
    return [
        (pattern, _end(settings, Destination.parse(pattern), strategy))
        for pattern, strategy in settings.dead_letters.entries
    ]


def _explained(
    settings: Settings,
    source: str,
    destination: str | None,
    pattern: str | None,
    policy: Policy,
    redeliveries: int | None,
) -> Explanation:
    maximum = policy.maximum_redeliveries
    wanted = redeliveries if redeliveries is not None else (UNLIMITED_ROWS if maximum < 0 else ROWS)
    limit, _ = elapsed_of(policy)
    most = None if maximum < 0 else maximum
    if limit is not None:
        most = _most_within(limit, policy, most)
    count = wanted if most is None else min(wanted, most)
    notes = [f"{name}={value} is an option of the Java client: {_here(name)}"
             for name, value in settings.inapplicable.items()]  # fmt: skip
    if redeliveries is not None and count < redeliveries:
        notes.append(f"the policy allows {most} redeliveries: {redeliveries} never happen")
    return Explanation(
        source=source,
        destination=destination,
        pattern=pattern,
        policy=policy,
        options=_options(policy),
        defaults=_options(type(policy)()) if isinstance(policy, RedeliveryPolicy) else {},
        rows=_rows(policy, count),
        then=_then(settings, None if destination is None else Destination.parse(destination)),
        notes=(*notes, *_idle_options(policy), *_too_long_to_hold(settings, policy)),
        most=most,
        limit_ms=limit,
        credit=credit_words(settings, None if destination is None else Destination.parse(destination)),
    )


def _most_within(limit_ms: int, policy: Policy, most: int | None) -> int | None:
    """Return how many redeliveries can begin within a limit of time, if handlers take no time. `most`: the maximum."""
    scanned = SCANNED if most is None else min(most, SCANNED)
    late = next((row.redelivery for row in _rows(policy, scanned) if row.elapsed_low > limit_ms), None)
    return most if late is None else late - 1


def _too_long_to_hold(settings: Settings, policy: Policy) -> list[str]:
    """Return a note if a consumer would be refused because its broker limits how long a message is unsettled."""
    worst, most = policy.worst_case_ms(), CONSUMER_TIMEOUT * HOLDABLE
    here = settings.broker in ("auto", "rabbitmq") and any(
        one.scheme.startswith(("stomp", "amqp")) for one in settings.endpoints
    )
    if not here or settings.scheduler == "broker" or (worst is not None and worst <= most * 1000):
        return []
    lasts = "without end" if worst is None else f"for {worst / 1000:.0f} s"
    return [
        (
            f"a consumer on RabbitMQ is refused: this policy holds a message {lasts}, and {most:.0f} s may be delays "
            "there; with redelivery.scheduler=broker RabbitMQ holds it itself"
        )
    ]


class _Extreme:
    """Source of jitter that is always extreme: first the side (`coin`), then the whole share."""

    def __init__(self, coin: float) -> None:
        self._coin = coin
        self._tossed = False

    def random(self) -> float:
        self._tossed = not self._tossed
        return self._coin if self._tossed else 1.0


_LEAST, _MOST = _Extreme(0.9), _Extreme(0.0)


def _rows(policy: Policy, count: int) -> tuple[Row, ...]:
    bounds = _compounded(policy, count) if isinstance(policy, RedeliveryPolicy) else _apart(policy, count)
    rows: list[Row] = []
    elapsed = low_sum = high_sum = 0
    for number, (delay, (low, high)) in enumerate(zip(policy.delays_ms(count), bounds, strict=True), 1):
        elapsed, low_sum, high_sum = elapsed + delay, low_sum + low, high_sum + high
        rows.append(Row(number, delay, low, high, elapsed, low_sum, high_sum))
    return tuple(rows)


def _compounded(policy: RedeliveryPolicy, count: int) -> list[tuple[int, int]]:
    """Return the bounds of each delay, where each is computed from the one before it with its jitter."""
    after, bounds = policy.next_redelivery_delay_ms, list[tuple[int, int]]()
    low = high = policy.delays_ms(1)[0]
    for _ in range(count):
        bounds.append((low, high))
        least, most = after(max(low, 1), _LEAST), after(high, _MOST)
        # A step from 0 starts again with the plain delay, which can be far from the bounds.
        if low <= 0:
            least, most = min(least, after(0, _LEAST)), max(most, after(0, _MOST))
        low, high = least, most
    return bounds


def _apart(policy: Policy, count: int) -> list[tuple[int, int]]:
    return list(zip(policy.delays_ms(count, _LEAST), policy.delays_ms(count, _MOST), strict=True))


def _options(policy: Policy) -> dict[str, str]:
    to_options = getattr(policy, "to_options", None)
    return dict(to_options()) if to_options is not None else {"policy": repr(policy)}


def _here(name: str) -> str:
    return f"here {COUNTERPARTS[name]}" if name in COUNTERPARTS else "not applicable here"


def _then(settings: Settings, destination: Destination | None) -> str:
    """Return what happens to a message that has used up its redeliveries."""
    return _end(settings, destination, _strategy(settings, destination))


def _end(settings: Settings, destination: Destination | None, strategy: DeadLetterStrategy) -> str:
    named = strategy.destination
    if _dropped(settings, destination, strategy):
        return "it is accepted and dropped"
    match strategy.dead_letter:
        case _ if strategy.individual:
            return f"a copy goes to {_individual(strategy, destination)}"
        case "ack":
            return "the broker is told that it is poison, and decides"
        case "forward":
            return f"a copy goes to {named or 'the dead-letter queue'}"
        case _ if named is not None:
            return f"a copy goes to {named}"
        case _:
            # An adapter of another project has a queue of its own.
            ours = settings.scheme in (*SCHEMES, *JAVA_PORTS)
            own = (
                "the dead-letter queue (ActiveMQ.DLQ on ActiveMQ Classic; on Artemis by its dead-letter-address, if it "
                "has one; else DLQ)"
            )
            return f"it goes to {own if ours else 'the dead-letter queue of the broker'}"


def _strategy(settings: Settings, destination: Destination | None) -> DeadLetterStrategy:
    strategies = settings.dead_letters
    return strategies.default if destination is None else strategies.strategy_for(destination)


def _individual(strategy: DeadLetterStrategy, destination: Destination | None) -> str:
    """Return the dead-letter destination of a destination, by name if it does not depend on the broker."""
    if destination is not None:
        prefix = strategy.topic_prefix if destination.is_topic else strategy.queue_prefix
        if prefix is not None:
            place = str(strategy.individual_place(destination, Capabilities(""), None))
            return f"{place}, by its own name" if is_pattern(destination) else place
    return "the dead-letter destination of its own destination"


def _dropped(settings: Settings, destination: Destination | None, strategy: DeadLetterStrategy) -> bool:
    """True if such a message is accepted and dropped. `destination` None: any that no pattern matches."""
    if strategy.keeps_nothing or not settings.send_exhausted:
        return True
    if destination is None:
        return not settings.fallback
    unserved = not settings.fallback and settings.policies.pattern_for(destination) is None
    return unserved or strategy.drops(destination)


def _idle_options(policy: Policy) -> list[str]:
    """Return a note for each option without effect, because of another option."""
    if not isinstance(policy, RedeliveryPolicy):
        return []
    notes: list[str] = []
    if policy.use_exponential_back_off and policy.back_off_multiplier <= 1:
        notes.append("useExponentialBackOff has no effect: backOffMultiplier is not above 1")
    if (
        policy.back_off_multiplier != RedeliveryPolicy().back_off_multiplier
        and not policy.use_exponential_back_off
    ):
        notes.append("backOffMultiplier has no effect: useExponentialBackOff is false")
    if policy.maximum_redelivery_delay is not None and not policy.use_exponential_back_off:
        notes.append("maximumRedeliveryDelay has no effect: it bounds exponential steps only")
    return notes
