"""What a task of a batch is to take from the broker itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause

if TYPE_CHECKING:
    from redelivery_spark.options.stream_options import SourceOptions

__all__ = ["NOT_WHOLE", "Share"]

NOT_WHOLE = Cause.of("its body did not arrive whole, and executors keep no originals")


@dataclass(frozen=True, slots=True)
class Share:
    """At most `most` messages for part `part` of batch `number`, of `most_bytes` together, but for the last one's.

    `doubtful`: batches of whose segments the broker may send messages again.

    Picklable, and holds nothing secret. Credentials are read where the connection is made.
    """

    options: SourceOptions
    log: str
    number: int
    part: int
    most: int
    most_bytes: int
    doubtful: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What its rows without an id are called by."""
        return f"{self.log}/{self.number}.{self.part}"
