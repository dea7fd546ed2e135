"""Messages that arrive while the process that had them open is dying."""

from __future__ import annotations

import pytest
from tests.core.bench import Counted
from tests.core.model import Letter

from redelivery.core.commands import Dispatch, LookUp, Mark
from redelivery.core.events import Known, Wanted
from redelivery.core.ledger_engine import AGAIN, DYING
from redelivery.core.ledger_entry import CRASH, Entry


@pytest.mark.parametrize("suspect", [False, True])
def test_what_another_process_has_open_waits_until_that_one_is_seen_dead(*, suspect: bool) -> None:
    """A message that arrives before its last process is seen dead is looked up again, and its death is charged."""
    bench = Counted()
    dying = Entry(2, CRASH, suspect=suspect, elsewhere=True)
    arrival, commands = bench.known(Letter(0), dying)
    assert (commands, arrival.state, bench.engine.load.suspects) == ([], "parked", 0)
    assert bench.feed(Wanted()) == []
    bench.begun(Letter(1))  # nothing else waits
    bench.now += AGAIN
    (look,) = bench.feed(Wanted())
    assert isinstance(look, LookUp)
    assert bench.feed(Known(arrival, dying)) == []
    bench.now += AGAIN
    bench.feed(Wanted())
    bench.feed(Known(arrival, Entry(7, CRASH, suspect=True)))
    assert arrival.state == "settling"


def test_a_process_that_lives_on_is_not_waited_for() -> None:
    """A message whose last process lives, and has only lost its connection, begins after two seconds."""
    bench = Counted()
    open_there = Entry(elsewhere=True)
    arrival, commands = bench.known(Letter(0), open_there)
    looks = 0
    while not commands:
        bench.now += AGAIN
        bench.feed(Wanted())
        commands = bench.feed(Known(arrival, open_there))
        looks += 1
    assert [type(command) for command in commands] == [Mark, Dispatch]
    assert looks == pytest.approx(DYING / AGAIN, abs=1)
