"""Policy with an explicit list of delays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redelivery.core import option_values
from redelivery.core.policy import time_limit
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from redelivery.core.policy.random_source import RandomSource

__all__ = ["DelayListPolicy"]


@dataclass(frozen=True, slots=True, init=False)
class DelayListPolicy:
    """Policy with a list of delays, used in order; a failure after the last one poisons the message."""

    delays: tuple[int, ...]
    """Delays in milliseconds."""
    maximum_elapsed: float | None
    """Seconds after the first failure, after which no redelivery begins; None: no limit."""
    _elapsed_ms: int | None = field(init=False, repr=False)

    def __init__(
        self, delays: Iterable[float | timedelta], *, maximum_elapsed: float | timedelta | None = None
    ) -> None:
        """Build a policy.

        Args:
            delays: Delays in order: seconds or `timedelta`, rounded to milliseconds. Empty: one delivery only.
            maximum_elapsed: Seconds or `timedelta` after the first failure, after which no redelivery begins;
                None: no limit.

        Raises:
            ConfigurationError: A delay or the limit is no duration.
        """
        if isinstance(delays, str | bytes) or not hasattr(delays, "__iter__"):
            raise ConfigurationError(
                f"delays must be a list of durations, not {option_values.shown(delays)}", option="delays"
            )
        checked = tuple(option_values.duration_ms(delay, f"delays[{i}]") for i, delay in enumerate(delays))
        self._put(checked, time_limit.checked_ms(maximum_elapsed, "maximum_elapsed"))

    def _put(self, delays: tuple[int, ...], elapsed_ms: int | None) -> None:
        put = object.__setattr__
        put(self, "delays", delays)
        put(self, "_elapsed_ms", elapsed_ms)
        put(self, "maximum_elapsed", None if elapsed_ms is None else elapsed_ms / 1000)

    @classmethod
    def from_ms(cls, delays: Iterable[object], elapsed_ms: int | None = None) -> DelayListPolicy:
        """Return a policy with `delays` in milliseconds, as text or numbers; `elapsed_ms`: the limit of time.

        Raises ConfigurationError as the constructor does.
        """
        made = cls(())
        checked = tuple(option_values.option_ms(delay, f"delays[{i}]") for i, delay in enumerate(delays))
        made._put(checked, elapsed_ms)
        return made

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries before a message is poison: the length of the list."""
        return len(self.delays)

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:  # noqa: ARG002  no jitter
        """Return the delay in milliseconds before the `redelivery`-th redelivery (the first is 1).

        Args:
            redelivery: Number of the redelivery, from 1. Above the length of the list, the last delay is returned;
                for an empty list 0.
            random: Not used: a list has no jitter.

        Raises:
            ValueError: `redelivery` is below 1.
        """
        if redelivery < 1:
            raise ValueError(f"redelivery must be 1 or more, not {redelivery}")
        return self.delays[min(redelivery, len(self.delays)) - 1] if self.delays else 0

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before redelivery 1 to `n`; a list has no jitter."""
        return [self.redelivery_delay_ms(k, random) for k in range(1, n + 1)]

    def worst_case_ms(self) -> int:
        """Return the sum of all delays in milliseconds, or the limit of time if that is shorter."""
        total = sum(self.delays)
        return total if self._elapsed_ms is None else min(total, self._elapsed_ms)

    def to_options(self) -> dict[str, str]:
        """Return the list, and the limit of time if there is one, in milliseconds. ActiveMQ has neither option."""
        options = {"maximumRedeliveries": str(len(self.delays)), "delays": ",".join(map(str, self.delays))}
        return options if self._elapsed_ms is None else options | {"maximumElapsed": str(self._elapsed_ms)}
