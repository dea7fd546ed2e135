"""Profiles of each broker over each protocol, as far as the identity of messages matters; and sets of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redelivery.core.capabilities import Capabilities

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

__all__ = ["MESSAGES", "PROFILES", "UNIQUE", "Message", "Profile", "messages"]


@dataclass(frozen=True)
class Profile:
    """Profile of one pair.

    `strong`: its deliveries have an id that the broker made. `marks`: which redeliveries after a loss have the flag;
    `any`: the adversary chooses. `poison`: `native`, `atomic` (copy and acceptance in one transaction) or `confirmed`
    (first the copy). `forgets`: a killed broker may forget its last work; `remarks`: it flags what it then redelivers.
    `front`: redeliveries go before messages that were never sent. `delays`: how safe a delayed copy is sent; None: not
    supported. `once`: a second copy with the same name is dropped, and confirmed. `quorum`: a quorum queue of RabbitMQ
    4.3.
    """

    name: str
    strong: bool
    marks: Literal["all", "any"]
    poison: Literal["native", "atomic", "confirmed"]
    counts: bool = False
    release: bool = False
    flow: bool = False
    forgets: bool = False
    front: bool = True
    remarks: bool = False
    delays: Literal["none", "atomic", "confirmed", "native"] = "confirmed"
    once: bool = False
    quorum: bool = False

    def capabilities(self, *, grows: bool = False) -> Capabilities:
        """Return its capabilities for the engine. `grows`: a window without flow can be widened."""
        return Capabilities(
            broker=self.name,
            poison_persistent=self.poison == "native",
            forward="atomic" if self.poison == "atomic" else "confirmed",
            release=self.release,
            counts=self.counts,
            flow=self.flow,
            grows=grows and not self.flow,
            marks=self.marks == "all",
            reschedule=self.delays,
            drops_second_copy=self.once,
        )


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("classic-stomp", False, "all", "confirmed", forgets=True, front=False),
        Profile("artemis-stomp", True, "any", "confirmed", forgets=True, once=True),
        Profile("rabbitmq-stomp", False, "all", "confirmed", release=True, forgets=True, remarks=True),
        # As with deadLetter=ack: no other broker here has such an acknowledgement and a flow.
        Profile("classic-amqp", False, "all", "native", True, True, True, forgets=True, front=False),
        Profile("artemis-amqp", False, "any", "atomic", True, True, True, delays="atomic"),
        Profile("brokerj-amqp", False, "all", "atomic", True, True, True, delays="atomic"),
        Profile(
            "rabbitmq-amqp",
            False,
            "all",
            "confirmed",
            False,
            True,
            True,
            forgets=True,
            remarks=True,
            delays="none",
        ),
        Profile(
            "rabbitmq4-quorum",
            False,
            "all",
            "confirmed",
            True,
            True,
            True,
            forgets=True,
            remarks=True,
            delays="native",
            quorum=True,
        ),
        Profile("memory", True, "all", "native", True, True, delays="atomic"),
    )
}


class Message:
    """One message at the broker. `key`: what its producer set; `body` stands for every byte that it sent."""

    def __init__(self, name: str, key: str | None, body: str, created: int | None = None) -> None:
        self.name = name
        self.key = key
        self.body = body
        self.created = created
        self.group: str | None = None
        self.expires: float | None = None
        # True if its body does not arrive whole, and it cannot be copied.
        self.torn = False
        # Properties of a delayed copy.
        self.headers: Mapping[str, Any] = {}
        # Notes that a quorum queue keeps with it.
        self.notes: Mapping[str, Any] = {}
        # Name of its copy, until a handler has it again; of messages that cannot be confused with others.
        self.copied_as: str | None = None
        # Shared by messages that may change places: its own if the broker's ids distinguish all of them.
        self.kin: Hashable = name
        # The broker's knowledge of it.
        self.sent = -1
        self.count = 0
        self.mark = False

    @property
    def like(self) -> tuple[object, ...]:
        """Properties shared by messages that cannot be distinguished by their content."""
        return self.key, self.body, self.created, self.expires, *self.headers.items()


# By name: (producer's id, body, creation time) of each. Messages that share a letter share the id; a prime has another
# body, a star no other one; a small t has a creation time, with a star the same one: it is one message sent twice.
MESSAGES: dict[str, list[tuple[str, str | None, str, int | None]]] = {
    "AA'": [("A", "x", "created", None), ("A'", "x", "cancelled", None)],
    "AA'B": [("A", "x", "created", None), ("A'", "x", "cancelled", None), ("B", "y", "other", None)],
    "AA'A''": [("A", "x", "created", None), ("A'", "x", "cancelled", None), ("A''", "x", "refunded", None)],
    "AA*": [("A", "x", "tick", None), ("A*", "x", "tick", None)],
    "AA*A'": [("A", "x", "tick", None), ("A*", "x", "tick", None), ("A'", "x", "tock", None)],
    "AtA't": [("At", "x", "created", 1), ("A't", "x", "cancelled", 1)],
    "AtA'tB": [("At", "x", "created", 1), ("A't", "x", "cancelled", 2), ("B", "y", "other", 3)],
    "AtAu": [("At", "x", "tick", 1), ("Au", "x", "tick", 2)],
    "AtAt*": [("At", "x", "tick", 1), ("At*", "x", "tick", 1)],
    "NN*": [("N", None, "n", None), ("N*", None, "n", None)],
    "AB": [("A", "x", "one", None), ("B", "y", "two", None)],
    "ABC": [("A", "x", "one", 1), ("B", "y", "two", 2), ("C", None, "three", None)],
    "AA*A'BN": [
        ("A", "x", "tick", None), ("A*", "x", "tick", None), ("A'", "x", "tock", None), ("B", "y", "b", 4),
        ("N", None, "n", None),
    ],
}  # fmt: skip
# Sets in which no two messages have one id.
UNIQUE = ("AB", "ABC")


def messages(
    name: str,
    *,
    ordering: str = "non_blocking",
    expires: float | None = None,
    torn: bool = False,
    distinct: bool = False,
    by_bytes: bool = False,
) -> list[Message]:
    """Return a set of messages: in groups, expiring, or not arriving whole, as requested.

    `distinct`: the broker distinguishes all. A message without id cannot be taken for another one, except `by_bytes`.
    """
    found = [Message(*row) for row in MESSAGES[name]]
    for number, message in enumerate(found):
        if ordering == "per_group":
            message.group = "g" if number % 3 != 2 else None
        message.torn = torn and message.body == found[0].body
        if expires is not None and message.body == found[0].body:
            message.expires = expires
        alone = distinct or (message.key is None and not by_bytes)
        message.kin = message.name if alone else message.like
    return found
