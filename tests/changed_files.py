"""Files that differ from a revision, for commands that look at the files of a change only."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["changed_files"]

ROOT = Path(__file__).parents[1]


def changed_files(revision: str, root: Path = ROOT) -> set[str]:
    """Return the files that differ from a revision, are not committed or not added; removed files are left out.

    Raises:
        ValueError: There is no such revision, or no repository.
    """
    names = _git(root, "diff", "--name-only", "--diff-filter=d", "-z", "--end-of-options", revision, "--")
    return names | _git(root, "ls-files", "--others", "--exclude-standard", "-z")


def _git(root: Path, *arguments: str) -> set[str]:
    ended = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip() or f"git ended with {ended.returncode}")
    return {name for name in ended.stdout.split("\0") if name}
