"""Hook that reads a policy map from a file: the core itself opens no file and has no parser.

`redelivery` sets it when the package is imported; Python does that before it imports any module of the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

__all__ = ["policies_of"]


def _unset(_path: str | PathLike[str], _kind: str) -> Any:
    raise RuntimeError("nothing reads policy files: the package redelivery has not been imported")


policies_of: Callable[[str | PathLike[str], str], Any] = _unset
"""Returns the `RedeliveryPolicyMap` of a file of that kind (`redelivery.importers.policies_of`)."""
