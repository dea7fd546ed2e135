"""The arguments `breaker=` and `rate=`, which limit what is dispatched, checked before any I/O."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.core.breaker import Breaker
from redelivery.core.option_values import refuse, shown
from redelivery.core.rate import Rate
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = ["checked_breaker", "checked_rate", "connection_breaker"]


def checked_rate(rate: object, option: str) -> Rate | None:
    """Return a limit of rate that was given as one, or as a number a second. Raises ConfigurationError."""
    if rate is None or isinstance(rate, Rate):
        return rate
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < inf:
        raise refuse(option, rate, "a redelivery.Rate, or a number of messages a second of more than 0")
    return Rate(rate)


def checked_breaker(options: Mapping[str, object], otherwise: Breaker | None) -> Breaker | None:
    """Return what `breaker=` says; `otherwise` where it is not given. Raises ConfigurationError."""
    given = options.get("breaker", otherwise)
    if given is not None and not isinstance(given, Breaker):
        hint = "; did you mean redelivery.Breaker()?" if given is Breaker else ""
        raise ConfigurationError(
            f"breaker= must be a redelivery.Breaker, or None for no breaker, not {shown(given)}{hint}",
            option="breaker",
        )
    return given


def connection_breaker(options: Mapping[str, object], settings: Settings) -> Breaker | None:
    """Return the breaker of a connection: the URI's, or `breaker=` instead. Raises ConfigurationError."""
    if "breaker" in options and settings.has_breaker:
        raise ConfigurationError(
            "breaker= and redelivery.breaker options in the URI: give one of them", option="breaker"
        )
    return checked_breaker(options, settings.breaker)
