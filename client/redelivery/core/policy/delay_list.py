"""A policy that is an explicit list of delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core import option_values
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from redelivery.core.policy.random_source import RandomSource

__all__ = ["DelayListPolicy"]


@dataclass(frozen=True, slots=True, init=False)
class DelayListPolicy:
    """Wait for each delay of the list in turn; a failure after the last one poisons the message."""

    delays: tuple[int, ...]
    """The delays in milliseconds."""

    def __init__(self, delays: Iterable[float | timedelta]) -> None:
        """Take `delays` in seconds or `timedelta`, rounded to milliseconds; an empty list is one delivery.

        Raises ConfigurationError for a delay that makes no sense.
        """
        if isinstance(delays, str | bytes) or not hasattr(delays, "__iter__"):
            raise ConfigurationError(
                f"delays must be a list of durations, not {option_values.shown(delays)}", option="delays"
            )
        checked = tuple(option_values.duration_ms(delay, f"delays[{i}]") for i, delay in enumerate(delays))
        object.__setattr__(self, "delays", checked)

    @classmethod
    def from_ms(cls, delays: Iterable[int]) -> DelayListPolicy:
        """Return a policy with `delays` in whole milliseconds. Raises ConfigurationError as the constructor does."""
        made = cls(())
        checked = tuple(option_values.option_ms(delay, f"delays[{i}]") for i, delay in enumerate(delays))
        object.__setattr__(made, "delays", checked)
        return made

    @property
    def maximum_redeliveries(self) -> int:
        """Redeliveries before a message is poison: the length of the list."""
        return len(self.delays)

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> int:  # noqa: ARG002  no jitter
        """Return the delay in milliseconds before the `redelivery`-th redelivery (the first is 1).

        Past the end of the list it is the last delay; 0 for an empty list. Raises ValueError below 1.
        """
        if redelivery < 1:
            raise ValueError(f"redelivery must be 1 or more, not {redelivery}")
        return self.delays[min(redelivery, len(self.delays)) - 1] if self.delays else 0

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        """Return the delays in milliseconds before redelivery 1 to `n`; a list has no jitter."""
        return [self.redelivery_delay_ms(k, random) for k in range(1, n + 1)]

    def worst_case_ms(self) -> int:
        """Return the sum of all delays in milliseconds."""
        return sum(self.delays)

    def to_options(self) -> dict[str, str]:
        """Return the list in milliseconds. The reference has no option for it."""
        return {"maximumRedeliveries": str(len(self.delays)), "delays": ",".join(map(str, self.delays))}
