"""Questions of one connection to Artemis' management: which may be asked now, and what follows from the answers.

No I/O: an adapter asks what `next_question` returns, over what it has, and brings what comes of it (`answered`,
`refused`, `unanswered`). Each of these returns calls that the adapter makes afterwards, without its lock.

A walk: a consumer starts (`find`), or a copy is to be sent (`look`); a rule of `artemis_places` yields its questions;
the adapter asks them; the last answer ends the rule, and is a call to who has asked.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.artemis_places import (
    ORIGIN,
    REPEATS,
    UNTOLD,
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
    from collections.abc import Callable, Generator, Iterable, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward
    from redelivery.core.dead_lettering.artemis_places import Queue

    Call = Callable[[], None]
    Placed = Callable[[Capabilities | None, RedeliveryError | None], None]
    Looked = Callable[[RedeliveryError | None], None]
    Asking = Generator[tuple[Question, ...], Sequence[Any], Any]

__all__ = ["FRESH", "LATE", "ArtemisManagement", "after_all"]

LATE = 5.0
"""Seconds without an answer after which there is none. Artemis answers in milliseconds; a broker whose management has
another address never does."""
FRESH = 5.0
"""Seconds for which an answer is used: a queue may be gone by then, or take other messages."""
PAUSE, LONGEST = 0.5, 30.0
"""Seconds between two tries to get an answer: the first one, and the longest."""
MANY = 1000
"""Answers that are kept at most, except those that are still used."""


def after_all(count: int, then: Looked) -> Looked:
    """Return a call for each of several looks: the last one calls `then`, with its error."""
    left = count

    def looked(error: RedeliveryError | None) -> None:
        nonlocal left
        left -= 1
        if not left:
            then(error)

    return looked


def _always() -> bool:
    return True


@dataclass(slots=True, eq=False)
class _Dialogue:
    """A rule that yields its questions."""

    begin: Callable[[], Asking]
    end: Callable[[Any, RedeliveryError | None, float], None]
    """Gets what the rule returns, or why there is no answer; and the time."""
    first: bool
    """True: it is of a named place, for which a copy waits, or a consumer that need not know more."""
    wanted: Callable[[], bool] = _always
    """False: its consumer has been closed."""
    since: int = 0
    """Number of the last question before it, if only later answers are of use."""
    losses: int = 0
    asking: Asking | None = None
    questions: tuple[Question, ...] = ()
    replies: dict[Question, Any] = field(default_factory=dict[Question, Any])

    @property
    def missing(self) -> list[Question]:
        """Questions without a reply."""
        return [each for each in self.questions if each not in self.replies]


@dataclass(slots=True)
class _Awaited:
    """The consumers and copies that wait for the queues of one place, by their calls."""

    then: list[Looked]
    later: list[Looked]
    """Those that want them as they are after this was asked."""


class ArtemisManagement:
    """Questions for the consumers and copies of one connection. An answer counts for `FRESH` seconds.

    Without an answer no place is guessed: a consumer without a named place waits, and a named place counts as good,
    while one of them is asked for in the background. If this user may not ask, the place is the usual one; the first
    consumer has a caution.

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
        # Questions that await their answers, each with its number; and how often the management has stumbled over one.
        self._asked: dict[Question, int] = {}
        self._number = 0
        self._stumbles: Counter[Question] = Counter()
        # Rules that have not ended, and those that miss a reply, by question.
        self._dialogues: dict[_Dialogue, None] = {}
        self._missed: dict[Question, dict[_Dialogue, None]] = {}
        # Questions to be asked: those for named places, and then the others.
        self._soon: deque[Question] = deque()
        self._later: deque[Question] = deque()
        self._looks: dict[str, _Awaited] = {}
        # Destinations of consumers that wait for their own place.
        self._waiting: Counter[str] = Counter()
        self._calls: list[Call] = []
        # Why the broker answers this user no question.
        self._refusal: AdapterError | None = None
        self._cautioned = self._warned = self._over = False
        # True while the management counts as silent; and the place that is asked for in the background.
        self._silent = False
        self._probe = ""
        self._pause, self._resume = PAUSE, 0.0

    # What is known.

    def unknown(self, place: str, now: float) -> bool:
        """Return True if the queues of a place are still to be asked for."""
        # A topic keeps what its subscribers keep: who names one wants that.
        if self._silent or self._refusal is not None or place.startswith("topic://"):
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

    def dropped(self, place: str, source: str, *, refused: bool) -> str:
        """Return why dead letters of a queue may be dropped at a place; empty: none is, or not known.

        `source`: its address, also with its name. `refused`: see `dropped_at`.
        """
        queues = self.queues(place)
        if queues is None:
            return ""
        origin = source.partition("::")[0]
        return dropped_at(Destination.parse(self.alone(place)), queues, origin, refused=refused)

    def drops(self, command: Forward, source: str, *, refused: bool) -> str:
        """Return why the place of a copy would drop it; empty: it does not, or this is not known. See `dropped`."""
        if command.back:
            return ""
        # As the copy names it: the queue may belong to an address of another name.
        origin = str(dict(command.marks).get(ORIGIN) or source)
        return self.dropped(command.copy.destination, origin, refused=refused)

    def caution(self, places: Sequence[str]) -> str:
        """Return the caution of the first consumer about its places if this user may not ask; else empty."""
        named = [each for each in places if not each.startswith("topic://")]
        if self._refusal is None or self._cautioned or not named:
            return ""
        self._cautioned = True
        address = str(self._able.management_address)
        return (
            f"{UNTOLD} this user which queues {', '.join(named)} has ({self._refusal}): Artemis "
            f"confirms a dead letter that no queue there takes, and drops it; give this user {rights(address)}"
        )

    # What is wanted.

    def find(
        self, destination: str, then: Placed, now: float, wanted: Callable[[], bool] = _always
    ) -> list[Call]:
        """Find where the broker's own settings put the dead letters of a destination.

        `then` gets the capabilities with the place; or an error, if the place cannot be used. `wanted` returns False
        when the consumer has been closed: nothing more is asked for it.
        """
        if self._refusal is not None:
            return [partial(then, self._able, None)]
        self._waiting[destination] += 1
        end = partial(self._found, destination, then)
        self._begin(_Dialogue(partial(_placed, destination), end, first=False, wanted=wanted), now)
        return self._taken()

    def look(self, place: str, then: Looked, now: float, *, again: bool = False) -> list[Call]:
        """Ask for the queues of a place. `again`: as they are from now on, also if they are known.

        `then` gets an error only if the connection of the consumers is lost.
        """
        look = self._looks.get(place)
        if not self._silent and look is not None:
            (look.later if again else look.then).append(then)
        elif self.unknown(place, now) or (again and not self._silent and self._refusal is None):
            self._look(place, [then], now, again=again)
        else:
            self._calls.append(partial(then, None))
        return self._taken()

    def next_question(self, now: float) -> Question | None:
        """Return the question to be asked now, and note that it is; None: there is none."""
        postponed = now < self._resume
        if self._silent and self._probe and not postponed and not self._dialogues:
            self._look(self._probe, [], now, again=False)
        for waiting in (self._soon,) if postponed else (self._soon, self._later):
            while waiting:
                question = waiting.popleft()
                if question not in self._asked and self._that_miss(question):
                    self._number += 1
                    self._asked[question] = self._number
                    return question
        return None

    @property
    def due(self) -> float | None:
        """Time from which there may be a question; None: no answer is awaited."""
        if self._soon:
            return 0.0
        return self._resume if self._dialogues or (self._silent and self._probe) else None

    @property
    def awaits(self) -> bool:
        """True if a question awaits its answer."""
        return bool(self._asked)

    # What comes of a question.

    def answered(self, question: Question, value: Any, now: float) -> list[Call]:
        """Handle an answer, also a late one."""
        number = self._asked.pop(question, 0)
        self._stumbles.pop(question, None)
        self._warned = self._silent = False
        self._pause, self._resume = PAUSE, 0.0
        if not question.changes:
            self._keep(question, value, now)
        missed = self._that_miss(question)
        self._missed.pop(question, None)
        for dialogue in missed:
            if dialogue.since and number <= dialogue.since:
                # It was asked before somebody wanted it again.
                self._miss(dialogue, (question,))
                continue
            dialogue.replies[question] = value
            self._go_on(dialogue, now)
        return self._taken()

    def refused(self, question: Question, error: AdapterError, now: float) -> list[Call]:
        """Handle a refusal. What the management has stumbled over is asked again, some times; then after a pause."""
        self._asked.pop(question, None)
        missed = self._that_miss(question)
        self._missed.pop(question, None)
        if not error.passes:
            for dialogue in missed:
                self._advance(dialogue, error, now)
            return self._taken()
        self._stumbles[question] += 1
        often = self._stumbles[question] > REPEATS
        if often:
            del self._stumbles[question]
            self._postpone(now)
        for dialogue in missed:
            if not often:
                self._miss(dialogue, (question,))
            elif dialogue.first:
                self._end(dialogue, None, None, now)
            else:
                self._restart(dialogue, now)
        return self._taken()

    def unanswered(self, why: str, now: float, *, silent: bool) -> list[Call]:
        """Note that what was asked has no answer: it is asked again, after a pause.

        A question for a named place is asked again at once, and once: it may be the connection that was lost. `silent`:
        nothing has answered in time, or nothing can be asked; then no consumer with a named place waits any longer.
        """
        told = silent or self._pause > PAUSE
        for each in (self._asked, self._missed, self._soon, self._later):
            each.clear()
        self._postpone(now)
        for dialogue in list(self._dialogues):
            dialogue.losses += 1
            silent = silent or (dialogue.first and dialogue.losses > 1)
        if silent:
            self._silent = True
            self._probe = next(iter(self._looks), self._probe)
        for dialogue in list(self._dialogues):
            if dialogue.first and silent:
                self._end(dialogue, None, None, now)
            else:
                # What it knows may be old by then.
                self._restart(dialogue, now)
        if told or silent:
            self._tell(why)
        return self._taken()

    def end(self, error: RedeliveryError) -> list[Call]:
        """Answer all that wait with an error: the connection of the consumers was lost. Nothing is asked any more."""
        self._over, self._probe = True, ""
        self._end_all(error)
        return self._taken()

    # Dialogues.

    def _taken(self) -> list[Call]:
        calls, self._calls = self._calls, []
        return calls

    def _postpone(self, now: float) -> None:
        self._resume = now + self._pause
        self._pause = min(2 * self._pause, LONGEST)

    def _keep(self, question: Question, value: Any, now: float) -> None:
        """Keep an answer for consumers without a named place; lists of queues are kept by place."""
        if all(each.first for each in self._that_miss(question)):
            return
        if len(self._answers) >= MANY:
            self._answers = {each: known for each, known in self._answers.items() if known[0] > now}
        self._answers[question] = now + FRESH, value

    def _look(self, place: str, then: list[Looked], now: float, *, again: bool) -> None:
        self._looks[place] = _Awaited(then, [])
        begin = partial(queues_at, Destination.parse(place))
        since = self._number if again else 0
        self._begin(_Dialogue(begin, partial(self._looked, place), first=True, since=since), now)

    def _begin(self, dialogue: _Dialogue, now: float) -> None:
        self._dialogues[dialogue] = None
        self._restart(dialogue, now)

    def _restart(self, dialogue: _Dialogue, now: float) -> None:
        dialogue.asking = dialogue.begin()
        self._advance(dialogue, None, now)

    def _that_miss(self, question: Question) -> list[_Dialogue]:
        """Return the rules that wait for a question's reply."""
        return [
            each
            for each in self._missed.get(question, ())
            if each in self._dialogues and question in each.questions and question not in each.replies
        ]

    def _miss(self, dialogue: _Dialogue, questions: Iterable[Question]) -> None:
        """Note questions that a rule waits for, to be asked."""
        for each in questions:
            self._missed.setdefault(each, {})[dialogue] = None
            (self._soon if dialogue.first else self._later).append(each)

    def _go_on(self, dialogue: _Dialogue, now: float) -> None:
        """Give a rule the replies, once all are there."""
        if not dialogue.missing:
            self._advance(dialogue, [dialogue.replies[each] for each in dialogue.questions], now)

    def _advance(self, dialogue: _Dialogue, given: list[Any] | AdapterError | None, now: float) -> None:
        """Take the next questions of a rule, or its end. `given`: the replies, or a refusal; None: it begins."""
        if not dialogue.wanted():
            self._end(dialogue, None, None, now)
            return
        asking = dialogue.asking
        assert asking is not None, "it has begun"
        try:
            questions = asking.throw(given) if isinstance(given, AdapterError) else asking.send(given)  # type: ignore[arg-type]
        except StopIteration as end:
            self._end(dialogue, end.value, None, now)
        except AdapterError as error:
            self._refuse(error)
        else:
            known = {} if dialogue.first else self._answers
            dialogue.questions = questions
            dialogue.replies = {
                each: known[each][1]
                for each in questions
                if not each.changes and each in known and known[each][0] > now
            }
            self._miss(dialogue, dialogue.missing)
            self._go_on(dialogue, now)

    def _refuse(self, error: AdapterError) -> None:
        """End all questions: the broker does not answer this user."""
        self._refusal = error
        self._end_all(error)

    def _end_all(self, error: RedeliveryError) -> None:
        for dialogue in list(self._dialogues):
            self._end(dialogue, None, error, 0.0)
        for each in (self._asked, self._missed, self._soon, self._later):
            each.clear()

    def _end(self, dialogue: _Dialogue, value: Any, error: RedeliveryError | None, now: float) -> None:
        if dialogue in self._dialogues:
            del self._dialogues[dialogue]
            dialogue.end(value, error, now)

    def _found(
        self, destination: str, then: Placed, found: Any, error: RedeliveryError | None, now: float
    ) -> None:
        """Handle the end of the questions for one consumer. `found`: its place, or why it cannot begin."""
        del now
        self._waiting[destination] -= 1
        if not self._waiting[destination]:
            del self._waiting[destination]
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
            self._look(place, look.later, now, again=True)
        else:
            self._calls += [partial(then, told) for then in look.later]

    def _tell(self, why: str) -> None:
        """Warn once that consumers wait."""
        if not self._waiting or self._warned:
            return
        self._warned = True
        names = list(self._waiting)
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        text = (
            f"{', '.join(names[:10])}{more}: no message is taken before the broker has told where its own settings put "
            f"dead letters ({self._able.management_address}): {why}. It is asked again; a consumer with a named place "
            "(redelivery.deadLetterDestination, dead_letter=) does not wait for that"
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
