"""The Spark source on real brokers: its output, the results of bad messages, and deaths at any point."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import some
from tests.tiers import amount

from integration.need import need_spark

need_spark()

from integration.eventually import SLACK
from integration.peers import fill
from integration.spark_crash import POINTS
from integration.spark_run import SIZE, SparkRun
from integration.spark_sinks import replays

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.conftest import Session
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("Spark: queries in processes of their own")

PAIRS = [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp"), ("rabbitmq", "amqp")]
WAIT = 0.5  # seconds for which the source waits for the first row of a batch
# Seconds between two batches, in neither's duration; more while other processes of the run are busy.
BETWEEN = 2 * SLACK if "PYTEST_XDIST_WORKER" in os.environ else 0.5
MESSAGES = amount("REDELIVERY_SPARK_MESSAGES", quick=1000, ci=3_000, full=20_000)
DELAY = 0.5  # seconds
POLICY: dict[str, Any] = {
    "jms__redeliveryPolicy__maximumRedeliveries": 2,
    "jms__redeliveryPolicy__initialRedeliveryDelay": int(DELAY * 1000),
    "jms__redeliveryPolicy__redeliveryDelay": int(DELAY * 1000),
    "redelivery__maximumDeferrals": 2,  # of the killer, once no other batch succeeds
}


def bodies(count: int) -> list[bytes]:
    """Return good messages, and among them five of each kind of bad ones, and one killer."""
    kinds = dict.fromkeys(range(count), "good")
    for place, kind in enumerate(["bad", "flaky", "raw"] * 5):
        kinds[(place + 1) * count // 17] = kind
    kinds[count // 2 + 1] = "killer"
    return made(kinds)


def later_bodies(first: int, count: int) -> list[bytes]:
    """Return good messages; every hundredth is a flaky one."""
    return made({first + each: "flaky" if each % 100 == 50 else "good" for each in range(count)})


def made(kinds: dict[int, str]) -> list[bytes]:
    """Return bodies of these kinds, by number."""
    texts = [f"{kind}-{number}-".encode() for number, kind in kinds.items()]
    whole = [text.ljust(SIZE, b"x") for text in texts]
    return [b"\xff" + body[1:] if body.startswith(b"raw") else body for body in whole]


def expected(sent: list[bytes]) -> Counter[str]:
    """Return the expected content of the sink, each once."""
    return Counter(body.decode().rstrip("x") for body in sent if body.startswith((b"good", b"flaky")))


@pytest.mark.parametrize("peer", some(PAIRS, PAIRS[3:], ci=()), ids="-".join)
def test_each_message_ends_where_it_belongs(
    session: Session, peer: tuple[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """Good and flaky messages are in the output once; all others are dead letters with their count and cause.

    No redelivery is early, and none later than the batch before it and the source's wait for rows. That is measured
    with the messages after the killer's end, as no query is started again then.
    """
    broker = session.broker(peer[0])
    sent = bodies(MESSAGES)
    fill(broker, peer[1], unique_queue, sent)
    dead = f"{unique_queue}.dead"
    run = SparkRun(
        tmp_path, broker, peer[1], unique_queue,
        options={"decode": "text", "maxRowsPerTrigger": "5000", "isolate": "split", "isolateAfter": "2"},
        uri={**POLICY, "redelivery__deadLetterDestination": dead},
    )  # fmt: skip
    run.run()
    later = later_bodies(MESSAGES, 1000)
    fill(broker, peer[1], unique_queue, later)
    run.run()
    assert run.bodies() == expected(sent + later)
    waited, late = run.waited(), run.late(DELAY)
    assert len(late) >= 20
    most = max(late, key=lambda each: each[0] - each[1])
    print(
        f"\n{'-'.join(peer)}: {MESSAGES} messages; {len(waited)} redeliveries, after {min(waited):.2f} s at least; of "
        f"{len(late)} without a restart in between, the latest {most[0]:.2f} s late, beside a batch of {most[1]:.2f} s"
    )
    assert len(waited) >= 40
    assert min(waited) >= DELAY
    assert most[0] <= most[1] + WAIT + BETWEEN
    letters = session.client(broker, peer[1]).drain(dead, expected=11)
    counts: dict[tuple[bytes, str], list[int]] = {}
    for letter in letters:
        kind = (letter.body or b"")[:3], _kind(letter.properties["redeliveryCause"])
        counts.setdefault(kind, []).append(int(letter.properties["redeliveryCount"]))
    undecodable = counts.pop((b"\xffaw", "cannot be decoded as text"), [])
    assert len(undecodable) == 5
    # Artemis counts messages that a dead driver had prefetched as delivered, and reports it over AMQP.
    assert {*undecodable} <= ({1, 2, 3} if peer == ("artemis", "amqp") else {1})
    assert counts == {
        (b"bad", "ValueError: bad at delivery 3"): [3] * 5,
        (b"kil", "RuntimeError: the sink does not like it"): [3],
    }
    assert session.client(broker, peer[1]).drain(unique_queue) == []


def _kind(cause: str) -> str:
    return cause.split(": UnicodeDecodeError", maxsplit=1)[0]


CRASHES = (
    [(point, "once") for point in POINTS]
    + [("in the sink", sink) for sink in ("once", "lines", "ids", "table")]
    + [("after the log", "files"), ("after the state", "files"), ("after a redelivery", "ids")]
)


@pytest.mark.parametrize("peer", some(PAIRS, PAIRS[:1], ci=()), ids="-".join)
@pytest.mark.parametrize(("point", "sink"), some(CRASHES, [("after the log", "files")], ci=(), spread=True))
def test_the_driver_is_killed(
    session: Session,
    peer: tuple[str, str],
    new_queue: Callable[[], str],
    tmp_path: Path,
    point: str,
    sink: str,
) -> None:
    """No message is lost or duplicated, except by a sink that only appends: it gets its last batch again."""
    broker, queue = session.broker(peer[0]), new_queue()
    kinds = ["once" if number % 100 == 7 else "good" for number in range(600)]
    sent = [f"{kind}-{number}-".encode().ljust(SIZE, b"x") for number, kind in enumerate(kinds)]
    fill(broker, peer[1], queue, sent)
    run = SparkRun(
        tmp_path, broker, peer[1], queue, sink=sink, uri=POLICY,
        options={"maxRowsPerTrigger": "100", "maxBytesAhead": "120k"}, more={"noted": True},
    )  # fmt: skip
    run.run(crash=point)
    wanted = Counter(body.decode().rstrip("x") for body in sent)
    again = (run.bodies() - wanted).total()
    assert set(run.bodies()) == set(wanted)
    assert replays(tmp_path)[1] == 0, "a batch that is tried again has the same rows"
    assert 0 < again <= 100 if sink == "lines" else again == 0
    assert session.client(broker, peer[1]).drain(queue) == []


@pytest.mark.full(
    "Spark: the broker's own dead-letter place; integration/test_artemis_own_places.py has it without"
)
@pytest.mark.parametrize("readers", [1, 2])
def test_dead_letters_of_rows_are_where_artemis_puts_them(
    session: Session, unique_queue: str, tmp_path: Path, readers: int
) -> None:
    """Without a place in the options, rows that fail are where Artemis puts the dead letters of their queue."""
    broker, queue = session.broker("artemis"), f"ind.{unique_queue}"
    fill(broker, "amqp", queue, made({number: "bad" if number < 5 else "good" for number in range(100)}))
    run = SparkRun(
        tmp_path, broker, "amqp", queue, options={"readers": str(readers)},
        uri={"jms__redeliveryPolicy__maximumRedeliveries": 0},
    )  # fmt: skip
    run.run()
    assert run.bodies().total() == 95
    letters = session.client(broker, "amqp").drain(f"DLQ::DLQ.{queue}", expected=5)
    assert sorted((letter.body or b"").rstrip(b"x") for letter in letters) == [
        f"bad-{number}-".encode() for number in range(5)
    ]
    assert {letter.properties["redeliveryOriginalDestination"] for letter in letters} == {f"queue://{queue}"}


@pytest.mark.full("Spark: a query that fails at each start; tests/spark has it without a JVM")
@pytest.mark.parametrize("peer", some(PAIRS, PAIRS[3:], ci=()), ids="-".join)
def test_a_query_that_fails_again_and_again_repeats_no_dead_letter(
    session: Session,
    peer: tuple[str, str],
    unique_queue: str,
    tmp_path: Path,
    make_proxy: Callable[..., LinkProxy],
) -> None:
    """Messages that are poison just before a batch whose sink fails at each start are dead letters once.

    The broker's answers take 0.2 s.
    """
    broker = session.broker(peer[0])
    proxy = make_proxy(broker.ports[peer[1]])
    proxy.delay(0.2, "to_client")
    kinds = {number: "bad" if number < 5 else "good" for number in range(100)} | {70: "killer"}
    fill(broker, peer[1], unique_queue, made(kinds))
    dead = f"{unique_queue}.dead"
    run = SparkRun(
        tmp_path, broker, peer[1], unique_queue, options={"maxRowsPerTrigger": "50"},
        uri={
            "jms__redeliveryPolicy__maximumRedeliveries": 0,
            "redelivery__deadLetterDestination": dead,
            "port": proxy.port,
        },
        # Its segments have 50 rows: the second batch is there when the first one is settled.
        more={"format": "redelivery-crashing", "restarts": 1},
    )  # fmt: skip
    assert run.end(run.begin()) == 1, run.printed[-3000:]
    assert "the sink does not like it" in run.printed
    begun = (tmp_path / "begun").read_text(encoding="utf-8").split()
    assert (begun.count("0"), begun.count("1")) == (1, 2)
    letters = session.client(broker, peer[1]).drain(dead, expected=5)
    assert sorted((letter.body or b"").rstrip(b"x") for letter in letters) == [
        f"bad-{number}-".encode() for number in range(5)
    ]
