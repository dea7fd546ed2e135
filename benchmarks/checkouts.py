"""The same program with the libraries of several checkouts, each time in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["HERE", "alternating", "checkout", "environment", "output"]

HERE = Path(__file__).resolve().parents[1]
"""This checkout: its programs are run, with the library of any."""


def checkout(folder: str) -> Path:
    """Return the path of another checkout, for argparse."""
    path = Path(folder).resolve()
    if not (path / "client" / "redelivery").is_dir():
        raise ArgumentTypeError(
            f"{folder} is no checkout of this library: it has no folder client/redelivery"
        )
    return path


def environment(library: Path) -> dict[str, str]:
    """Return the environment of a program of this checkout with the library of a checkout."""
    folders = (library / "client", library / "adapters", HERE)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def output(library: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Run a program of this checkout with the library of a checkout; return the JSON that it prints.

    If it fails, this program ends, with the last line of its errors.
    """
    argv = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, cwd=HERE, env=environment(library)
    )
    if done.returncode:
        *_, last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SystemExit(f"{module} failed with the library of {library}: {last}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def alternating(names: Iterable[str], turns: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield each turn with each name; every second turn in the other order."""
    ordered = sorted(names)
    for turn in turns:
        for name in reversed(ordered) if turn % 2 else ordered:
            yield turn, name
