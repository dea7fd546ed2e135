"""Command line: `redelivery demo`, `consume`, `send`, `policy`, `dlq`, `doctor`. Needs the extra `cli`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line with the arguments of the process, and exit."""
    # Answered without click: loading it takes longer than the answer.
    if sys.argv[1:] == ["--version"]:
        from redelivery import __version__  # noqa: PLC0415

        sys.stdout.write(f"redelivery {__version__}\n")
        sys.exit(0)
    try:
        from redelivery.cli.app import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.stderr.write("redelivery: needs click: pip install 'redelivery[cli]'\n")
        sys.exit(78)
    sys.exit(run())
