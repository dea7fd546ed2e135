"""Questions of one connection to Artemis' management: which may be asked now, and what follows from the answers.

No I/O: an adapter asks what `next_question` returns, over what it has, and brings what comes of it (`answered`,
`refused`, `silent`, `lost`). Each of these returns calls that the adapter makes afterwards, without its lock.

A walk: a consumer starts (`find`), or a copy is to be sent (`look`); a rule of `artemis_places` yields its questions;
the adapter asks them; the last answer ends the rule, and is a call to who has asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.artemis_places import (
    REPEATS,
    Question,
    alone_at,
    dropped_at,
    own_place,
    own_place_error,
    queues_at,
    rights,
    unusable,
    with_own_place,
    without_answer,
)
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError, RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.artemis_places import Queue

    Call = Callable[[], None]
    Placed = Callable[[Capabilities | None, RedeliveryError | None], None]
    Looked = Callable[[RedeliveryError | None], None]
    Asking = Generator[tuple[Question, ...], Sequence[Any], Any]

__all__ = ["FRESH", "LATE", "ArtemisManagement", "Looked", "Placed"]

LATE = 5.0
"""Seconds without an answer after which there is none. Artemis answers in milliseconds; a broker whose management has
another address never does."""
FRESH = 5.0
"""Seconds for which an answer is used: a queue may be gone by then, or take other messages."""
PAUSE, LONGEST = 0.5, 30.0
"""Seconds between two tries to find a consumer's own place: the first one, and the longest, for which nothing else is
asked either of a management that is silent."""


@dataclass(slots=True, eq=False)
class _Dialogue:
    """A rule that yields its questions."""

    asking: Asking
    end: Callable[[Any, RedeliveryError | None, float], None]
    """Gets what the rule returns, or why there is no answer; and the time."""
    questions: tuple[Question, ...] = ()
    replies: dict[Question, Any] = field(default_factory=dict[Question, Any])
    losses: int = 0

    @property
    def missing(self) -> list[Question]:
        """Questions without a reply."""
        return [each for each in self.questions if each not in self.replies]


@dataclass(slots=True)
class _Awaited:
    """Who waits for the queues of one place."""

    then: list[Looked]
    later: list[Looked]
    """Those who want them as they are after this was asked."""


class ArtemisManagement:
    """Questions for the consumers and copies of one connection. An answer counts for `FRESH` seconds.

    Without an answer no place is guessed: a consumer without a named place waits, and a named place counts as good. If
    this user may not ask, the place is the usual one; the first consumer has a caution.

    Args:
        able: Capabilities of the broker.
        warn: Gets a sentence when consumers wait for an answer that does not come; once, until the next answer.
    """

    def __init__(self, able: Capabilities, warn: Callable[[str], None]) -> None:
        """Nothing is asked yet."""
        self._able, self._warn = able, warn
        # Each with the time until which it is used.
        self._answers: dict[Question, tuple[float, Any]] = {}
        self._lists: dict[str, tuple[float, Sequence[Queue]]] = {}
        # Questions that await their answers; and how often the management has stumbled over one.
        self._asked: set[Question] = set()
        self._stumbles: Counter[Question] = Counter()
        # Looks at named places come first: a copy waits for them, or a consumer that need not know more.
        self._looking: list[_Dialogue] = []
        self._finding: list[_Dialogue] = []
        self._looks: dict[str, _Awaited] = {}
        # Destinations of consumers that wait for their own place.
        self._waiting: list[str] = []
        self._calls: list[Call] = []
        # Why the broker answers this user no question.
        self._refusal: AdapterError | None = None
        self._cautioned = self._warned = self._over = False
        # Time until which the management counts as silent.
        self._silent = 0.0
        self._pause, self._resume = PAUSE, 0.0

    # What is known.

    def unknown(self, place: str, now: float) -> bool:
        """Return True if the queues of a place are still to be asked for."""
        # A topic keeps what its subscribers keep: who names one wants that.
        if now < self._silent or self._refusal is not None or place.startswith("topic://"):
            return False
        known = self._lists.get(place)
        return known is None or known[0] <= now

    def queues(self, place: str) -> Sequence[Queue] | None:
        """Return the queues of a place by the last answer; None: there is none."""
        known = self._lists.get(place)
        return None if known is None else known[1]

    def alone(self, place: str) -> str:
        """Return the destination that reaches the queue of a place, and no other one of its address."""
        queues = self.queues(place)
        return place if queues is None else alone_at(Destination.parse(place), queues) or place

    def dropped(self, place: str, origin: str, *, refused: bool) -> str:
        """Return why dead letters of the address `origin` may be dropped at a place; empty: none is, or not known.

        `refused`: see `dropped_at`.
        """
        queues = self.queues(place)
        if queues is None:
            return ""
        return dropped_at(Destination.parse(self.alone(place)), queues, origin, refused=refused)

    def caution(self, places: Sequence[str]) -> str:
        """Return the caution of the first consumer about its places if this user may not ask; else empty."""
        named = [each for each in places if not each.startswith("topic://")]
        if self._refusal is None or self._cautioned or not named:
            return ""
        self._cautioned = True
        address = str(self._able.management_address)
        return (
            f"the broker does not tell this user which queues {', '.join(named)} has ({self._refusal}): Artemis "
            f"confirms a dead letter that no queue there takes, and drops it; give this user {rights(address)}"
        )

    # What is wanted.

    def find(self, destination: str, then: Placed, now: float) -> list[Call]:
        """Find where the broker's own settings put the dead letters of a destination.

        `then` gets the capabilities with the place; or an error, if the place cannot be used.
        """
        if self._refusal is not None:
            return [partial(then, self._able, None)]
        self._waiting.append(destination)
        dialogue = _Dialogue(_placed(destination), partial(self._found, destination, then))
        self._finding.append(dialogue)
        self._advance(dialogue, partial(next, dialogue.asking), now)
        return self._taken()

    def look(self, place: str, then: Looked, now: float, *, again: bool = False) -> list[Call]:
        """Ask for the queues of a place. `again`: as they are from now on, also if they are known.

        `then` gets an error only if the connection of the consumers is lost.
        """
        look = self._looks.get(place)
        if look is not None:
            (look.later if again else look.then).append(then)
        elif self.unknown(place, now) or (again and now >= self._silent and self._refusal is None):
            self._look(place, [then], now)
        else:
            self._calls.append(partial(then, None))
        return self._taken()

    def next_question(self, now: float) -> Question | None:
        """Return the question to be asked now, and note that it is; None: there is none."""
        ready: list[_Dialogue] = [*self._looking, *(self._finding if self._resume <= now else [])]
        for dialogue in ready:
            for question in dialogue.missing:
                if question not in self._asked:
                    self._asked.add(question)
                    return question
        return None

    @property
    def due(self) -> float | None:
        """Time from which there may be a question; None: nobody waits for an answer."""
        if self._looking:
            return 0.0
        return self._resume if self._finding else None

    @property
    def awaits(self) -> bool:
        """True if a question awaits its answer, and somebody waits for that."""
        return bool(self._asked) and bool(self._looking or self._finding)

    # What comes of a question.

    def answered(self, question: Question, value: Any, now: float) -> list[Call]:
        """Handle an answer, also a late one."""
        self._asked.discard(question)
        self._stumbles.pop(question, None)
        self._warned, self._silent = False, 0.0
        self._pause, self._resume = PAUSE, 0.0
        if not question.changes:
            self._answers[question] = now + FRESH, value
        for dialogue in self._that_miss(question):
            dialogue.replies[question] = value
            self._go_on(dialogue, now)
        return self._taken()

    def refused(self, question: Question, error: AdapterError, now: float) -> list[Call]:
        """Handle a refusal. One over which the management has stumbled is asked again, some times."""
        self._asked.discard(question)
        if error.passes:
            self._stumbles[question] += 1
            if self._stumbles[question] <= REPEATS:
                return []
        self._stumbles.pop(question, None)
        for dialogue in self._that_miss(question):
            self._advance(dialogue, partial(dialogue.asking.throw, error), now)
        return self._taken()

    def silent(self, why: str, now: float) -> list[Call]:
        """Note that nothing has answered in time: only consumers without a named place wait any longer."""
        self._silent = now + LONGEST
        for dialogue in list(self._looking):
            self._end(dialogue, None, None, now)
        # Others may be asked again: their answers have got lost.
        self._asked = {each for each in self._asked if self._that_miss(each)}
        self._tell(why)
        return self._taken()

    def lost(self, why: str, now: float) -> list[Call]:
        """Note that the connection for questions was lost, or cannot be had: they are asked again, after a pause.

        One for a named place is asked again at once, and once.
        """
        self._asked.clear()
        again = self._pause > PAUSE
        self._resume = now + self._pause
        self._pause = min(2 * self._pause, LONGEST)
        for dialogue in self._looking:
            dialogue.losses += 1
        if any(dialogue.losses > 1 for dialogue in self._looking):
            return self.silent(why, now)
        if again:
            self._tell(why)
        return self._taken()

    def end(self, error: RedeliveryError) -> list[Call]:
        """Tell all who wait that the connection of the consumers was lost. Nothing is asked any more."""
        self._over = True
        for dialogue in (*self._looking, *self._finding):
            self._end(dialogue, None, error, 0.0)
        return self._taken()

    # Dialogues.

    def _taken(self) -> list[Call]:
        calls, self._calls = self._calls, []
        return calls

    def _that_miss(self, question: Question) -> list[_Dialogue]:
        return [each for each in (*self._looking, *self._finding) if question in each.missing]

    def _look(self, place: str, then: list[Looked], now: float) -> None:
        self._looks[place] = _Awaited(then, [])
        dialogue = _Dialogue(queues_at(Destination.parse(place)), partial(self._looked, place))
        self._looking.append(dialogue)
        self._advance(dialogue, partial(next, dialogue.asking), now)

    def _go_on(self, dialogue: _Dialogue, now: float) -> None:
        """Give a rule the replies, once all are there."""
        if not dialogue.missing:
            replies = [dialogue.replies[each] for each in dialogue.questions]
            self._advance(dialogue, partial(dialogue.asking.send, replies), now)

    def _advance(self, dialogue: _Dialogue, step: Callable[[], tuple[Question, ...]], now: float) -> None:
        """Take the next questions of a rule, or its end."""
        try:
            questions = step()
        except StopIteration as end:
            self._end(dialogue, end.value, None, now)
        except AdapterError as error:
            if error.passes:
                self._end(dialogue, None, error, now)
            else:
                self._refuse(error)
        else:
            known = {} if dialogue in self._looking else self._answers
            dialogue.questions = questions
            dialogue.replies = {
                each: known[each][1] for each in questions if each in known and known[each][0] > now
            }
            self._go_on(dialogue, now)

    def _refuse(self, error: AdapterError) -> None:
        """End all questions: the broker does not answer this user."""
        self._refusal = error
        for dialogue in (*self._looking, *self._finding):
            self._end(dialogue, None, error, 0.0)

    def _end(self, dialogue: _Dialogue, value: Any, error: RedeliveryError | None, now: float) -> None:
        for each in (self._looking, self._finding):
            if dialogue in each:
                each.remove(dialogue)
                dialogue.end(value, error, now)

    def _found(
        self, destination: str, then: Placed, found: Any, error: RedeliveryError | None, now: float
    ) -> None:
        """Handle the end of the questions for one consumer. `found`: its place, or why it cannot begin."""
        del now
        self._waiting.remove(destination)
        able: Capabilities | None = None
        if error is None and isinstance(found, RedeliveryError):
            error = found
        elif error is None:
            able = with_own_place(self._able, found)
        elif self._refusal is not None and error is self._refusal and not self._over:
            able = self._able if self._cautioned else without_answer(self._able, self._refusal)
            self._cautioned, error = True, None
        self._calls.append(partial(then, able, error))

    def _looked(self, place: str, queues: Any, error: RedeliveryError | None, now: float) -> None:
        """Handle the end of the questions for one place."""
        look = self._looks.pop(place)
        if queues is not None:
            self._lists[place] = now + FRESH, queues
        told = error if self._over else None
        self._calls += [partial(then, told) for then in look.then]
        if look.later and queues is not None:
            self._look(place, look.later, now)
        else:
            self._calls += [partial(then, told) for then in look.later]

    def _tell(self, why: str) -> None:
        """Warn once that consumers wait."""
        if not self._waiting or self._warned:
            return
        self._warned = True
        text = (
            f"{', '.join(dict.fromkeys(self._waiting))}: no message is taken before the broker has told where its own "
            f"settings put dead letters ({self._able.management_address}): {why}. It is asked again; a consumer whose "
            "place is named (redelivery.deadLetterDestination, dead_letter=) does not wait for that"
        )
        self._calls.append(partial(self._warn, text))


def _placed(destination: str) -> Asking:
    """Yield the questions for a consumer's place, and the one that makes its queue; return it, or why it is none."""
    place = yield from own_place(Destination.parse(destination))
    if place is None:
        return None
    if (wrong := own_place_error(destination, place)) is not None:
        return wrong
    if place.make is not None:
        try:
            yield (place.make,)
        except AdapterError as error:
            return unusable(place, str(error))
    return place
