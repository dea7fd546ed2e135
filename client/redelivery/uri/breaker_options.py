"""Reader of a connection URI's breaker options; contradictions are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from redelivery.core.breaker import Breaker
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from redelivery.uri.options_reader import OptionsReader

__all__ = ["BreakerFields", "breaker"]

SWITCH = "redelivery.breaker"


class BreakerFields(TypedDict):
    """Fields of `Settings` for the breaker."""

    breaker: Breaker | None
    has_breaker: bool


def breaker(read: OptionsReader) -> BreakerFields:
    """Return the breaker of consumers; None if it is switched off."""
    switch = read.choice(SWITCH, "on")
    given = [name for name in read.given if name.startswith(SWITCH)]
    values = [name for name in given if name != SWITCH]
    if switch == "off" and values:
        raise ConfigurationError(f"{SWITCH}=off contradicts {values[0]}", option=values[0])
    counted = f"{SWITCH}Failures"
    if switch == "named" and counted in values:
        raise ConfigurationError(
            f"{SWITCH}=named contradicts {counted}: with it, only exceptions of Classifier().trip() open the "
            "breaker; remove one of the two",
            option=counted,
        )
    return {"breaker": None if switch == "off" else _read(read, switch), "has_breaker": bool(given)}


def _read(read: OptionsReader, switch: str) -> Breaker:
    longest = read.seconds(f"{SWITCH}MaximumOpen", 43200.0)
    failures = read.whole(f"{SWITCH}Failures", Breaker().failures)
    made = Breaker(failures=0 if switch == "named" else failures)
    return replace(made, maximum_open=longest or None)
