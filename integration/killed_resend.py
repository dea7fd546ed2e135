"""A resending of an export that kills itself (SIGKILL) when the broker has confirmed its `TURN`-th message.

`python -m integration.killed_resend POINT TURN dlq resend …`
It dies at one of these points:
`confirmed`: before the progress of that message is written;
`written`: right after it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import TYPE_CHECKING, Literal

from redelivery.cli.app import run
from redelivery.dlq.export import SentLines

if TYPE_CHECKING:
    from redelivery.dlq.export import ExportedLine

__all__ = ["Point"]

Point = Literal["confirmed", "written"]


def main(point: str, turn: str, *command: str) -> int:
    """Run the command, and die in it."""
    add, turns = SentLines.add, itertools.count(1)

    def dying(self: SentLines, line: ExportedLine, destination: str) -> None:
        last = next(turns) == int(turn)
        if last and point == "confirmed":
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, line, destination)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    SentLines.add = dying  # type: ignore[method-assign]
    return run(command)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
