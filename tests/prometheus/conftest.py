"""Both kinds of connection, as in the driver's tests."""

from __future__ import annotations

from tests.driver.conftest import nothing_left, twin, watch

__all__ = ["nothing_left", "twin", "watch"]
