"""Reader of a connection URI's breaker options; contradictions are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypedDict, cast

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
    counted = [name for name in values if name in (f"{SWITCH}Failures", f"{SWITCH}Messages")]
    if switch == "named" and counted:
        raise ConfigurationError(
            f"{SWITCH}=named contradicts {counted[0]}: with it, only exceptions of Classifier().trip() open the "
            "breaker; remove one of the two",
            option=counted[0],
        )
    return {"breaker": None if switch == "off" else _read(read, switch), "has_breaker": bool(given)}


def _read(read: OptionsReader, switch: str) -> Breaker:
    plain = Breaker()
    longest = read.seconds(f"{SWITCH}MaximumOpen", 43200.0)
    made = Breaker(
        failures=0 if switch == "named" else read.whole(f"{SWITCH}Failures", plain.failures),
        messages=read.whole(f"{SWITCH}Messages", plain.messages),
        named=read.whole(f"{SWITCH}Named", plain.named),
        probe=read.seconds(f"{SWITCH}ProbeDelay", 1.0),
        maximum_probe=read.seconds(f"{SWITCH}MaximumProbeDelay", 10.0),
        ramp=read.whole(f"{SWITCH}Ramp", plain.ramp),
        reopen=read.whole(f"{SWITCH}Reopen", plain.reopen),
        at_maximum=cast("Literal['charge', 'stop']", read.choice(f"{SWITCH}AtMaximum", "charge")),
    )
    return replace(made, maximum_open=longest or None)
