"""Tools for tests of applications: a broker in the process, and a clock that a test moves.

Import them from here::

    from redelivery.testing import ManualClock, MemoryBroker

Names are loaded at first use: the pytest plugin costs nothing if no test uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redelivery.testing.manual_clock import ManualClock
    from redelivery_memory import MemoryBroker

__all__ = ["ManualClock", "MemoryBroker"]


def __getattr__(name: str) -> Any:
    if name == "ManualClock":
        from redelivery.testing.manual_clock import ManualClock  # noqa: PLC0415

        return ManualClock
    if name == "MemoryBroker":
        from redelivery_memory import MemoryBroker  # noqa: PLC0415

        return MemoryBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
