"""Broker whose answers a test sets, and a reader of the doctor's lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redelivery import AdapterError, TransportError
from redelivery.adapter import Agreed, Opening, Sent, Sink, Subscribed
from redelivery.cli.checks.network import Handshake
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Send, Subscribe
from redelivery.core.delivery import Delivery
from redelivery.core.events import Arrived, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import AdapterCommand

STOMP = Capabilities("activemq", version="6.1.7", grows=True, dead_letter_destination="queue://DLQ")
AMQP = Capabilities("artemis", version="2.40.0", flow=True, dead_letter_destination="queue://DLQ")
RABBIT = Capabilities("rabbitmq", version="3.10.8", selectors=False, max_hold=1800.0)
REFUSED = AdapterError("no permission")


URI = "stomp://bob:hunter2@b1?redelivery.connectTimeout=100&jms.redeliveryPolicy.redeliveryDelay=30000"


def lines(out: str) -> list[tuple[str, str, str]]:
    """Return level, subject and text of each line but the last."""
    found = [line.split(None, 1) for line in out.splitlines()[:-1]]
    known = ("dead letters", "log-in")
    split = []
    for level, rest in found:
        subject = next((one for one in known if rest.startswith(one)), rest.split(None, 1)[0])
        split.append((level, subject, rest[len(subject) :].strip()))
    return split


def levels(out: str) -> dict[str, str]:
    return {subject: level for level, subject, _ in lines(out)}


@dataclass
class Script:
    """Answers of a broker: `refuses` and `queues` (capabilities) by destination, `opening` errors in turn."""

    able: Capabilities = STOMP
    refuses: dict[str | None, Any] = field(default_factory=dict[str | None, Any])
    late: dict[str | None, Any] = field(default_factory=dict[str | None, Any])
    opening: list[Exception | None] = field(default_factory=list[Exception | None])
    shaken: Handshake = field(default_factory=lambda: Handshake("TLSv1.3"))
    answering: str = ""
    queues: dict[str, Capabilities] = field(default_factory=dict[str, Capabilities])
    loses: bool = False
    silent: bool = False
    delivers: bool = True
    commands: list[Any] = field(default_factory=list[Any])
    opened: int = 0
    closed: int = 0


class Echo(Delivery):
    """Message that a probe gets back."""

    @property
    def destination(self) -> str:
        return "queue://x"


class Scripted:
    """Adapter that answers by a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._sink: Sink
        self._epoch = 0

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        self._sink, self._epoch = sink, opening.epoch
        self._script.opened += 1
        error = self._script.opening.pop(0) if self._script.opening else None
        if error is not None:
            raise error
        return self._script.able

    def agreed(self) -> Agreed | None:
        return Agreed("TEST 1", 10.0, 10.0)

    def execute(self, commands: Sequence[AdapterCommand]) -> None:
        script = self._script
        for command in commands:
            script.commands.append(command)
            if script.silent:
                continue
            if isinstance(command, Subscribe):
                places = (*command.dead_letters, command.destination, *["own place"] * command.own_place)
                error = next((script.refuses[one] for one in places if one in script.refuses), None)
                self._sink(Subscribed(command.consumer, error, script.queues.get(command.destination)))
                for place in command.dead_letters:
                    if (late := script.late.get(place)) is not None:
                        self._sink(Subscribed(command.consumer, late))
                if error is not None and script.loses:
                    self._sink(ConnectionLost(self._epoch, TransportError("closed over it")))
            elif isinstance(command, Send):
                if script.delivers:
                    # It can arrive before the confirmation.
                    self._sink(Arrived(4, [Echo(4, self._epoch, b"")]))
                self._sink(Sent(command.token, script.refuses.get("send")))

    def close(self, timeout: float) -> bool:
        self._script.closed += 1
        return True
