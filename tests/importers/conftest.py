"""Policy files, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from redelivery.importers import Imported, read

if TYPE_CHECKING:
    from pathlib import Path


class Reads(Protocol):
    """Function that writes a text to a file, and reads it as a policy file."""

    def __call__(self, text: str, name: str = "f") -> Imported: ...


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Read a text as a file of the current directory, so that notes and errors start with `f:`."""
    monkeypatch.chdir(tmp_path)

    def reads(text: str, name: str = "f") -> Imported:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read(name)

    return reads
