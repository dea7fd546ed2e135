"""Questions to Artemis' management in virtual time: who asks first, who waits, and what an answer is used for."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.brokers.artemis import ARTEMIS
from redelivery.core.dead_lettering.artemis_management import FRESH, LONGEST, MANY, PAUSE, ArtemisManagement
from redelivery.core.dead_lettering.artemis_places import REPEATS
from redelivery.errors import AdapterError, ConfigurationError, TransportError

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.artemis_management import Call
    from redelivery.core.dead_lettering.artemis_places import Question
    from redelivery.errors import RedeliveryError

QUEUE = {"name": "q", "address": "q", "filter": "", "routingType": "ANYCAST"}
STUMBLE = AdapterError('Cannot invoke "X"', passes=True)
NO_RIGHT = AdapterError("AMQ229032 no permission")
WHY = "no answer within 5 s"


class Asker:
    """An adapter of a broker whose queues with dead letters are at DLQ; it follows the tests."""

    def __init__(self) -> None:
        self.now = 100.0
        self.warnings: list[str] = []
        self.management = ArtemisManagement(ARTEMIS.always, self.warnings.append)
        self.found: dict[str, Capabilities | RedeliveryError | None] = {}
        self.looked: Counter[str] = Counter()
        self.errors: list[RedeliveryError] = []
        self.queues = [QUEUE, {**QUEUE, "name": "DLQ", "address": "DLQ"}]
        self.address = "DLQ"
        self.asked: list[str] = []

    def do(self, calls: list[Call]) -> None:
        for call in calls:
            call()

    def find(self, name: str) -> None:
        def then(able: Capabilities | None, error: RedeliveryError | None) -> None:
            assert name not in self.found, "told once"
            self.found[name] = able if error is None else error

        self.do(self.management.find(f"queue://{name}", then, self.now))

    def look(self, name: str = "q", *, again: bool = False, kind: str = "queue") -> None:
        def then(error: RedeliveryError | None) -> None:
            self.looked[name] += 1
            if error is not None:
                self.errors.append(error)

        self.do(self.management.look(f"{kind}://{name}", then, self.now, again=again))

    def next(self) -> Question | None:
        question = self.management.next_question(self.now)
        if question is not None:
            self.asked.append(question.operation)
        return question

    def value(self, question: Question) -> Any:
        if question.operation == "getAddressSettingsAsJSON":
            return json.dumps({"deadLetterAddress": self.address})
        if question.operation == "createQueue":
            return "{}"
        wanted = json.loads(question.arguments[0])
        return json.dumps(
            {"data": [each for each in self.queues if each[wanted["field"].lower()] == wanted["value"]]}
        )

    def answer(self, question: Question) -> None:
        self.do(self.management.answered(question, self.value(question), self.now))

    def answer_all(self) -> None:
        while (question := self.next()) is not None:
            self.answer(question)


@pytest.fixture
def asker() -> Asker:
    """Return such an adapter."""
    return Asker()


def test_a_place_by_the_brokers_settings(asker: Asker) -> None:
    """The consumer gets the capabilities with the place once the last question is answered."""
    asker.find("orders")
    asker.answer_all()
    found: Any = asker.found["orders"]
    assert (found.dead_letter_destination, found.own_dead_letters) == (
        "queue://DLQ",
        "the dead-letter-address of orders",
    )
    assert asker.management.due is None


def test_a_missing_queue_is_made_anew_each_time(asker: Asker) -> None:
    """A question that changes something at the broker is asked by each consumer, also just after another one."""
    asker.address = "DLA"
    for name in ("a", "a2"):
        asker.find(name)
        asker.answer_all()
    assert asker.asked.count("createQueue") == 2
    assert all(not isinstance(each, AdapterError) for each in asker.found.values())


def test_a_queue_that_cannot_be_made_refuses_its_consumer_only(asker: Asker) -> None:
    """The place is known, and there is no other right one; other consumers are asked for as before."""
    asker.address = "DLA"
    asker.find("a")
    while (question := asker.next()) is not None:
        if question.operation == "createQueue":
            asker.do(asker.management.refused(question, NO_RIGHT, asker.now))
        else:
            asker.answer(question)
    assert "no permission" in str(asker.found["a"])
    asker.address = "DLQ"
    asker.now += FRESH
    asker.find("b")
    asker.answer_all()
    assert not isinstance(asker.found["b"], AdapterError)


def test_a_consumer_of_its_own_place_is_refused(asker: Asker) -> None:
    """It would get its own dead letters."""
    asker.find("DLQ")
    asker.answer_all()
    assert isinstance(asker.found["DLQ"], ConfigurationError)


def test_a_named_place_comes_first(asker: Asker) -> None:
    """Consumers without a named place wait behind it, however many they are."""
    for name in "abcde":
        asker.find(name)
    asker.look()
    for _ in range(2):
        question = asker.next()
        assert question is not None
        assert question.operation == "listQueues"
        asker.answer(question)
    assert asker.looked["q"] == 1
    assert asker.found == {}


def test_a_silent_management_keeps_nobody_with_a_named_place(asker: Asker) -> None:
    """They go on together, and nothing is asked for them for a while; the others wait, and that is said once."""
    for name in "abcde":
        asker.find(name)
    asker.next()
    for _ in range(3):
        asker.look()
    asker.look("other")
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    assert (asker.looked, asker.found) == ({"q": 3, "other": 1}, {})
    asker.look()
    assert asker.looked["q"] == 4, "at once"
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    (warning,) = asker.warnings
    assert "queue://a, queue://b, queue://c" in warning
    assert WHY in warning
    assert "activemq.management" in warning
    asker.now += LONGEST
    assert not asker.management.unknown("queue://q", asker.now)
    asker.answer_all()
    assert set(asker.found) == set("abcde")
    assert asker.management.unknown("queue://q", asker.now)


def test_an_answer_ends_the_silence(asker: Asker) -> None:
    """Places are asked for again at once, and the next silence is another warning."""
    asker.find("a")
    question = asker.next()
    assert question is not None
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    asker.answer(question)
    assert asker.management.unknown("queue://q", asker.now)
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    assert len(asker.warnings) == 2
    asker.now += LONGEST
    asker.answer_all()
    assert "a" in asker.found


def test_a_lost_answer_keeps_nobody_for_ever(asker: Asker) -> None:
    """The question that several consumers share is asked again after a silence."""
    for name in "abc":
        asker.find(name)
    asker.next()
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    assert asker.next() is None, "after a pause"
    asker.now += PAUSE
    asker.answer_all()
    assert set(asker.found) == set("abc")


def test_nobody_waits_for_the_question_that_ends_a_silence(asker: Asker) -> None:
    """While the management is silent, one place is asked for in the background, less and less often."""
    asker.look()
    asker.next()
    times = []
    for _ in range(8):
        asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
        asker.look()
        due = asker.management.due
        assert due is not None
        times.append(due - asker.now)
        asker.now = due
        assert asker.next() is not None
    assert times == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert asker.looked["q"] == 9
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    asker.now += LONGEST
    asker.answer_all()
    assert asker.management.queues("queue://q") == [QUEUE]
    assert asker.management.due is None


def test_what_was_answered_before_a_silence_is_asked_again(asker: Asker) -> None:
    """The operator may have changed it meanwhile: no queue is made by old settings."""
    asker.find("a")
    while (question := asker.next()) is not None and "Settings" in question.operation:
        asker.answer(question)
    asker.address = "moved"
    asker.queues.append({**QUEUE, "name": "moved", "address": "moved"})
    for _ in range(12):
        asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
        asker.now += LONGEST
    asker.answer_all()
    found: Any = asker.found["a"]
    assert found.dead_letter_destination == "queue://moved"
    assert "createQueue" not in asker.asked


def test_nothing_is_asked_for_a_consumer_that_has_been_closed(asker: Asker) -> None:
    """Its call is made, and no queue."""
    asker.address, told = "DLA", []
    asker.do(asker.management.find("queue://a", lambda *given: told.append(given), asker.now, lambda: False))
    asker.answer_all()
    assert len(told) == 1
    assert asker.asked == []


def test_old_answers_are_not_kept(asker: Asker) -> None:
    """Thousands of destinations over days leave no thousands of answers."""
    for number in range(3 * MANY):
        asker.find(f"orders.{number}")
        asker.answer_all()
        asker.now += FRESH
    assert len(asker.management._answers) <= MANY + 10


def test_after_a_silence_nothing_asked_for_a_place_is_waited_for(asker: Asker) -> None:
    """Its answer has got lost: the next one who wants to know asks again."""
    asker.look()
    assert asker.next() is not None
    asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
    asker.now += LONGEST
    asker.answer_all()
    asker.look()
    asker.answer_all()
    assert asker.looked["q"] == 2
    assert asker.management.queues("queue://q") == [QUEUE]


def test_pauses_between_tries_over_a_lost_connection_grow(asker: Asker) -> None:
    """No question is asked before a pause has passed; each is twice as long as the one before, at most 30 s."""
    asker.find("a")
    pauses = []
    for _ in range(9):
        assert asker.next() is not None
        asker.do(asker.management.unanswered("cut", asker.now, silent=False))
        assert asker.next() is None
        due = asker.management.due
        assert due is not None
        pauses.append(due - asker.now)
        asker.now = due
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert len(asker.warnings) == 1, "the second loss: one can be chance"
    asker.answer_all()
    assert "a" in asker.found


def test_a_named_place_is_asked_for_twice_over_a_lost_connection(asker: Asker) -> None:
    """Once more at once, and then it counts as good; one loss is neither silence nor a refusal."""
    asker.look()
    for told in (0, 1):
        assert asker.next() is not None
        asker.do(asker.management.unanswered("cut", asker.now, silent=False))
        assert asker.looked["q"] == told
    assert not asker.management.unknown("queue://q", asker.now)


def test_a_stumble_is_asked_again(asker: Asker) -> None:
    """Nine times; then a place counts as not asked for, and a consumer's is asked for after a pause."""
    asker.find("a")
    asker.look()
    for _ in range(5 * (REPEATS + 1)):
        if (question := asker.next()) is not None:
            asker.do(asker.management.refused(question, STUMBLE, asker.now))
    assert asker.found == {}
    assert asker.looked["q"] == 1
    assert len(asker.asked) <= 3 * (REPEATS + 1)
    asker.now += LONGEST
    asker.answer_all()
    assert "a" in asker.found
    assert asker.management.unknown("queue://q", asker.now)


def test_without_the_right_everybody_goes_on(asker: Asker) -> None:
    """The place is the usual one, named ones count as good, and only one consumer has a caution."""
    for name in "abc":
        asker.find(name)
    asker.look()
    question = asker.next()
    assert question is not None
    asker.do(asker.management.refused(question, NO_RIGHT, asker.now))
    asker.find("d")
    asker.look()
    cautions = [found.caution for found in asker.found.values() if not isinstance(found, Exception) and found]
    assert len(cautions) == 4
    assert [bool(each) for each in cautions].count(True) == 1
    assert asker.looked["q"] == 2
    assert (asker.next(), asker.management.due) == (None, None)
    assert asker.management.caution(["queue://q"]) == ""


def test_an_answer_of_another_kind_is_a_refusal(asker: Asker) -> None:
    """A management that answers in another format than Artemis' counts as one that does not answer this user."""
    asker.look()
    question = asker.next()
    assert question is not None
    asker.do(asker.management.answered(question, "[]", asker.now))
    question = asker.next()
    assert question is not None
    asker.do(asker.management.answered(question, "[]", asker.now))
    assert asker.looked["q"] == 1
    assert asker.management.caution(["queue://q"]) != ""


def test_an_answer_is_used_for_a_while(asker: Asker) -> None:
    """For five seconds; then, or on demand, the place is asked for again."""
    asker.look()
    asker.answer_all()
    asked = len(asker.asked)
    asker.now += FRESH - 0.1
    asker.look()
    assert (asker.looked["q"], asker.next()) == (2, None)
    asker.look(again=True)
    asker.answer_all()
    assert len(asker.asked) == 2 * asked
    asker.now += FRESH
    asker.look()
    asker.answer_all()
    assert len(asker.asked) == 3 * asked


def test_who_asks_again_gets_no_answer_to_an_earlier_question(asker: Asker) -> None:
    """A consumer without a named place may have asked for the same queue just before."""
    asker.queues = []
    asker.find("q")
    asked = [each for each in (asker.next(), asker.next()) if each is not None]
    before = [(question, asker.value(question)) for question in asked]
    asker.queues = [QUEUE, {**QUEUE, "name": "DLQ", "address": "DLQ"}]
    asker.look("q::q", again=True, kind="native")
    for question, value in before:
        asker.do(asker.management.answered(question, value, asker.now))
    asker.answer_all()
    assert asker.management.queues("native://q::q") == [QUEUE]
    assert (asker.looked["q::q"], len(asker.found)) == (1, 1)


def test_who_asks_again_gets_a_later_answer(asker: Asker) -> None:
    """An answer to an earlier question may be older than the queue that has just been made."""
    asker.queues = []
    asker.look()
    asked = [each for each in (asker.next(), asker.next()) if each is not None]
    before = [(question, asker.value(question)) for question in asked]
    asker.queues = [QUEUE]
    asker.look(again=True)
    for question, value in before:
        asker.do(asker.management.answered(question, value, asker.now))
    asker.answer_all()
    assert asker.looked["q"] == 2
    assert asker.management.queues("queue://q") == [QUEUE]


def test_the_loss_of_the_consumers_connection(asker: Asker) -> None:
    """All who wait get that error, also behind a look, and nothing is asked any more."""
    asker.find("a")
    asker.look()
    asker.look(again=True)
    asker.next()
    error = TransportError("cut")
    asker.do(asker.management.end(error))
    assert (asker.found, asker.errors) == ({"a": error}, [error, error])
    assert asker.next() is None


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("find"), st.integers(0, 3)),
        st.tuples(st.just("look"), st.integers(0, 3)),
        st.tuples(st.just("again"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["ask", "answer", "stumble", "silent", "lost", "wait"]), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_everybody_is_told_once(events: list[tuple[str, int]]) -> None:
    """Whatever happens in between, each call is made once, when the management answers at last."""
    asker, wanted, finds = Asker(), Counter[str](), 0
    asked: list[Question] = []
    for what, number in events:
        if what == "find":
            finds += 1
            asker.find(f"orders.{finds}")
        elif what in ("look", "again"):
            wanted[str(number)] += 1
            asker.look(str(number), again=what == "again")
        elif what == "ask":
            asked += [each for each in [asker.next()] if each is not None]
        elif what == "wait":
            asker.now += number * PAUSE
        elif what == "silent":
            asker.do(asker.management.unanswered(WHY, asker.now, silent=True))
        elif what == "lost":
            asked.clear()
            asker.do(asker.management.unanswered("cut", asker.now, silent=False))
        elif asked:
            question = asked.pop(number % len(asked))
            if what == "answer":
                asker.answer(question)
            else:
                asker.do(asker.management.refused(question, STUMBLE, asker.now))
    for each in asked:
        asker.answer(each)
    while (due := asker.management.due) is not None:
        asker.now = max(asker.now, due)
        before = len(asker.asked)
        asker.answer_all()
        assert len(asker.asked) > before or asker.management.due is None, "nothing turns in vain"
    assert asker.looked == wanted
    assert len(asker.found) == finds
