"""Dead letters over which the broker closes one connection after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.core.bench import CAUSE, CONFIRMED_FORWARD, NATIVE, Bench
from tests.core.model import Letter

from redelivery.core.commands import Accept, Forward, PoisonAck, Postponed, Refused
from redelivery.core.events import Confirmed, ConnectionLost, Poisoned, Tick
from redelivery.errors import AdapterError, TransportError

if TYPE_CHECKING:
    from redelivery.core.commands import Command


def sent(commands: list[Command]) -> list[Command]:
    """Return the dead letters that these commands send."""
    return [each for each in commands if isinstance(each, PoisonAck | Forward)]


def cut(bench: Bench, letter: Letter) -> list[Command]:
    """Lose the connection over a dead letter; return what follows when its message is redelivered."""
    bench.lose()
    bench.connect()
    bench.again(letter)
    return bench.commands


def next_try(bench: Bench) -> list[Command]:
    """Move the time to the next alarm with a dead letter; return what it sends."""
    while not (found := sent(bench.feed(Tick()))):
        alarm = bench.engine.next_alarm()
        assert alarm is not None
        bench.now = alarm
    return found


def test_a_dead_letter_that_ends_each_connection_waits_longer_each_time() -> None:
    """A dead letter over which connections are lost is sent again at once, then after 1, 2, 4 … at most 30 seconds."""
    for able in (NATIVE, CONFIRMED_FORWARD):
        bench, letter, waits = Bench(able=able), Letter(0), []
        bench.feed(Poisoned(bench.run(letter), CAUSE))
        assert sent(cut(bench, letter)), "the first loss may have any reason"
        for _ in range(7):
            commands = cut(bench, letter)
            assert [type(each) for each in commands] == [Postponed]
            began = bench.now
            assert len(next_try(bench)) == 1
            waits.append(bench.now - began)
        assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_other_messages_are_handled_while_a_dead_letter_waits() -> None:
    """Other messages are handled while a dead letter waits after lost connections, and a new one waits with it."""
    bench, letter = Bench(able=CONFIRMED_FORWARD), Letter(0)
    bench.feed(Poisoned(bench.run(letter), CAUSE))
    cut(bench, letter)
    cut(bench, letter)
    good = bench.run(Letter(1))
    assert [type(each) for each in bench.succeed(good)] == [Accept]
    bad = bench.run(Letter(2))
    assert [type(each) for each in bench.feed(Poisoned(bad, CAUSE))] == [Postponed]
    assert (bench.engine.load.parked, bench.engine.load.in_doubt) == (2, 0)
    assert len(next_try(bench)) == 2
    assert bench.engine.load.in_doubt == 2


def test_a_confirmed_dead_letter_ends_the_wait() -> None:
    """Once a dead letter is confirmed, the next loss is the first one again."""
    bench, letter = Bench(able=CONFIRMED_FORWARD), Letter(0)
    bench.feed(Poisoned(bench.run(letter), CAUSE))
    cut(bench, letter)
    cut(bench, letter)
    (again,) = next_try(bench)
    assert isinstance(again, Forward)
    bench.feed(Confirmed(again.delivery))
    other = Letter(1)
    assert sent(bench.feed(Poisoned(bench.run(other), CAUSE)))
    assert sent(cut(bench, other))


def test_a_refused_dead_letter_waits_for_its_time_over_the_next_connection_too() -> None:
    """A broker that closes the connection over a refused dead letter gets it again after its delay, not at once."""
    bench, letter, waits = Bench(able=CONFIRMED_FORWARD), Letter(0), []
    delivery = bench.run(letter)
    bench.feed(Poisoned(delivery, CAUSE))
    for _ in range(7):
        bench.feed(Confirmed(delivery, AdapterError("not authorized")))
        assert [type(each) for each in cut(bench, letter)] == [Postponed]
        (delivery,), began = bench.latest, bench.now
        assert len(next_try(bench)) == 1
        waits.append(bench.now - began)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    bench.feed(Confirmed(delivery))
    assert (bench.engine.load.parked, bench.engine.counts.poisoned) == (0, 1)


def test_losses_without_a_dead_letter_count_nothing() -> None:
    """Lost connections over which no dead letter was sent, and closed consumers, delay none."""
    bench, letter = Bench(able=CONFIRMED_FORWARD), Letter(0)
    bench.feed(Poisoned(bench.run(letter), CAUSE))
    bench.feed(ConnectionLost(bench.epoch, TransportError("closed"), closed=True))
    for _ in range(3):
        bench.connect()
        bench.lose()
    bench.connect()
    bench.again(letter)
    assert sent(bench.commands)
    assert sent(cut(bench, letter)), "this loss is the first one"


def test_refusals_are_reported_once_a_minute() -> None:
    """Of refusals, the first is reported, and another after a minute; each has its reason and its delay."""
    bench, reported = Bench(able=CONFIRMED_FORWARD), []
    for number in range(2):
        bench.feed(Poisoned(bench.run(Letter(number)), CAUSE))
    began = bench.now
    while bench.now < began + 130:
        for delivery in list(bench.engine._confirms.in_doubt):
            (refused,) = bench.feed(Confirmed(delivery, AdapterError("full")))
            assert isinstance(refused, Refused)
            assert (str(refused.error), refused.delay <= 30) == ("full", True)
            if not refused.again:
                reported.append(round(bench.now - began))
        next_try(bench)
    assert reported == [0, 61, 121]


def test_a_loss_in_doubt_is_reported() -> None:
    """The second lost connection in a row is reported with one of its unconfirmed dead letters."""
    bench, letter = Bench(able=CONFIRMED_FORWARD), Letter(0)
    bench.feed(Poisoned(bench.run(letter), CAUSE))
    assert bench.lose() == []
    bench.connect()
    bench.again(letter)
    (refused,) = bench.lose()
    assert isinstance(refused, Refused)
    assert (refused.delay, refused.again) == (1, False)
    assert "2 connections in a row" in str(refused.error)
