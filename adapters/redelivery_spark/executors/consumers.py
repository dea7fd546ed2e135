"""The consumers of a worker process, which outlive tasks: a batch's messages come while the one before is processed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery_spark.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery_spark.executors.consuming import Share

__all__ = ["CONSUMERS", "IDLE", "Consumers"]

IDLE = 10.0
"""Seconds without a task until a consumer ends, and the broker gives to others what it holds. Spark ends idle workers
only after a minute."""


class Consumers:
    """Consumers that no task uses now, each for one log. Thread-safe."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._lock = threading.Condition()
        self._free: dict[Hashable, list[tuple[float, Intake]]] = {}
        self._watching = False

    def take(self, share: Share) -> Intake:
        """Return a consumer for this task alone: one that is free, or a new one. Raises RedeliveryError."""
        with self._lock:
            free = self._free.get(_key(share))
            if free:
                return free.pop()[1]
        intake = Intake(replace(share.options, most_messages=share.most, ack="wal"))
        try:
            intake.begin()
        except BaseException:
            intake.close()
            raise
        return intake

    def give_back(self, share: Share, intake: Intake) -> None:
        """Have the consumer ready for the next task, for a while."""
        with self._lock:
            self._free.setdefault(_key(share), []).append((time.monotonic(), intake))
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="redelivery-idle", daemon=True).start()

    def close(self) -> None:
        """End all that are free."""
        with self._lock:
            ended = [intake for free in self._free.values() for _, intake in free]
            self._free.clear()
        for intake in ended:
            intake.close()

    def _watch(self) -> None:
        """End consumers that have been free for long; end with the last of them."""
        while True:
            with self._lock:
                before = time.monotonic() - self._idle
                ended = [each for free in self._free.values() for since, each in free if since <= before]
                self._free = {
                    key: kept
                    for key, free in self._free.items()
                    if (kept := [each for each in free if each[0] > before])
                }
                if not self._free:
                    self._watching = False
            for intake in ended:
                intake.close()
            if not self._watching:
                return
            time.sleep(self._idle / 4)


CONSUMERS = Consumers()
"""Those of this process."""


def _key(share: Share) -> Hashable:
    """The same only for tasks of one query: another's messages, or another's login, are none of its business."""
    return share.log, share.options.uri, share.options.destination, share.most
