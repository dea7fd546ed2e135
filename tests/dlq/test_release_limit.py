"""Queues that drop a message after a number of looks: refused before a message is taken, unless it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
import redelivery_memory
from redelivery import ConfigurationError, registry
from redelivery.adapter import Subscribed
from redelivery.core.capabilities import cannot_spare
from redelivery.core.commands import Subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.adapter import Opening, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.testing import MemoryBroker

    Limited = Callable[..., Any]

REPORTED = "each look, and each filtered redrive or purge, counts against the limit of this queue"
UNKNOWN = "does not report here whether the queue drops a message after 20 looks"
ABLE = replace(
    redelivery_memory.CAPABILITIES, browse=False, release_counts=True, release_limit=20, version="4.0.5"
)


class Limiting(redelivery_memory.MemoryAdapter):
    """Adapter of a broker whose queues have a limit of 20 releases; `flow`: it is asked about a queue."""

    flow = True

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect."""
        self._told = sink
        super().open(opening, sink)
        return replace(ABLE, flow=self.flow)

    def execute(self, commands: Sequence[AdapterCommand], /) -> None:
        """Refuse consumers that ask for a queue without a limit; report the limit to others."""
        for command in commands:
            if isinstance(command, Subscribe) and command.spared:
                why = cannot_spare(command.destination, ABLE, known=True)
                error = ConfigurationError(str(why), option="despite_limit")
                self._told(Subscribed(command.consumer, error))
            else:
                super().execute([command])


@pytest.fixture
def limited(broker: MemoryBroker, bury: Any, monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Make tools of a queue of three dead letters, one without an origin, on a broker that cannot show it."""
    for cause in ("KeyError", "ValueError"):
        bury(origin="queue://orders", cause=cause)
    bury(cause="ValueError")

    def make(*, asked: bool = True, **given: Any) -> Any:
        monkeypatch.setattr(registry, "_registered", {"memory": Limiting})
        monkeypatch.setattr(Limiting, "flow", asked)
        return redelivery.dead_letters(broker.uri, take=True, **given)

    return make


def taken(broker: MemoryBroker) -> int:
    """Return how often a message was delivered."""
    return sum(step.action == "delivered" for step in broker.history())


LOOKS: dict[str, Callable[[Any], object]] = {
    "list": list,
    "summary": lambda dead: dead.summary(),
    "contents": lambda dead: dead.contents(),
    "show": lambda dead: dead.show("x"),
    "dry run": lambda dead: dead.redrive(dry_run=True),
    "redrive": lambda dead: dead.redrive(cause="KeyError"),
    "purge": lambda dead: dead.purge(cause="KeyError"),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(("asked", "says"), [(True, REPORTED), (False, UNKNOWN)])
def test_a_look_that_counts_is_refused_before_it_takes_anything(
    limited: Limited, broker: MemoryBroker, look: str, asked: bool, says: str
) -> None:
    """A look, and a run that leaves messages, is refused on a queue with a limit, or one that may have one."""
    with limited(asked=asked) as dead, pytest.raises(ConfigurationError, match=says) as refused:
        LOOKS[look](dead)
    assert refused.value.option == "despite_limit"
    assert "memory 4.0.5" in str(refused.value)
    assert (broker.depth("DLQ"), taken(broker)) == (3, 0)


def test_with_permission_it_looks(limited: Limited, broker: MemoryBroker) -> None:
    """A queue with a limit is looked at with `despite_limit`."""
    with limited(despite_limit=True) as dead:
        assert len(list(dead)) == 3
        assert dead.purge(cause="OSError").skipped == 3
    assert broker.depth("DLQ") == 3


def test_what_leaves_the_queue_is_not_refused(limited: Limited, broker: MemoryBroker) -> None:
    """Without filters a redrive needs no permission; what has to stay is reported with the limit; a purge is whole."""
    with limited() as dead:
        done = dead.redrive()
        assert (done.redriven, done.without_origin) == (2, 1)
        assert "1 dead letters stay, and each run counts" in str(done.incomplete)
        assert "drops them after 20 runs; name a destination (--to)" in str(done.incomplete)
        assert dead.purge().purged == 1
    assert broker.depth("DLQ") == 0


def test_the_commands_refuse_as_well(
    run: Callable[[Sequence[str]], int],
    limited: Limited,
    broker: MemoryBroker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On the command line the refusal is one line with exit code 78; --yes goes on."""
    limited()
    for words in (
        ["summary"],
        ["list"],
        ["show"],
        ["export"],
        ["redrive", "--cause", "KeyError", "--dry-run"],
    ):
        given = ["dlq", *words, broker.uri, "--take", *(["x"] if words == ["show"] else [])]
        assert run(given) == 78
        said = capsys.readouterr().err
        assert said.startswith(
            "redelivery: queue://DLQ: each look, and each filtered redrive or purge, counts"
        )
        assert said.count("\n") == 1
    assert broker.depth("DLQ") == 3
    assert run(["dlq", "list", broker.uri, "--take", "--yes", "--idle", "0.1"]) == 0
    assert run(["dlq", "purge", broker.uri, "--cause", "KeyError", "--yes", "--idle", "0.1"]) == 0
    assert broker.depth("DLQ") == 2
