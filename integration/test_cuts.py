"""A conversation of six messages, cut at every frame in both directions, by FIN, by RST, and in the middle of a frame.

What may happen twice: a message that was accepted, but whose ACK did not reach the broker, comes again. The consumer
knows it again where the broker marks the copy (`redelivered:true`), and acknowledges it without handling it. Classic
and RabbitMQ mark every copy. Artemis marks the first of the messages that it sends again, and the others as it happens
to: an unmarked copy is handled once more, because it could be a new message with a used id.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.brokers import STOMP_BROKERS
from integration.eventually import eventually, settled
from integration.matrix import cover
from integration.sending import send_again
from integration.stranded import eventually_given_back
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient
    from integration.proxy import Direction, LinkProxy

MAXIMUM = 2
POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=MAXIMUM, initial_redelivery_delay=0.02, redelivery_delay=0.03)
)
# key, persistent: poison leaves as a copy.
SCRIPT = [
    ("good-1", True),
    ("once-1", True),
    ("bad-kept", True),
    ("good-2", False),
    ("bad-fleeting", False),
    ("once-2", False),
]
FLEETING = {key for key, persistent in SCRIPT if not persistent}
QUIET = 0.3  # seconds without a frame: longer than a reconnect takes
WAYS: tuple[Direction, ...] = ("to_broker", "to_client")


@dataclass
class Result:
    """What one run of the conversation led to."""

    name: str
    work: Work
    queue: str
    cuts: int
    deduplicated: int
    stranded: int  # by Artemis, until it was restarted
    frames: dict[Direction, list[str]] = field(default_factory=dict)

    def duplicates(self) -> list[str]:
        """The keys of what was handled successfully more than once."""
        return [key for key, count in self.work.done.items() if count > 1]


class Conversation:
    """Runs the script through the proxy, on a new queue each time."""

    def __init__(self, broker: Broker, proxy: LinkProxy, new_queue: Callable[[], str]) -> None:
        """`direct` sends without the proxy; it is open as long as the block."""
        self.run_id = uuid.uuid4().hex
        self._broker = broker
        self._proxy = proxy
        self._new_queue = new_queue
        # Cuts of the very first link are tried again too.
        self._uri = (
            broker.uri(port=proxy.port)
            .replace("stomp://", "failover:(stomp://")
            .replace("?", ")?startupMaxReconnectAttempts=3&", 1)
        )

    def run(self, direct: redelivery.Connection, name: str, arm: Callable[[LinkProxy], None]) -> Result:
        """Send the script directly, consume it through the proxy, which cuts; one more message goes through it."""
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
                # A dead letter whose confirmation was lost is not counted: then until nothing moves any more.
                settled(self._frames, QUIET, interval=0.01)
            assert running.error is None
        self._proxy.disarm()
        frames = {way: self._proxy.way(way).log[before[way] :] for way in WAYS}
        assert running.report is not None
        return Result(
            name, work, queue, self._proxy.cuts - cuts, running.report.deduplicated, stranded, frames
        )

    def _frames(self) -> int:
        return sum(self._proxy.way(way).frames for way in WAYS)

    def _headers(self, name: str, key: str) -> dict[str, str]:
        return {"key": key, "cut": name, "run": self.run_id}

    @staticmethod
    def _done(work: Work, lost: int) -> bool:
        """Whether all is done, but for as many that are not persistent as Artemis has lost in its restart."""
        missing = unfinished(work)
        return not missing or (missing <= FLEETING and len(missing) <= lost)


def unfinished(work: Work) -> set[str]:
    """The keys of what was not handled, or not to its limit."""
    attempts = work.counts()
    good = ["good-sent", *(key for key, _ in SCRIPT if not key.startswith("bad"))]
    bad = [key for key, _ in SCRIPT if key.startswith("bad")]
    return {key for key in good if not work.done[key]} | {
        key for key in bad if attempts.get(key, 0) <= MAXIMUM
    }


def at_rest(connection: redelivery.Connection) -> bool:
    """Whether the connection stands, and nothing waits or is in doubt."""
    engines = [dispatcher.engine for dispatcher in connection._dispatchers]
    return connection.connected and not any(engine.load.parked or engine.load.running for engine in engines)


def arm_cut(way: Direction, number: int, how: str) -> Callable[[LinkProxy], None]:
    """Cut behind the frame with this number (from 1) with FIN or RST, or in its middle."""
    if how == "half":
        return lambda proxy: proxy.drop_half_frame(way, number)
    return lambda proxy: proxy.cut_after_frames(way, number, reset=how == "rst")


@pytest.mark.parametrize(
    ("broker", "how"), cover(sorted(STOMP_BROKERS), ["fin", "rst", "half"]), indirect=["broker"]
)
def test_a_cut_at_any_frame_loses_nothing(
    broker: Broker, java: JavaClient, proxy: LinkProxy, new_queue: Callable[[], str], how: str
) -> None:
    """Whichever frame is the last: all is handled, none beyond its limit, and each poison message is a dead letter.

    Duplicates: a message handled twice must have come without the broker's mark the second time (see above); on
    Classic there are none. The message that is sent through the cut link is there twice if its RECEIPT was lost and it
    was sent again. A dead letter is there once on Artemis, which drops the second copy by its `_AMQ_DUPL_ID`; on
    Classic and RabbitMQ it may be there twice.
    """
    talk = Conversation(broker, proxy, new_queue)
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
    """What must hold after all the cuts."""
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
    assert cuts >= 0.9 * len(results), "the cuts took place"
    bad = [key for key, _ in SCRIPT if key.startswith("bad")]
    left = {r.name: [m.properties["key"] for m in java.browse(r.queue)] for r in [whole, *results]}
    print(f"still on their queues: { {name: keys for name, keys in left.items() if keys} }")
    for result in [whole, *results]:
        # What is still there when the consumer leaves early is not lost: the next one gets it.
        for key in set(bad) - unfinished(result.work):
            assert (result.name, key) in dead or key in left[result.name], f"{result.name}: {key} is lost"
    assert set(dead) <= {(r.name, key) for r in [whole, *results] for key in bad}
    # Classic and RabbitMQ know a second copy by nothing: one whose RECEIPT was lost is sent again.
    assert set(dead.values()) <= ({1} if broker.name == "artemis" else {1, 2})
    for result, key in repeats:
        assert broker.name == "artemis" or key == "good-sent", f"{result.name}: {key} twice, on {broker.name}"
        assert key == "good-sent" or not result.work.attempts[key][-1].redelivered, f"{result.name}: {key}"
    for result in results:
        gone = unfinished(result.work)
        assert {result.work.counts()[key] for key in bad if key not in gone} == {MAXIMUM + 1}, result.name
    # Artemis may give a message to the connection that is gone, and take it back only after the consumer has left.
    assert broker.name == "artemis" or not any(left.values()), "the queues end empty"
