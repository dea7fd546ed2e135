"""Files that run for a message that fails once, on the embedded broker: `python -m tests.house.walk`.

Calls of the library are counted from the broker's `send` until the message is accepted. All of them run on one thread.
A move is a call in another file than the call before it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import redelivery
from redelivery.testing import ManualClock, MemoryBroker

ROOT = Path(__file__).parents[2]


class Walk:
    """Files in the order of their first call, and the number of moves between them."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.moves = 0
        self._last: str | None = None

    def enter(self, frame: Any, event: str, _: object) -> None:
        """Count a call, as `sys.setprofile` reports it."""
        name: str = frame.f_code.co_filename
        if event != "call" or not name.startswith((f"{ROOT}/client", f"{ROOT}/adapters")):
            return
        name = str(Path(name).relative_to(ROOT))
        if self._last is not None and self._last != name:
            self.moves += 1
        self._last = name
        self.files[name] = self.files.get(name, 0) + 1


def walk() -> Walk:
    """Follow one message that fails once."""
    found = Walk()
    clock = ManualClock(auto_advance=True)
    with MemoryBroker(clock=clock) as broker, redelivery.connect(broker.uri, clock=clock) as connection:
        consumer = connection.consumer("orders")
        sys.setprofile(found.enter)
        try:
            broker.send("orders", "a")
            for succeeds in (False, True):
                message = consumer.receive(5)
                assert message is not None
                with message:
                    if not succeeds:
                        raise ValueError("no stock")
        finally:
            sys.setprofile(None)
    return found


if __name__ == "__main__":
    result = walk()
    for file, calls in result.files.items():
        print(f"{calls:5}  {file}")
    print(f"{len(result.files)} files, {result.moves} moves, {sum(result.files.values())} calls")
