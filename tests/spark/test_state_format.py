"""What is written of a log's state: the next version reads the names in it, so they are no private matter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.wal_state import FOLDER, ROWS, State, States

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {
    "attempts", "awaited", "buried", "by", "emptied", "facts", "groups", "judged", "log", "passed", "settled", "tables",
    "totals",
}  # fmt: skip


def test_the_state_has_the_names_that_are_read(tmp_path: Path) -> None:
    """A field that is renamed would make a log that exists unreadable."""
    folder = Folder(str(tmp_path))
    folder.prepare(FOLDER, ROWS)
    States(folder).publish(State("log"), 0, None)
    (written,) = (tmp_path / FOLDER).iterdir()
    assert set(json.loads(written.read_text(encoding="utf-8"))) == KEYS


def test_a_state_of_the_version_before_is_read(tmp_path: Path) -> None:
    """It knows of no message that is awaited."""
    folder = Folder(str(tmp_path))
    folder.prepare(FOLDER, ROWS)
    States(folder).publish(State("log", settled=3), 0, None)
    (written,) = (tmp_path / FOLDER).iterdir()
    content = json.loads(written.read_text(encoding="utf-8"))
    del content["awaited"]
    written.write_text(json.dumps(content), encoding="utf-8")
    found = States(folder).load()
    assert found is not None
    assert (found.settled, found.awaited) == (3, {})
