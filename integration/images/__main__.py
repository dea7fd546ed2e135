"""Commands that build images, and run a command with every broker's image and an engine."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser
from contextlib import closing

from integration.brokers import BROKERS, BrokerError
from integration.images.build import build, debian_base
from integration.images.engine import client, engine


def main() -> int:
    """Carry out the command in the arguments."""
    parser = ArgumentParser(prog="python -m integration.images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build images in the engine that answers")
    building.add_argument(
        "names", nargs="*", choices=sorted(BROKERS), default=sorted(BROKERS), metavar="BROKER"
    )
    building.add_argument("--base", help="an image; default: the one that the Dockerfile names")
    running = commands.add_parser("run", help="build them on Debian's packages, and run a command with them")
    running.add_argument(
        "--broker", action="append", choices=sorted(BROKERS), help="this one's only; may be repeated"
    )
    running.add_argument("argv", nargs=REMAINDER, metavar="-- COMMAND")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            names = arguments.broker or sorted(BROKERS)
            return _run(names, [part for part in arguments.argv if part != "--"])
        return _build(arguments.names, arguments.base)
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1


def _build(names: list[str], base: str | None) -> int:
    with closing(client({})) as docker:
        for name in names:
            print(build(docker, name, base))
    return 0


def _run(names: list[str], argv: list[str]) -> int:
    with engine() as variables:
        with closing(client(variables)) as docker:
            base = debian_base(docker)
            images = {f"REDELIVERY_IMAGE_{name.upper()}": build(docker, name, base) for name in names}
        # The image with which testcontainers cleans up may be missing here.
        fixed = {"REDELIVERY_CONTAINERS": ",".join(names), "TESTCONTAINERS_RYUK_DISABLED": "true"}
        return subprocess.run(
            argv, env={**os.environ, **variables, **images, **fixed}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
