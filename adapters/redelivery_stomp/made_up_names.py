"""Check of destination names that a producer may have made up."""

from __future__ import annotations

from redelivery.core.dead_lettering.origin import LONGEST
from redelivery.core.destination import Destination
from redelivery.errors import ConfigurationError

__all__ = ["makes_sense"]


def makes_sense(destination: str) -> bool:
    """True if the destination that a message names can be parsed.

    A producer to a topic or a pattern chooses the name, such as `a.b,` or `a.,topic://`, or one of a megabyte, which
    takes seconds to parse.
    """
    if len(destination) > LONGEST:
        return False
    try:
        Destination.parse(destination)
    except ConfigurationError:
        return False
    return True
