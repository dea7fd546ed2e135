"""Wildcards in the names of queues, and brokers to which they mean no queues.

On Artemis a consumer with a wildcard has a queue of its own. The broker puts a copy of each later message into it, and
the message itself stays in the queue that it was sent to (docs/measured/artemis-stomp.md, "Wildcards").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from redelivery.core.policy.artemis_wildcards import ARTEMIS
from redelivery.core.policy.classic_wildcards import is_pattern
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.destination import Destination

__all__ = ["Wildcards", "names_queues", "refuse_wildcard"]

Wildcards = Literal["queues", "address"]
"""Meaning of a wildcard in a queue's name: the queues with such names, or what the broker itself makes of it."""

OPTION = "redelivery.wildcards"


def names_queues(destination: Destination, capabilities: Capabilities) -> bool:
    """Return True if the name of a queue has a wildcard.

    Raises:
        ConfigurationError: It is the broker's own, whose meaning no check here knows.
    """
    if destination.kind not in ("queue", "temp-queue"):
        return False
    if capabilities.copies_by_wildcard and ARTEMIS.any_words in destination.name.split("."):
        raise ConfigurationError(
            f"{destination}: {ARTEMIS.any_words} is a wildcard of {capabilities.broker}: write > at its end; the queue "
            f"that the broker makes for it is native://{destination.name}",
            option="destination",
        )
    return is_pattern(destination)


def refuse_wildcard(
    destination: Destination, capabilities: Capabilities, wildcards: Wildcards | None = None
) -> None:
    """Refuse a wildcard that this broker cannot honour.

    `wildcards`: the user's choice for a consumer; None: somebody looks at the queues, and takes nothing.

    Raises:
        ConfigurationError: The broker has no wildcards for queues, or gives them another meaning.
    """
    if not names_queues(destination, capabilities):
        return
    broker = capabilities.broker
    if not capabilities.queue_wildcards:
        raise ConfigurationError(
            f"{destination}: {broker} has no wildcards for queues; name each queue", option="destination"
        )
    if not capabilities.copies_by_wildcard:
        if wildcards == "address":
            raise ConfigurationError(
                f"{OPTION}=address: to {broker} the wildcard in {destination} means the queues themselves, and nothing "
                "else; remove the option",
                option=OPTION,
            )
        return
    if wildcards == "address":
        return
    cure = "" if wildcards is None else f", or add {OPTION}=address to get those copies"
    raise ConfigurationError(
        f"{destination}: {broker} would make a queue for this wildcard, with a copy of each later message and none of "
        f"the stored ones, and keep the messages in their own queues; name each queue{cure}",
        option="destination" if wildcards is None else OPTION,
    )
