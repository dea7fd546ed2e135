"""A conversation of six messages, cut at every frame in both directions, by FIN, by RST, and in the middle of a frame.

Duplicates: the broker redelivers an accepted message if its ACK did not arrive. The consumer recognises it by the
redelivered flag (`redelivered:true`), and acknowledges it without handling it. Classic and RabbitMQ set the flag of
every redelivery. Artemis sets the flag of the first message, and of the others by chance: a message without the flag
is handled once more, because it could be a new message with a used id.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
from tests.matrix import cover

import redelivery
from integration.brokers import STOMP_BROKERS
from integration.eventually import eventually, settled
from integration.frames import EOL
from integration.sending import send_again
from integration.stranded import eventually_given_back
from integration.work import POLICY, Running, Work, at_rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient
    from integration.proxy import Direction, LinkProxy

pytestmark = [
    pytest.mark.ci("a cut at each frame of a conversation: 45 s each"),
    pytest.mark.own_broker("may restart it: Artemis strands messages"),
]

MAXIMUM = 2
POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=MAXIMUM, initial_redelivery_delay=0.02, redelivery_delay=0.03)
)
# key, persistent: poison is dead-lettered by a copy.
SCRIPT = [
    ("good-1", True),
    ("once-1", True),
    ("bad-kept", True),
    ("good-2", False),
    ("bad-fleeting", False),
    ("once-2", False),
]
FLEETING = {key for key, persistent in SCRIPT if not persistent}
BAD = {key for key, _ in SCRIPT if key.startswith("bad")}
QUIET = 0.3  # seconds without a frame: longer than a reconnect takes
WAYS: tuple[Direction, ...] = ("to_broker", "to_client")


@dataclass
class Result:
    """Result of one run of the conversation."""

    name: str
    work: Work
    queue: str
    cuts: int
    deduplicated: int
    stranded: int  # by Artemis, until its restart
    frames: dict[Direction, list[str]] = field(default_factory=dict)
    perishable: set[str] = field(default_factory=set)  # keys of poison that the next restart of Artemis loses

    def duplicates(self) -> list[str]:
        """Keys of the messages that were handled successfully more than once."""
        return [key for key, count in self.work.done.items() if count > 1]


class Conversation:
    """Runs the script through the proxy, on a new queue each time."""

    def __init__(
        self, broker: Broker, java: JavaClient, proxy: LinkProxy, new_queue: Callable[[], str]
    ) -> None:
        self.run_id = uuid.uuid4().hex
        self._broker = broker
        self._java = java
        self._proxy = proxy
        self._new_queue = new_queue
        # A cut of the first connection is also retried.
        self._uri = (
            broker.uri(port=proxy.port)
            .replace("stomp://", "failover:(stomp://")
            .replace("?", ")?startupMaxReconnectAttempts=3&", 1)
        )

    def run(self, direct: redelivery.Connection, name: str, arm: Callable[[LinkProxy], None]) -> Result:
        """Send the script directly, consume it through the proxy, which cuts; send one more message by the proxy.

        `direct` sends without the proxy.
        """
        queue, work = self._new_queue(), Work()
        for key, persistent in SCRIPT:
            direct.send(queue, key, headers=self._headers(name, key), persistent=persistent)
        before = {way: len(self._proxy.way(way).log) for way in WAYS}
        cuts = self._proxy.cuts
        arm(self._proxy)
        with redelivery.connect(self._uri, policies=POLICIES) as connection:
            connection.listen(queue, work)
            with Running(connection) as running:
                headers = self._headers(name, "good-sent")
                send_again(connection, queue, "good-sent", tries=3, headers=headers, timeout=30)
                stranded = eventually_given_back(
                    lambda lost: running.ended or self._done(work, lost),
                    self._broker,
                    queue,
                    0.01,
                    f"{name}: all is done",
                )
                assert not running.ended, f"{name}: run() has ended early: {running.error!r}"
                eventually(lambda: at_rest(connection), 60, 0.01, message=f"{name}: nothing is held")
                # A dead letter whose confirmation was lost is not counted: wait until no more frames pass.
                settled(self._frames, QUIET, interval=0.01)
            assert running.error is None
        self._proxy.disarm()
        frames = {way: self._proxy.way(way).log[before[way] :] for way in WAYS}
        assert running.report is not None
        result = Result(
            name, work, queue, self._proxy.cuts - cuts, running.report.deduplicated, stranded, frames
        )
        if self._broker.name == "artemis":
            self._find_poison(result)
        return result

    def _find_poison(self, result: Result) -> None:
        """Find each poison message in the dead-letter queue, on its queue, or stranded; now, not at the end.

        A later run may restart Artemis: a non-persistent message that is on its queue or stranded is lost then.
        """
        poison = BAD - unfinished(result.work)

        def found(stranded: int) -> bool:
            lost = poison - self._dead(result) - self._on(result.queue)
            return lost <= (FLEETING if stranded else set())

        what = f"{result.name}: each poison message is somewhere"
        result.stranded += eventually_given_back(found, self._broker, result.queue, message=what)
        result.perishable = FLEETING & (poison - self._dead(result))

    def _dead(self, result: Result) -> set[str]:
        """Return the keys of the dead letters."""
        every = self._java.browse(self._broker.dead_letter_queue, selector=f"run = '{self.run_id}'")
        return {m.properties["key"] for m in every if m.properties["cut"] == result.name}

    def _on(self, queue: str) -> set[str]:
        """Return the keys of the messages on a queue that no consumer has."""
        return {m.properties["key"] for m in self._java.browse(queue)}

    def _frames(self) -> int:
        return sum(self._proxy.way(way).frames for way in WAYS)

    def _headers(self, name: str, key: str) -> dict[str, str]:
        return {"key": key, "cut": name, "run": self.run_id}

    @staticmethod
    def _done(work: Work, lost: int) -> bool:
        """True if all is handled, except the non-persistent messages that Artemis has lost in its restart."""
        missing = unfinished(work)
        return not missing or (missing <= FLEETING and len(missing) <= lost)


def unfinished(work: Work) -> set[str]:
    """Return the keys of messages that were not handled, or not up to their limit."""
    attempts = work.counts()
    good = ["good-sent", *(key for key, _ in SCRIPT if not key.startswith("bad"))]
    return {key for key in good if not work.done[key]} | {
        key for key in BAD if attempts.get(key, 0) <= MAXIMUM
    }


def arm_cut(way: Direction, number: int, how: str) -> Callable[[LinkProxy], None]:
    """Cut after the frame with this number (from 1) with FIN or RST, or in its middle."""
    if how == "half":
        return lambda proxy: proxy.drop_half_frame(way, number)
    return lambda proxy: proxy.cut_after_frames(way, number, reset=how == "rst")


@pytest.mark.parametrize(
    ("broker", "how"), cover(sorted(STOMP_BROKERS), ["fin", "rst", "half"]), indirect=["broker"]
)
def test_a_cut_at_any_frame_loses_nothing(
    broker: Broker, java: JavaClient, proxy: LinkProxy, new_queue: Callable[[], str], how: str
) -> None:
    """A cut at any frame loses no message: all are handled within their limits, and each poison one is a dead letter.

    Duplicates: a message that was handled twice had no redelivered flag the second time (see above); on Classic there
    are none. The message that is sent through the cut connection is there twice if its RECEIPT was lost and it was sent
    again. A dead letter is there once on Artemis, which drops the second copy by its `_AMQ_DUPL_ID`; on Classic and
    RabbitMQ it may be there twice.
    """
    talk = Conversation(broker, java, proxy, new_queue)
    with redelivery.connect(broker.uri()) as direct:
        whole = talk.run(direct, "uncut", lambda _: None)
        assert (whole.cuts, whole.duplicates()) == (0, [])
        results = [
            talk.run(direct, f"{way}-{number}", arm_cut(way, number, how))
            for way in WAYS
            for number in range(1, len(whole.frames[way]) + 1)
        ]
    check(broker, java, talk, whole, results)


def check(broker: Broker, java: JavaClient, talk: Conversation, whole: Result, results: list[Result]) -> None:
    """Check the results of all the cuts."""
    cuts = sum(result.cuts for result in results)
    repeats = [(result, key) for result in results for key in result.duplicates()]
    dead = Counter(
        (m.properties["cut"], m.properties["key"])
        for m in java.drain(broker.dead_letter_queue, selector=f"run = '{talk.run_id}'")
    )
    frames = {way: len(whole.frames[way]) for way in WAYS}
    print(
        f"\n{broker.name}: {cuts} cuts in {len(results)} runs ({frames}); handled twice: "
        f"{[f'{r.name}: {key}' for r, key in repeats]}; recognised: {sum(r.deduplicated for r in results)}; "
        f"stranded: {[r.name for r in results if r.stranded]}; dead letters: {len(dead)}, "
        f"twice: {[key for key, count in dead.items() if count > 1]}"
    )
    for result in results:
        way, _, number = result.name.rpartition("-")
        passed = [frame for frame in result.frames[cast("Direction", way)] if frame != EOL]
        assert result.cuts or len(passed) <= int(number), f"{result.name}: no cut, but {len(passed)} frames"
    # The uncut run may have more frames than others: Artemis' windows grow by time, and a restart is a reconnect.
    assert cuts >= len(results) / 2, "most cuts took place"
    left = {r.name: [m.properties["key"] for m in java.browse(r.queue)] for r in [whole, *results]}
    print(f"still on their queues: { {name: keys for name, keys in left.items() if keys} }")
    for result in [whole, *results]:
        # Messages that are on the queue after the consumer's end are not lost: the next one gets them.
        for key in BAD - unfinished(result.work) - result.perishable:
            assert (result.name, key) in dead or key in left[result.name], f"{result.name}: {key} is lost"
    assert set(dead) <= {(r.name, key) for r in [whole, *results] for key in BAD}
    # Classic and RabbitMQ cannot recognise a second copy: one whose RECEIPT was lost is sent again.
    assert set(dead.values()) <= ({1} if broker.name == "artemis" else {1, 2})
    for result, key in repeats:
        assert broker.name == "artemis" or key == "good-sent", f"{result.name}: {key} twice, on {broker.name}"
        assert key == "good-sent" or not result.work.attempts[key][-1].redelivered, f"{result.name}: {key}"
    for result in results:
        gone = unfinished(result.work)
        assert {result.work.counts()[key] for key in BAD - gone} == {MAXIMUM + 1}, result.name
    if broker.name != "artemis":
        # It may send a message to the lost connection, and release it only after the consumer has ended. The others
        # may still have to read the last acknowledgement.
        open_ones = [r.queue for r in [whole, *results] if left[r.name]]
        eventually(lambda: not any(java.browse(queue) for queue in open_ones), message="the queues end empty")
