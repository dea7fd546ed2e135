"""The files of a change, as git reports them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.changed_files import changed_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")


def git(root: Path, *arguments: str) -> None:
    """Run git without settings of the machine."""
    person = {
        f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **person, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, capture_output=True)


def test_files_that_differ_from_a_revision(tmp_path: Path) -> None:
    """Committed, changed and new files are named; unchanged, removed and ignored ones are not."""
    git(tmp_path, "init", "--quiet")
    for name in ("same", "changed", "removed"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("ignored", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    (tmp_path / "committed").write_text("1", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "second")
    (tmp_path / "changed").write_text("2", encoding="utf-8")
    (tmp_path / "removed").unlink()
    (tmp_path / "ignored").write_text("1", encoding="utf-8")
    (tmp_path / "new name").write_text("1", encoding="utf-8")
    assert changed_files("HEAD~1", tmp_path) == {"changed", "committed", "new name"}
    with pytest.raises(ValueError, match="bad revision"):
        changed_files("nothing", tmp_path)
