"""True state of each message, whatever the library or the broker assume; and the invariants about it.

Messages that nothing distinguishes are kin and may change places: an invariant then holds for all of them together. For
any other message it holds by itself. Where a message's history was lost in a documented way, it starts without failures
(`forget`) from that moment on; no message is exempt for good.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.simulator.relaxation import Relaxation

from redelivery.core.broker_redelivery import EARLY
from redelivery.core.pending_confirms import ACKNOWLEDGED

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from tests.simulator.profiles import Message

__all__ = ["Truth", "Violation"]


class Violation(Exception):
    """A broken invariant. The text begins with the name of the invariant, and a colon."""


def by_kin(messages: Sequence[Message]) -> defaultdict[Hashable, list[Message]]:
    """Return messages by kin: those that may change places."""
    found: defaultdict[Hashable, list[Message]] = defaultdict(list)
    for message in messages:
        found[message.kin].append(message)
    return found


class Truth:
    """Records events, and checks the invariants.

    `tries`: handlers that may fail with a message before it is poison. `shared`: a ledger has one entry for all kin.
    """

    def __init__(self, messages: Sequence[Message], tries: int, *, shared: bool = False) -> None:
        self.size = Counter(message.kin for message in messages)
        self._kin = by_kin(messages)
        # Steps: when handlers of such messages succeeded, and when such messages were sent that are accepted.
        self.successes: dict[Hashable, list[int]] = defaultdict(list)
        self.removed: dict[Hashable, list[int]] = defaultdict(list)
        self.failed: Counter[Hashable] = Counter()  # since the last success
        self.ever: Counter[Hashable] = Counter()
        # Failures of handlers that are not waited for: they may have been charged, or not.
        self.maybe: Counter[Hashable] = Counter()
        # Part of the broker's counts that may be charged; and the highest counts with which messages without an id went
        # back, which may be known by their bytes.
        self.believed: Counter[Hashable] = Counter()
        self.kept: Counter[Hashable] = Counter()
        # Verdicts of the application that were not carried out; those that may be carried out once more, because the
        # dead message is back; and how many messages have a remembered verdict.
        self.owed: Counter[Hashable] = Counter()
        self.again: dict[Hashable, set[str]] = defaultdict(set)
        self.judged: Counter[Hashable] = Counter()
        # How many are set aside, as far as that is remembered.
        self.aside: Counter[Hashable] = Counter()
        self._condemned: Counter[Hashable] = Counter()
        self._lately: dict[str, Message] = {}
        # Dead letters that a killed broker forgot; unconfirmed ones; and those with a second, older verdict.
        self._forgotten, self._unheard, self._twice_known = set[str](), set[str](), set[str]()
        self._spent: Counter[Hashable] = Counter()
        # Seconds before which a delayed message may not arrive, and how many it may be early; least counts with which
        # handlers must begin.
        self.not_before, self._slack, self._noted = dict[str, float](), dict[str, float](), dict[str, int]()
        # Of them, those that are delayed uncharged.
        self.deferred: set[str] = set()
        self.gone, self.dead = dict[str, str](), Counter[str]()
        # True if the connection went to another address: numbers known there may occur here again.
        self.moved = False
        self.copies = set[str]()  # those of which a delayed copy was stored
        self._died_at: dict[str, float] = {}
        self._recalled, self._confirmed = set[str](), set[str]()
        self._redriven: dict[str, Message] = {}
        # Of kin: how many verdicts belong to confirmed dead letters.
        self._safe: Counter[Hashable] = Counter()
        # Of those that were dead, or copied: with which a handler has begun since. The record belongs to that run.
        self._begun_since: set[str] = set()
        self._copies_of: Counter[Hashable] = Counter()
        self._copied_lately: list[Hashable] = []
        # Copies of one delivery that was copied again, by the name that they share.
        self._twins: defaultdict[str | None, list[Message]] = defaultdict(list)
        self.relaxation = Relaxation(self.size)
        # Messages that another process has had: the record here stays, for their kin; and those without a record.
        self.elsewhere, self.dropped = set[str](), set[str]()  # and of what nothing is known since a loss
        self.handled_again, self._tries, self._shared = 0, tries, shared

    def forget(self, message: Message) -> None:
        """Start without failures: the history of the message is lost."""
        kin = message.kin
        self.failed[kin] = self.judged[kin] = 0
        self.aside[kin] = 0
        for each in self._kin[kin]:
            self.not_before.pop(each.name, None)
            self.deferred.discard(each.name)

    def believe(self, message: Message, count: int) -> None:
        """Record the broker's count of a message without a record: it may be charged, except the last delivery."""
        kin = message.kin
        self.believed[kin] = max(self.believed[kin], min(count, self._tries - 1))

    # Results of handlers.

    def succeeded(self, message: Message, step: int, *, heard: bool) -> None:
        """Record a handler's success: if the message is redelivered it starts without failures."""
        kin = message.kin
        self.successes[kin].append(step)
        if not heard and not self._shared:
            return
        self._written_over(kin, heard=heard)
        self.failed[kin] = 0
        self.not_before.pop(message.name, None)
        if self.size[kin] == 1:
            self.maybe[kin] = self.believed[kin] = 0

    def failed_once(self, message: Message, due: float, *, heard: bool) -> None:
        """Record a handler's failure. Raises Violation."""
        kin = message.kin
        self.ever[kin] += 1
        self._written_over(kin, heard=heard)
        if not heard:
            self.maybe[kin] += 1
            return
        self.failed[kin] += 1
        self.not_before[message.name] = due
        self._slack.pop(message.name, None)
        self.deferred.discard(message.name)
        most = self.size[kin] * self._tries
        if self.size[kin] > 1:
            # "Two equal copies": one may be taken for the other, which has been copied.
            most += self._copies_of[kin]
            if self._shared:
                # When one of them is dead the shared entry is removed, and with it the count of another one.
                most += (self._tries - 1) * sum(self.dead[each.name] for each in self._kin[kin])
        if self.failed[kin] > most:
            raise Violation(f"limit: {message.name} has failed {self.failed[kin]} times; {most} are allowed")
        if self.size[kin] == 1 and self.failed[kin] == most:
            self.judged[kin] = 1

    def _written_over(self, kin: Hashable, *, heard: bool) -> None:
        """Note that the last handler's result overwrites the ledger's entry, of kin too: a verdict may be gone."""
        if self._shared and (self.size[kin] > 1 or not heard):
            self.judged[kin] = self.aside[kin] = 0
        if self._shared and not heard:
            self.maybe[kin] += self.failed[kin]
            self.failed[kin] = 0

    def condemned(self, message: Message, *, heard: bool) -> None:
        """Record that the application poisoned a message."""
        self.owed[message.kin] += 1
        self._condemned[message.kin] += 1
        self.judged[message.kin] += heard

    def postponed(self, message: Message, due: float, *, heard: bool) -> None:
        """Record that the application deferred a message, uncharged."""
        if heard:
            self.not_before[message.name] = due
            self._slack.pop(message.name, None)
            self.deferred.add(message.name)

    def process_died(self) -> None:
        """Keep only what the ledger holds for the next process: a delay after a failure, but no deferral."""
        for messages in self._kin.values():
            for message in messages:
                self.ledger_only(message)

    def ledger_only(self, message: Message) -> None:
        """Keep only what the ledger holds of a message."""
        kin = message.kin
        if self.size[kin] > 1:
            # The shared entry of all kin is as the last of them has left it.
            self.judged[kin] = self.aside[kin] = 0
            for each in self._kin[kin]:
                self.not_before.pop(each.name, None)
        if message.name in self.deferred:
            self.not_before.pop(message.name, None)
            self.deferred.discard(message.name)

    def noted_only(self, message: Message, count: int, due: float | None) -> None:
        """Keep only what the broker keeps of a message, after its process has died."""
        name, kin = message.name, message.kin
        self.failed[kin] = min(self.failed[kin], count, self._tries - 1)
        self.judged[kin] = self.aside[kin] = 0
        if due is None or abs(due - self.not_before.get(name, 0.0)) > 0.01:
            self.not_before.pop(name, None)
            self.deferred.discard(name)

    # The broker's actions.

    def waits(self, message: Message, slack: float) -> None:
        """Record that the broker delays a message; it may arrive `slack` seconds early.

        One of two kin may be taken for the other, as of two equal copies.
        """
        kin = message.kin
        self._slack[message.name] = slack
        if self.size[kin] > 1:
            # The note of one, and the record here, may count for both.
            self._spent[kin] -= self._tries - 1
            self._copies_of[kin] += 1

    def noted(self, message: Message, count: int) -> None:
        """Record the arrival of a message at a process that knows only what the broker keeps."""
        self._noted[message.name] = count

    def crossed(self, message: Message, final: str) -> None:
        """Record a settlement that crossed a take-back and had no effect; no one can learn that.

        A dead message, and one whose consumer has closed, then starts without failures; a loss may recall more.
        """
        if self.dead[message.name] or final == "closed":
            self.maybe[message.kin] += self.failed[message.kin]
            self.forget(message)
        if self.dead[message.name]:
            self.again[message.kin].add(message.name)
            self._redriven[message.name] = message
            # Its present record, and its verdict, exist side by side.
            self._twice_known.add(message.name)

    def accepted(self, message: Message, step: int) -> None:
        """Record that the broker removed a message. Raises Violation if no handler succeeded with it, or its equal."""
        name, kin = message.name, message.kin
        if self.gone.get(name) == "copied":
            return
        if self.dead[name]:
            self.gone[name] = "dead"
            return
        others = [self.gone.get(each.name) for each in self._twins.get(message.key, ()) if each.name != name]
        if any(how != "twin" for how in others):
            # A second copy of one delivery: the other one is still there, or has had its own end.
            self.gone[name] = "twin"
            return
        self.gone[name] = "accepted"
        removed, successes = self.removed[kin], self.successes[kin]
        removed.append(message.sent)
        self.relaxation.accepted(kin)
        # They may change places, if there is a success for each.
        enough = kin in self.relaxation.alike and len(removed) <= len(successes)
        for sent in () if enough else removed:
            if sum(at >= sent for at in removed) <= sum(at > sent for at in successes):
                continue
            if not self.relaxation.covers(kin):
                raise Violation(
                    f"loss: {name} is accepted at step {step}, and no handler has succeeded with it"
                )
            # One for one: the success with its equal counts for it, too.
            successes.append(step)

    def lost(self) -> None:
        """Record the loss of the connection: it may have undone recent confirmations, of kin for any of them."""
        for name, message in self._lately.items():
            if self.size[message.kin] > 1:
                self.again[message.kin].add(name)
        self._lately.clear()
        for kin in self._copied_lately:
            # One of kin may be taken for one that was copied: "a count may change places".
            self._spent[kin] -= (self._tries - 1) * (self.size[kin] > 1)
        self._copied_lately.clear()

    def returned(self, message: Message) -> None:
        """Record that a message is on the queue again: if it is dead already, its verdict is carried out once more."""
        if self.dead[message.name]:
            self.again[message.kin].add(message.name)
            self._redriven[message.name] = message
            # Its present record, and its verdict, exist side by side.
            self._twice_known.add(message.name)
        if self.gone.get(message.name) == "copied":
            # The message and its copy exist: "both handled; a duplicate".
            del self.gone[message.name]
            self.size[message.kin] += 1
            # Both have the count.
            self._spent[message.kin] -= self._tries - 1

    def copied_before(self, message: Message) -> None:
        """Record that the broker dropped a second copy: only the first one exists."""
        self.gone[message.name] = "copied"
        self.size[message.kin] -= 1
        self.not_before.pop(message.name, None)

    def copied(self, message: Message, copy: Message) -> None:
        """Record a delayed copy at the broker; its original is to be accepted, and counts no more."""
        self._kin[copy.kin].append(copy)
        self.copies.add(message.name)
        self._begun_since.discard(message.name)
        self._copies_of[copy.kin] += 1
        twins = self._twins[copy.key]
        # A success with one of them counts for all, also if the broker has stored another one since.
        copy.sent = twins[0].sent if twins else copy.sent
        twins.append(copy)
        self._copied_lately.append(copy.kin)
        self.gone[message.name] = "copied"
        due = self.not_before.pop(message.name, None)
        if due is not None:
            # "A copy may come a second before it is due", and the due time is written in whole milliseconds.
            self.not_before[copy.name] = due - EARLY - 0.0005
            if message.name in self.deferred:
                self.deferred.add(copy.name)
        self.deferred.discard(message.name)

    def unanswered(self, message: Message) -> None:
        """Record that a closing consumer does not learn of a dead letter: kin may be taken for its message."""
        if self.size[message.kin] > 1:
            self.again[message.kin].add(message.name)

    def restored(self, message: Message) -> None:
        """Record that the broker forgot its last work."""
        name = message.name
        self.returned(message)
        if self.dead[name]:
            self._forgotten.add(name)
        if self.gone.pop(name, None) == "accepted" and not self.dead[name]:
            self.removed[message.kin].remove(message.sent)
        elif self.dead[name]:
            self.dead[name] -= 1

    def confirmed(self, message: Message, now: float) -> None:
        """Record that the library knows a dead letter as confirmed: its verdict is then kept for a while."""
        self._died_at[message.name] = now
        self._confirmed.add(message.name)
        self._unheard.discard(message.name)
        if self.size[message.kin] > 1:
            self._safe[message.kin] = min(self._safe[message.kin] + 1, self.judged[message.kin])

    def was_settled(self, message: Message) -> bool:
        """Return True if a message is known as dead, or copied."""
        name = message.name
        return (self.dead[name] > 0 or name in self.copies) and name not in self._begun_since

    def is_safe(self, name: str) -> bool:
        """Return True if the library knows a dead letter, or copy, as confirmed; else it makes it, however late."""
        return name in self._confirmed

    def past(self, message: Message) -> bool:
        """Return True if a dead letter was confirmed so long before the loss that its verdict was dropped."""
        return message.name in self._confirmed and message.name not in self._recalled

    def late(self, message: Message) -> None:
        """Record that a message arrives late in a connection: a verdict known as confirmed is dropped.

        "Poisoned, not confirmed: poison at once", however late; and a ledger keeps it until the original is accepted.
        """
        kin = message.kin
        if self.size[kin] > 1:
            # It is not known which verdict is left; those of confirmed dead letters are dropped.
            self.judged[kin] = max(0, self.judged[kin] - self._safe[kin])
            self._safe[kin] = 0
            if any(each.name in self._confirmed for each in self._kin[kin]):
                # The record may be that of the other one, whose dead letter is not confirmed.
                self.failed[kin] = max(0, self.failed[kin] - self._tries)
        elif message.name in self._confirmed and not self._shared and message.name not in self._twice_known:
            self.again[kin].discard(message.name)

    def outlived(self, brought: Collection[str]) -> None:
        """Record the loss of a long connection: verdicts of messages that it did not redeliver are dropped."""
        for message in [each for kin in self._kin.values() for each in kin]:
            if message.name in self._recalled and message.name not in brought:
                self.late(message)
                self._recalled.discard(message.name)
                self.dropped.add(message.name)

    def recalled(self, now: float) -> None:
        """Record a loss: recent verdicts are remembered until their message is redelivered."""
        for name, at in self._died_at.items():
            if now < at + ACKNOWLEDGED:
                self._recalled.add(name)
                if name in self._redriven:
                    self.again[self._redriven[name].kin].add(name)

    def redriven(self, message: Message, now: float, *, renumbered: bool) -> None:
        """Record that an operator put a dead letter back: it starts without failures, except for a recalled verdict.

        `renumbered`: nothing is known under its new number.
        """
        name = message.name
        del self.gone[name]
        self.dead[name] = 0
        self._lately.pop(name, None)
        self.forget(message)
        if renumbered:
            for known in (self._confirmed, self._recalled, self.copies, self.again[message.kin]):
                known.discard(name)
            self._died_at.pop(name)
            return
        self._redriven[name] = message
        young = now <= self._died_at[name] + ACKNOWLEDGED
        unsure = name in self._recalled or name in self._unheard or name in self._twice_known
        if young or unsure or name not in self._confirmed:
            self.again[message.kin].add(name)

    def died(self, message: Message, now: float, *, expired: bool) -> None:
        """Record a stored dead letter. Raises Violation if there was no reason for it."""
        kin = message.kin
        self._died_at[message.name] = now
        if self.size[kin] > 1 or message.name in self._begun_since:
            # A verdict of its own. Otherwise it is the earlier one, whose dead letter may be known as confirmed.
            self._confirmed.discard(message.name)
        if message.name in self._forgotten:
            # A killed broker forgot the one that it had confirmed; the answer to this one is outstanding.
            self._forgotten.discard(message.name)
            self._unheard.add(message.name)
        self._recalled.discard(message.name)
        self._begun_since.discard(message.name)
        self.dead[message.name] += 1
        if not expired:
            self._spend(message)
        self._lately[message.name] = message
        if self.size[kin] > 1:
            # It takes the verdict of one of its kin, which then has none and is not delayed. A ledger then forgets all.
            kept = [each.name for each in self._kin[kin] if each.name in self.not_before]
            kept.sort(key=self.not_before.__getitem__)
            for each in kept if self._shared else kept[-1:]:
                del self.not_before[each]
        if self.gone.get(message.name) == "accepted":
            raise Violation(f"dead and accepted: {message.name}")

    def set_aside(self, message: Message, many: int, *, expired: bool) -> None:
        """Record that poison is set aside, `many` of its kin now. Raises Violation if it is not poison."""
        kin = message.kin
        if not expired and not self._condemned[kin] and not self._exhausted(kin):
            raise Violation(f"aside: {message.name} is set aside, and is no poison")
        self.aside[kin] = max(self.aside[kin], many)

    def _spend(self, message: Message) -> None:
        kin = message.kin
        again = self.again[kin]
        if message.name not in again and self.owed[kin]:
            self.owed[kin] -= 1
            return
        if again:
            again.remove(message.name if message.name in again else min(again))
            return
        # A ledger's verdict is that of all kin, until its dead letter is confirmed.
        held = self._shared and self.size[kin] > 1 and self._condemned[kin] > 0
        if not held and not self._exhausted(kin):
            raise Violation(f"false dead letter: {message.name} after {self.failed[kin]} failures of its own")
        self._spent[kin] += max(1, self._tries - self.believed[kin])

    def _exhausted(self, kin: Hashable) -> bool:
        """Return True if a message failed too often: alone since the last success, kin together."""
        failed = self.failed[kin] + self.maybe[kin]
        if self.moved or self._shared:
            failed = self.ever[kin]
        elif self.size[kin] > 1:
            # A count may pass from one to the other; it does not exist twice.
            failed = self.ever[kin] - self._spent[kin]
        return failed > 0 and failed + self.believed[kin] >= self._tries

    def counted(self, message: Message, count: int) -> None:
        """Check the count that a handler gets: none is missing, and each is of a failure or of the broker's."""
        kin = message.kin
        if self.size[kin] > 1:
            return
        least, most = self.failed[kin], self.ever[kin] + self._condemned[kin] + message.count
        least = min(max(least, self._noted.pop(message.name, 0)), self._tries - 1)
        if not least <= count <= most:
            raise Violation(f"count: {message.name} is begun with {count}, not {least} to {most}")

    def _earliest(self, name: str) -> float:
        return self.not_before.get(name, 0.0) - self._slack.get(name, 0.0)

    def begins(self, message: Message, now: float, running: Sequence[Message]) -> None:
        """Record a dispatch; `running`: messages of other handlers that are waited for. Raises Violation."""
        name, kin = message.name, message.kin
        busy = {other.name for other in running if other.kin == kin}
        have = sum(other.kin == kin for other in running)
        if have >= self.size[kin]:
            raise Violation(f"overlap: {name} is begun while a handler has it")
        names = [each.name for each in self._kin[kin] if each.sent >= 0]
        if have + self.aside[kin] >= self.size[kin]:
            raise Violation(f"aside: {name} is begun, and was set aside before")
        # "Two equal copies: both handled": one may be taken for the other, which is no poison, or due.
        unsure = self.size[kin] > 1 and self._copies_of[kin]
        if not unsure and have + self.judged[kin] >= self.size[kin]:
            raise Violation(f"verdict: {name} is begun, and is poison")
        live = [each for each in names if each not in self.gone or each in self.elsewhere]
        wait = [at for each in live if each not in busy and (at := self._earliest(each)) > now + 1e-9]
        if not unsure and len(wait) + have >= len(live):
            raise Violation(f"early: {name} is begun at {now}, due at {min(wait, default=now)}")
        self.handled_again += bool(self.successes[kin])
        if self.size[kin] == 1:
            self._begun_since.add(name)
