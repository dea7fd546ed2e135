"""Invariants of the counts of several processes with one ledger, for any order of deaths.

How often a message starts (N: its policy's maximum of redeliveries). A start ends in one of these ways:

- its handler fails, or its process dies while it alone was running: charged; after N + 1 such starts nothing begins;
- its process dies while others were running, too (company): not charged, because another one may be the cause;
- its handler succeeds: the last start.

A message starts N + 1 times at most, and once more for each death in company. These are bounded, too: after one the
message is a crash suspect, which runs exclusively, and a death alone is charged. It stays a suspect until its
handler has ended. Therefore a handler ends between two such deaths: a message that kills its process at each start has
one of them at most (N + 2 starts), and one that fails has one at most before each of its failures (2 (N + 1) starts).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.core.model import Arrival
from tests.core.process import Mail, Process

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Bury, Clear, Dispatch, Forward, LookUp, Mark, PoisonAck
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Cause
from redelivery.core.events import Alone, Arrived, Confirmed, Connected, Failed, Known, Succeeded, Wanted
from redelivery.core.ledger_engine import AGAIN, DYING, LedgerEngine
from redelivery.core.ledger_entry import AttemptMark, Entry, after_death, counted, fingerprint
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import Command

ABLE = Capabilities("model", poison_persistent=True, poison_non_persistent=True)
COPIES = Capabilities("model", forward="confirmed", drops_second_copy=True)  # as Artemis over STOMP
CAUSE = Cause("ValueError: no")
WORKERS = 3
# Seconds from the end of a connection until the death of its process shows.
DEATHS = st.sampled_from([0.0, 0.0, AGAIN, DYING])


class Processes(RuleBasedStateMachine):
    """Two processes, one queue, one ledger."""

    @initialize(
        maximum=st.integers(0, 2),
        kinds=st.lists(st.sampled_from(["good", "good", "bad", "killer"]), min_size=1, max_size=8),
        copies=st.booleans(),
    )
    def begin(self, maximum: int, kinds: list[str], *, copies: bool = False) -> None:
        self.able = COPIES if copies else ABLE
        self.maximum = maximum
        self.now = 0.0
        self.mails = [Mail(number, kind=kind) for number, kind in enumerate(kinds)]
        self.queue = deque(self.mails)
        self.written: dict[bytes, Entry] = {}
        self.graves: list[Process] = []
        self.processes = [self.born(), self.born()]

    def born(self) -> Process:
        policy = RedeliveryPolicy(
            maximum_redeliveries=self.maximum, initial_redelivery_delay=0.0, redelivery_delay=0.0
        )
        engine = LedgerEngine(
            1, policies=RedeliveryPolicyMap({}, default=policy), dead_letters=DeadLetterRouting(), credit=10
        )
        engine.feed(Connected(1, self.able), self.now)
        return Process(engine)

    # The events.

    @rule(which=st.integers(0, 1), many=st.integers(1, 3))
    def deliver(self, which: int, many: int) -> None:
        process = self.processes[which]
        mails = [self.queue.popleft() for _ in range(min(many, len(self.queue)))]
        arrivals = [Arrival(mail, 1, counts=False) for mail in mails]
        process.held += arrivals
        process.engine.feed(Arrived(1, arrivals), self.now)

    @rule(which=st.integers(0, 1), times=st.integers(1, WORKERS))
    def want(self, which: int, times: int) -> None:
        for _ in range(times):
            if len(self.processes[which].marks) < WORKERS:
                self.take(self.processes[which])

    @rule(which=st.integers(0, 1), place=st.integers(0, WORKERS - 1), dying=DEATHS)
    def end(self, which: int, place: int, dying: float = 0.0) -> None:
        process = self.processes[which]
        if not process.marks:
            return
        delivery = list(process.marks)[place % len(process.marks)]
        mail = delivery.letter
        assert isinstance(mail, Mail)
        if mail.kind == "killer":
            self.die(which, dying)
        elif mail.kind == "bad":
            mail.failures += 1
            self.carry_out(process, process.engine.feed(Failed(delivery, CAUSE), self.now))
        else:
            mail.processed = True
            self.carry_out(process, process.engine.feed(Succeeded(delivery), self.now))

    @rule(which=st.integers(0, 1))
    def write(self, which: int) -> None:
        """Write the failures of a process into the ledger."""
        process = self.processes[which]
        for key, entry in process.unwritten.items():
            self.put(key, entry)
        process.unwritten.clear()
        process.failed.clear()

    @rule(which=st.integers(0, 1))
    def acknowledge(self, which: int) -> None:
        """Make the broker read a process's acknowledgements; after a while the ledger removes the verdicts."""
        process = self.processes[which]
        process.unwritten |= {key: None for key in process.in_doubt.values() if key is not None}
        process.in_doubt.clear()

    @rule()
    def wait(self) -> None:
        self.now += AGAIN

    @rule(which=st.integers(0, 1), dying=DEATHS)
    @precondition(lambda self: any(process.marks or process.in_doubt for process in self.processes))
    def kill(self, which: int, dying: float = 0.0) -> None:
        """Kill a process at any time."""
        marks = self.processes[which].marks
        if len(marks) == 1:
            mail = next(iter(marks)).letter
            assert isinstance(mail, Mail)
            mail.operator += 1
        self.die(which, dying)

    # Their effects.

    def die(self, which: int, dying: float) -> None:
        """End a process. The broker has its messages at once; the ledger sees its death `dying` seconds later."""
        process = self.processes[which]
        process.dead = True
        process.seen_dead = self.now + dying
        for arrival in process.marks:
            assert isinstance(arrival.letter, Mail)
            if len(process.marks) == 1:
                arrival.letter.crashes += 1
            else:
                arrival.letter.company += 1
        self.graves.append(process)
        lost = process.in_doubt  # and the acknowledgements
        back = [each.letter for each in process.held if each.state != "settled" or each in lost]
        self.queue.extendleft(letter for letter in reversed(back) if isinstance(letter, Mail))
        self.processes[which] = self.born()

    def put(self, key: bytes, entry: Entry | None) -> None:
        if entry is None:
            self.written.pop(key, None)
        else:
            self.written[key] = entry

    def look_up(self, process: Process, key: bytes) -> Entry | None:
        for grave in self.graves:
            if grave.seen_dead <= self.now and any(attempt.key == key for attempt in grave.open()):
                self.written |= after_death(grave.open(), self.written, self.now)
                grave.marks.clear()
                grave.failed.clear()
        others = [p for p in (*self.processes, *self.graves) if p is not process]
        known = process.unwritten.get(key) or self.written.get(key)
        return counted(known, [a for other in others for a in other.open() if a.key == key])

    def take(self, process: Process) -> None:
        if process.engine.load.suspects:
            process.isolation.claim("c", self.now)
            if not process.isolation.turn("c"):
                return
            commands = self.carry_out(process, process.engine.feed(Alone(), self.now))
            begun = [c.delivery for c in commands if isinstance(c, Dispatch)]
            assert len(begun) == len(process.marks) == 1, "a suspect runs beside another"
            assert isinstance(begun[0], Arrival)
            process.alone = begun[0]
            return
        if not process.isolation.enter(self.now):
            return
        commands = process.engine.feed(Wanted(), self.now)
        if commands and isinstance(commands[0], LookUp):
            entry = self.look_up(process, fingerprint(commands[0].delivery))
            commands = process.engine.feed(Known(commands[0].delivery, entry), self.now)
        self.carry_out(process, commands)
        if not any(isinstance(command, Dispatch) for command in commands):
            process.isolation.leave()

    def carry_out(self, process: Process, commands: Sequence[Command]) -> Sequence[Command]:
        for command in commands:
            match command:
                case Mark():
                    self.check_mark(command)
                    assert isinstance(command.delivery, Arrival)
                    attempt = AttemptMark(fingerprint(command.delivery), command.count, "running")
                    process.marks[command.delivery] = attempt
                case Clear():
                    self.clear(process, command)
                case PoisonAck() | Forward():
                    self.bury(process, command)
                case _:
                    pass
        return commands

    def check_mark(self, mark: Mark) -> None:
        mail = mark.delivery.letter  # type: ignore[attr-defined]  # an Arrival
        assert isinstance(mail, Mail)
        assert not mail.processed
        assert mark.count == mail.failures + mail.crashes, "a count has been lost, or charged twice"
        if mail.kind != "killer":
            assert mark.count <= mail.failures + mail.operator, "an innocent has been charged"
        assert mark.count <= self.maximum, "begun beyond the limit"
        assert mail.starts == mark.count + mail.company, "begun while it was running"
        assert mail.company <= mail.failures + 1, "company again, and no handler has ended in between"
        mail.starts += 1

    def clear(self, process: Process, clear: Clear) -> None:
        assert isinstance(clear.delivery, Arrival)
        attempt = process.marks.pop(clear.delivery)
        if not clear.keep:
            process.unwritten[attempt.key] = clear.entry
        if clear.failed:
            process.failed.append(replace(attempt, state="failed"))
        if process.alone is clear.delivery:
            process.alone = None
            process.isolation.end_turn(self.now)
        else:
            process.isolation.leave()

    def bury(self, process: Process, poison: PoisonAck | Forward) -> None:
        assert isinstance(poison.delivery, Arrival)
        mail = poison.delivery.letter
        assert isinstance(mail, Mail)
        assert mail.kind != "good" or mail.operator > self.maximum, "an innocent has been poisoned"
        mail.dead = 1 if self.able is COPIES else mail.dead + 1
        for command in process.engine.feed(Confirmed(poison.delivery), self.now):
            if isinstance(command, Accept):
                process.in_doubt[poison.delivery] = None
            elif isinstance(command, Bury) and command.early:
                process.in_doubt[poison.delivery] = command.key
            elif isinstance(command, Bury):
                process.unwritten[command.key] = None

    def teardown(self) -> None:
        """Without further kills, each message ends after the number of starts derived above."""
        if not hasattr(self, "mails"):
            return
        for turn in range(60 * (len(self.mails) + 1)):
            self.wait()
            self.deliver(turn % 2, 1)
            self.want(turn % 2, WORKERS)
            self.end(turn % 2, turn)
            self.write(turn % 2)
            self.acknowledge(turn % 2)
        for mail in self.mails:
            assert mail.processed if not mail.dead else mail.dead == 1, f"{mail} has not ended"
            assert mail.dead or mail.kind != "killer"
            charged = mail.failures + mail.crashes
            assert charged == self.maximum + 1 if mail.dead else charged <= self.maximum
            assert mail.starts == charged + mail.company + mail.processed
            most = 1 if mail.kind != "bad" else min(mail.failures + 1, self.maximum + 1)
            assert mail.company <= most, "started too often"


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(stateful_step_count=30, suppress_health_check=list(HealthCheck))


def test_a_message_that_fails_starts_once_more_for_each_death_that_it_was_company_in() -> None:
    """With two redeliveries, a message that two others' deaths took along starts five times, and each of them four."""
    machine = Processes()
    machine.begin(maximum=2, kinds=["good", "good", "bad", "killer", "killer", "good", "good"])
    machine.deliver(0, 1)
    machine.deliver(0, 2)
    machine.deliver(0, 2)
    machine.deliver(1, 2)
    machine.teardown()
    assert [mail.starts for mail in machine.mails] == [1, 2, 5, 4, 4, 1, 1]
    assert [mail.company for mail in machine.mails] == [0, 1, 2, 1, 1, 0, 0]


def test_a_verdict_outlives_a_process_that_dies_between_copy_and_acknowledgement() -> None:
    """The message is redelivered to another process, which copies it again and does not handle it."""
    machine = Processes()
    machine.begin(maximum=0, kinds=["bad"], copies=True)
    machine.deliver(0, 1)
    machine.want(0, 1)
    machine.end(0, 0)
    machine.write(0)
    machine.kill(0)
    assert list(machine.queue) == machine.mails
    machine.teardown()
    assert [mail.starts for mail in machine.mails] == [1]
