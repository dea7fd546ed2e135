"""Dead letters of a broker that several processes use at once: none takes the letters of another one's test.

A process that looks at the queue takes all letters off it, and writes them into a file of the run, from which each
process reads those that have come since its test began. Selectors would not do: RabbitMQ has none, and Classic finds no
message behind 200 of other tests.
"""

from __future__ import annotations

import fcntl
import pickle
from typing import TYPE_CHECKING

from integration.run_folder import run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from integration.brokers import Broker
    from redelivery.testing.conformance import Found

__all__ = ["Letters"]


class Letters:
    """Letters on the dead-letter queue of a broker, from now on."""

    def __init__(self, broker: Broker) -> None:
        """Begin behind the letters of earlier tests."""
        self._file = run_folder() / f"letters-{broker.ports['amqp']}-{getattr(broker, 'virtual_host', '')}"
        with self._file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another process may have written half a letter
            self._read = file.seek(0, 2)

    def take(self, drain: Callable[[], Sequence[Found]]) -> list[Found]:
        """Take all letters off the queue; return those of all tests that have come since the last look of this one."""
        found: list[Found] = []
        with self._file.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0, 2)
            for letter in drain():
                pickle.dump(letter, file)
            file.flush()
            file.seek(self._read)
            while file.peek(1):
                found.append(pickle.load(file))
            self._read = file.tell()
        return found
