"""A consumer that kills itself (SIGKILL) while it dead-letters a message.

`python -m integration.killed_client LOG POINT TURN URI QUEUE`
At the `TURN`-th poison message (with `anywhere`: attempt of the handler) it dies at one of these points:
`between`: the broker has the dead letter, and no byte of the original's settlement has been written;
`settled`: the settlement, or the commit with it, has been written, and no answer to it has been read;
`anywhere`: up to 30 ms later, at any point.

Every handled message is a line of LOG; one of the last lines is `killed POINT`.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import redelivery
from redelivery.core.commands import Accept, Forward
from redelivery.core.events import Confirmed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.adapter import AdapterEvent, Opening, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand

Point = Literal["between", "settled", "anywhere"]
POINTS: tuple[Point, ...] = get_args(Point)
MAXIMUM = 1
POLICY = redelivery.RedeliveryPolicy(
    maximum_redeliveries=MAXIMUM, initial_redelivery_delay=0.02, redelivery_delay=0.02
)
ANYWHERE = 0.03  # seconds


class Log:
    """A file with only whole lines, even if its writer is killed."""

    def __init__(self, path: str) -> None:
        """Append to it."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def line(self, text: str) -> None:
        """Write one line, at once."""
        os.write(self._file, f"{text}\n".encode())


class Death:
    """The end of this process at the `turn`-th call of `due`."""

    def __init__(self, log: Log, point: Point, turn: int) -> None:
        """Start to count."""
        self.point: Point = point
        self._log = log
        self._turns = itertools.count(1)
        self._turn = turn
        self._lock = threading.Lock()

    def due(self) -> bool:
        """True at the `turn`-th call."""
        with self._lock:
            return next(self._turns) == self._turn

    def come(self) -> NoReturn:
        """Kill this process."""
        self._log.line(f"killed {self.point}")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process has survived SIGKILL")


def replaced(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method by the result of `make` for it."""
    setattr(owner, name, make(getattr(owner, name)))


def die_when_confirmed(death: Death, adapter: type) -> None:
    """Set the points for a broker where the copy is confirmed first, and the original accepted after that."""
    doomed: list[object] = []
    copied: list[object] = []  # deliveries whose copies are sent without a transaction
    able: list[Capabilities] = []

    def opened(plain: Any) -> Any:
        def connect(self: Any, opening: Opening, sink: Sink) -> Capabilities:
            def heard(event: AdapterEvent) -> None:
                if (
                    isinstance(event, Confirmed)
                    and event.error is None
                    and event.delivery in copied
                    and death.due()
                ):
                    if death.point == "between":
                        death.come()
                    doomed.append(event.delivery)
                sink(event)

            capabilities: Capabilities = plain(self, opening, heard)
            able[:] = [capabilities]
            return capabilities

        return connect

    def execute(plain: Any) -> Any:
        def written(self: Any, commands: Sequence[AdapterCommand]) -> None:
            copied.extend(
                command.delivery
                for command in commands
                if isinstance(command, Forward) and not command.atomic(able[0])
            )
            plain(self, commands)
            for command in commands:
                if isinstance(command, Accept) and any(one in doomed for one in command.deliveries):
                    death.come()

        return written

    replaced(adapter, "open", opened)
    replaced(adapter, "execute", execute)


def die_in_amqp_transaction(death: Death) -> None:
    """Set the points for AMQP transactions: declare, send the copy, get its outcome; then accept and discharge."""
    from redelivery_amqp.io_thread import IoThread  # noqa: PLC0415
    from redelivery_amqp.sender import Transfer  # noqa: PLC0415

    doomed: list[Transfer] = []

    def accept(plain: Any) -> Any:
        def heard(self: Transfer) -> None:
            doom = death.due()
            if doom and death.point == "between":
                death.come()
            plain(self)
            if doom:
                doomed.append(self)

        return heard

    def flush(plain: Any) -> Any:
        def written(self: IoThread) -> None:
            plain(self)
            if doomed:
                death.come()

        return written

    replaced(Transfer, "_accept", accept)
    replaced(IoThread, "flush", flush)


def arm(death: Death, scheme: str) -> None:
    """Set the points of death; the broker's way of taking a copy decides which of them is reached."""
    if death.point == "anywhere":
        return
    if scheme == "stomp":
        from redelivery_stomp import StompAdapter  # noqa: PLC0415 - what a test of one protocol needs

        die_when_confirmed(death, StompAdapter)
    else:
        from redelivery_amqp import AmqpAdapter  # noqa: PLC0415

        die_when_confirmed(death, AmqpAdapter)
        die_in_amqp_transaction(death)


def main(log_path: str, point: Point, turn: str, uri: str, queue: str) -> None:
    """Consume until the process kills itself."""
    log = Log(log_path)
    death = Death(log, point, int(turn))
    dice = random.Random(os.getpid())

    def handle(message: redelivery.Message) -> None:
        if point == "anywhere" and death.due():
            threading.Timer(dice.random() * ANYWHERE, death.come).start()
        if message.text.startswith("bad"):
            raise ValueError(message.text)
        log.line(message.text)

    policies = redelivery.RedeliveryPolicyMap(default=POLICY)
    arm(death, uri.partition("://")[0])
    with redelivery.connect(uri, policies=policies) as connection:
        connection.listen(queue, handle, workers=4)
        connection.run()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    assert arguments[1] in POINTS
    main(arguments[0], arguments[1], *arguments[2:])
