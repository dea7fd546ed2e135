"""Names that a producer makes up for where its message was sent."""

from __future__ import annotations

from redelivery.core.dead_lettering.origin import LONGEST
from redelivery.core.destination import Destination
from redelivery.errors import ConfigurationError

__all__ = ["makes_sense"]


def makes_sense(destination: str) -> bool:
    """True if anything can be made of where a message says that it was sent.

    To a topic or a pattern it is sent under a name of its producer's choice, as `a.b,` or `a.,topic://`, or a megabyte,
    which would be parsed for seconds.
    """
    if len(destination) > LONGEST:
        return False
    try:
        Destination.parse(destination)
    except ConfigurationError:
        return False
    return True
