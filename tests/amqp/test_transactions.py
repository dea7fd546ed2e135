"""Transactions of which one part is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.amqp.peer import DECLARED, proton

from redelivery.errors import AdapterError
from redelivery_amqp.sender import DISCHARGE, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError


class Sender:
    """A link whose outcomes a test gives."""

    where = "queue://out"
    error: RedeliveryError | None = None

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.outcomes: list[Callable[[Any], None]] = []

    def send(self, message: bytes, outcome: Callable[[Any], None], transaction: bytes = b"") -> None:
        del transaction
        self.sent.append(message)
        self.outcomes.append(outcome)


def outcome(state: int, *data: bytes) -> Any:
    """Return an outcome as proton reports it."""
    return SimpleNamespace(remote_state=state, remote=SimpleNamespace(data=list(data), condition=None))


ACCEPTED = outcome(proton.Delivery.ACCEPTED)


@pytest.mark.parametrize("refused", [None, 0, 1])
def test_one_refused_part_fails_the_whole(refused: int | None) -> None:
    """A refused message rolls the transaction back, and its refusal is the answer."""
    coordinator, out, answers = Sender(), Sender(), list["RedeliveryError | None"]()
    wire: Any = SimpleNamespace(masked=str)
    messages = cast("Any", [(out, b"a"), (out, b"b")])
    Transfer(wire, cast("Any", coordinator), messages, (), answers.append, lambda _: None).begin()
    coordinator.outcomes.pop()(outcome(DECLARED, b"txn"))
    error = AdapterError("the queue is full")
    for number, told in enumerate(out.outcomes):
        told(error if number == refused else ACCEPTED)
    discharge = proton.Message()
    discharge.decode(coordinator.sent[-1])
    assert int(discharge.body.descriptor) == DISCHARGE
    assert discharge.body.value == [b"txn", refused is not None]
    assert answers == []
    coordinator.outcomes.pop()(ACCEPTED)
    assert answers == [None if refused is None else error]
