"""Dead letters of a broker that several processes use: each test finds those that have come since it began."""

from __future__ import annotations

import fcntl
import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from integration.letters import Letters
from integration.run_folder import RUN
from redelivery.testing.conformance import Found

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BROKER: Any = SimpleNamespace(ports={"amqp": 1})


def test_a_test_begins_behind_a_letter_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that begins while another process writes a letter waits for its end, and does not find it."""
    monkeypatch.setenv(RUN, str(tmp_path))
    earlier = pickle.dumps(Found(body=b"earlier", kind="bytes", headers={}))
    file = tmp_path / "letters-1-"
    file.write_bytes(earlier[:9])
    plain = fcntl.flock

    def lock(descriptor: Any, operation: int) -> None:
        if file.stat().st_size == 9:  # the other process has the lock until it has written the rest
            file.write_bytes(earlier)
        plain(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock)
    later = Found(body=b"later", kind="bytes", headers={})
    assert Letters(BROKER).take(lambda: [later]) == [later]
