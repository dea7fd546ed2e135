"""Both twins, as the driver's tests have them."""

from __future__ import annotations

from tests.driver.conftest import nothing_left, twin, watch

__all__ = ["nothing_left", "twin", "watch"]
