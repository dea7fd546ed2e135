"""Commands of the page on the command line: each runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    """Yield the commands of the page."""
    for kind, text in BLOCKS.findall(PAGE.read_text()):
        if kind == "bash":
            yield from text.splitlines()


@pytest.mark.parametrize("command", list(commands()))
def test_command(cli: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the page ends with 0, on a broker in the process."""
    if "--plot" in command:
        need("matplotlib")
    if ".parquet" in command:
        need("pyarrow")
    for kind, text in BLOCKS.findall(PAGE.read_text()):
        assert kind in ("bash", "python", "text")
        if kind == "python":
            (tmp_path / text.split()[1]).write_text(text)
    (tmp_path / "order.pdf").write_bytes(b"%PDF")
    before, _, line = command.rpartition(" | ")
    stdin = subprocess.run(before, shell=True, stdout=subprocess.PIPE, check=True).stdout if before else None
    words = shlex.split(line)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert words.pop(0) == "redelivery"
    if words == ["demo"]:
        words += ["--delay", "5"]
    with MemoryBroker("shop") as shop:
        for number in range(3):
            shop.send("orders", f"order {number}")
        shop.send(
            "DLQ",
            "old",
            headers={
                "redeliveryCause": "ValueError: no item",
                "redeliveryOriginalDestination": "queue://orders.eu",
                "redeliveryLastFailure": "2020-01-01T00:00:00Z",
            },
        )
        ended = cli(*words, stdin=stdin)
    assert ended.code == 0, ended.err
