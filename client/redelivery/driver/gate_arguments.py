"""Checks of the arguments `breaker=` and `rate=`, which limit dispatching; before any I/O."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from redelivery.core.breaker import Breaker
from redelivery.core.option_values import refuse, shown
from redelivery.core.rate import Rate
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = ["checked_breaker", "checked_rate", "connection_breaker", "session_breaker"]


class HasMode(Protocol):
    """Interface of a session that has a mode."""

    @property
    def mode(self) -> str:
        """Acknowledgement mode of the session."""
        ...


def checked_rate(rate: object, option: str) -> Rate | None:
    """Return a rate limit, given as a `Rate` or as messages a second. Raises ConfigurationError."""
    if rate is None or isinstance(rate, Rate):
        return rate
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < inf:
        raise refuse(option, rate, "a redelivery.Rate, or a number of messages a second of more than 0")
    return Rate(rate)


def checked_breaker(options: Mapping[str, object], otherwise: Breaker | None) -> Breaker | None:
    """Return the breaker of `breaker=`; `otherwise` if it is not given. Raises ConfigurationError."""
    given = options.get("breaker", otherwise)
    if given is not None and not isinstance(given, Breaker):
        hint = "; did you mean redelivery.Breaker()?" if given is Breaker else ""
        raise ConfigurationError(
            f"breaker= must be a redelivery.Breaker, or None for no breaker, not {shown(given)}{hint}",
            option="breaker",
        )
    return given


def connection_breaker(options: Mapping[str, object], settings: Settings) -> Breaker | None:
    """Return the breaker of a connection: that of `breaker=`, or of the URI. Raises ConfigurationError."""
    if "breaker" in options and settings.has_breaker:
        raise ConfigurationError(
            "breaker= and redelivery.breaker options in the URI: give one of them", option="breaker"
        )
    return checked_breaker(options, settings.breaker)


def session_breaker(
    options: Mapping[str, object], session: HasMode | None, otherwise: Breaker | None
) -> Breaker | None:
    """Return the breaker of a consumer: None in a session in which failures are not charged one by one.

    Raises:
        ConfigurationError: `breaker=` cannot work in this session, or is not a `Breaker`.
    """
    mode = None if session is None else session.mode
    if mode not in ("client", "transacted"):
        return checked_breaker(options, otherwise)
    if options.get("breaker") is not None:
        raise ConfigurationError(
            f"breaker=: in a session of mode {mode!r} the application settles by itself; use mode='individual'",
            option="breaker",
        )
    return None
