"""Dead-letter queue on memory, in virtual time, and the tools for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests.kept_logging import kept_logging

import redelivery
from redelivery.cli import app
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redelivery import DeadLetterQueue


class Bury(Protocol):
    """Puts a dead letter on the queue; returns its id. `origin`, `cause`, `first`: the library's own properties."""

    def __call__(self, body: str | bytes = "x", **headers: Any) -> str: ...


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """Broker whose clock moves whenever nothing else can happen."""
    with MemoryBroker("letters", clock=ManualClock(auto_advance=True)) as broker:
        yield broker


@pytest.fixture
def run() -> Iterator[Callable[[Sequence[str]], int]]:
    """Run a command of the command line; logging is restored afterwards."""
    with kept_logging():
        yield app.run


@pytest.fixture
def tools(broker: MemoryBroker) -> Iterator[DeadLetterQueue]:
    """The tools, connected."""
    with redelivery.dead_letters(broker.uri) as tools:
        yield tools


@pytest.fixture
def bury(broker: MemoryBroker) -> Bury:
    """Puts a dead letter on the queue."""
    names = {
        "origin": "redeliveryOriginalDestination",
        "cause": "redeliveryCause",
        "first": "redeliveryOriginalId",
    }

    def put(body: str | bytes = "x", **headers: Any) -> str:
        return broker.send(
            "DLQ", body, headers={names.get(name, name): value for name, value in headers.items()}
        )

    return put
