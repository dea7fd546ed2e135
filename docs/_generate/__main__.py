"""Command line of the generator: `python -m docs._generate [--write]`."""

from __future__ import annotations

import sys

from docs._generate.pages import PARTS
from docs._generate.parts import current


def main(*, write: bool) -> int:
    """Write the parts, or print the pages that would change; return the exit code."""
    stale = 0
    for part in PARTS:
        made = current(part)
        if part.path.exists() and part.path.read_text(encoding="utf-8") == made:
            continue
        stale += 1
        sys.stdout.write(f"{'written' if write else 'out of date'}: docs/{part.page}\n")
        if write:
            part.path.parent.mkdir(exist_ok=True)
            part.path.write_text(made, encoding="utf-8")
    return 0 if write or not stale else 1


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
