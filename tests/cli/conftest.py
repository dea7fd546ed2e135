"""Fixtures that run the command line in this process, and return its output and exit code."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests.cli.doctor_script import Script, Scripted
from tests.kept_logging import kept_logging

from redelivery import registry
from redelivery.cli.app import run
from redelivery.cli.checks import destination_check, network, probe
from redelivery_memory import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on stderr: a mistake writes no other."""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err[:-1]


class Cli(Protocol):
    """Runs a command."""

    def __call__(self, *args: str, stdin: bytes | None = None) -> Ended: ...


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cli]:
    """Run commands in an empty directory, without REDELIVERY_URL; restore logging and imports afterwards."""
    monkeypatch.delenv("REDELIVERY_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)

    def ended(*args: str, stdin: bytes | None = None) -> Ended:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = run(args)
        sys.stdout.flush()
        captured: Any = capfd.readouterr()
        return Ended(code, captured.out, captured.err)

    with kept_logging():
        yield ended
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def shop() -> Iterator[MemoryBroker]:
    """A broker `memory://shop` with three orders, which fast policies can be tried on."""
    with MemoryBroker("shop") as broker:
        for number in (1, 2, 3):
            broker.send("orders", f"order {number}", headers={"number": str(number), "odd name": "x"})
        yield broker


@pytest.fixture
def uri() -> str:
    """The broker `shop`, with a policy of two redeliveries after 5 ms."""
    prefix = "jms.redeliveryPolicy."
    return f"memory://shop?{prefix}maximumRedeliveries=2&{prefix}initialRedeliveryDelay=5&{prefix}redeliveryDelay=5"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Script that serves `stomp://` instead of an adapter; no network is used."""
    made = Script()
    monkeypatch.setattr(
        registry, "_registered", dict.fromkeys(("stomp", "stomp+ssl"), lambda: Scripted(made))
    )
    monkeypatch.setattr(network, "addresses", lambda endpoint: [endpoint.host])
    monkeypatch.setattr(network, "reach", lambda endpoint, _: network.Answer(endpoint.host, 0.001))
    monkeypatch.setattr(network, "answering", lambda _: made.answering)
    monkeypatch.setattr(network, "handshake", lambda *_: made.shaken)
    monkeypatch.setattr(destination_check, "LATE", 0.01)
    monkeypatch.setattr(probe, "BACK", 0.01)
    return made
