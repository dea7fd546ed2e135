"""Campaign against a query: kills it repeatedly while messages arrive, starts it again, and counts the results."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from integration.eventually import eventually
from integration.peers import pour
from integration.raw_stomp import ConnectFailed
from integration.spark_sinks import replays, tries
from integration.stranded import give_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from integration.brokers import Broker
    from integration.spark_run import SparkRun

__all__ = ["ALL_VICTIMS", "Campaign", "Stream", "Victim", "members"]

Victim = Literal["driver", "jvm", "runner", "reader", "worker", "all"]
ALL_VICTIMS: tuple[Victim, ...] = ("driver", "jvm", "runner", "worker", "all")
MARKS = {
    "driver": "integration.spark_query",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
    "runner": "python_streaming_source_runner",
    "reader": "redelivery_spark.stream.reader_process",
    "worker": "pyspark.worker",
}
STARTS = 180.0  # seconds until a started query has written something, on a busy machine
KINDS = {300: "bad", 100: "once"}  # every n-th message
A_ROUND = 4000  # messages until a batch has succeeded, and again until the kill
LEAST, MOST = 0.1, 2.5  # seconds from a batch, or a start, to the kill


def members(first: int, victim: Victim) -> list[int]:
    """Return the live processes of this kind in a session, given the session's first process."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,stat=,args=", "-g", str(first)], capture_output=True, text=True, check=False
    ).stdout
    split = [line.split(None, 2) for line in listed.splitlines()]
    mark = MARKS.get(victim, "")
    # The daemon that forks workers has the name of its module, too; the workers have the same.
    return [int(pid) for pid, state, args in split if mark in args and not state.startswith("Z")]


class Stream:
    """Sends numbered messages at a rate, on a thread of its own, as many as allowed, until it is closed."""

    def __init__(self, broker: Broker, protocol: str, queue: str, rate: float, size: int = 100) -> None:
        self._broker = broker
        self._protocol = protocol
        self._queue = queue
        self._rate = rate
        self._size = size
        self._end = threading.Event()
        self._most = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._error: BaseException | None = None
        self.sent: list[str] = []

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def allow(self, more: int) -> None:
        """Allow so many more messages: a broker with little memory bears no more than a query takes."""
        self._most = max(self._most, len(self.sent)) + more

    def close(self) -> None:
        """Stop, and check that all messages are confirmed."""
        self._end.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the sender does not end"
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        try:
            for some in self._chunks():
                self._pour(some)
        except BaseException as error:
            self._error = error

    @retry(retry=retry_if_exception_type(ConnectFailed), stop=stop_after_attempt(3), reraise=True)
    def _pour(self, some: Sequence[tuple[bytes, str, dict[str, str]]]) -> None:
        """Send, and connect again if Artemis refuses: once in 40 runs, while other connections were cut.

        Nothing has been sent then.
        """
        pour(self._broker, self._protocol, self._queue, some)

    def _chunks(self) -> Iterator[list[tuple[bytes, str, dict[str, str]]]]:
        """Yield a quarter of a second's messages each: proton sends nothing by itself."""
        chunk: list[tuple[bytes, str, dict[str, str]]] = []
        for message in self._messages():
            chunk.append(message)
            if len(chunk) >= self._rate / 4 or len(self.sent) >= self._most:
                yield chunk
                chunk = []
        yield chunk

    def _messages(self) -> Iterator[tuple[bytes, str, dict[str, str]]]:
        next_at, number = time.monotonic(), 0
        while not self._end.is_set():
            if number >= self._most:
                self._end.wait(0.05)
                next_at = time.monotonic()
                continue
            kind = next((kind for every, kind in KINDS.items() if number % every == every - 1), "good")
            body = f"{kind}-{number}-"
            self.sent.append(body)
            yield body.ljust(self._size, "x").encode(), f"m{number}", {"redeliveryId": f"m{number}"}
            number += 1
            next_at += 1 / self._rate
            early = next_at - time.monotonic()
            if early > 0.01:
                self._end.wait(early)


@dataclass
class Campaign:
    """Kills of one query. `victims`: the processes to kill, drawn at random."""

    run: SparkRun
    victims: Sequence[Victim]
    kills: int
    rate: float = 2000.0
    seed: int = 1
    moments: tuple[float, float] = (LEAST, MOST)
    killed: Counter[str] = field(default_factory=Counter[str])
    stream: Stream = field(init=False)

    def fight(self) -> None:
        """Kill and restart; then let the query process the rest, and end.

        Artemis can lose sight of the first message that a killed connection had. It is asked, and redelivers it then.
        """
        run, draw = self.run, random.Random(self.seed)
        self.stream = Stream(run.broker, run.protocol, run.queue, self.rate)
        run.more |= {"trigger": "0 seconds", "noted": run.sink != "files"}
        self.stream.start()
        groups: list[subprocess.Popen[str]] = []
        try:
            for number in range(self.kills):
                if not groups or groups[-1].poll() is not None:
                    groups.append(run.begin(quiet=True))
                before = self.run.committed()
                self.stream.allow(A_ROUND)
                eventually(partial(self._moves, groups[-1], before), STARTS, interval=0.1)
                self.stream.allow(A_ROUND)
                victim = self.victims[number % len(self.victims)]
                threading.Event().wait(draw.uniform(*self.moments))
                self._kill(groups[-1], victim)
        finally:
            self.stream.close()
            for group in groups:
                self._end(group)
        give_back(run.broker, run.queue)
        del run.more["trigger"]
        run.run()

    def _moves(self, process: subprocess.Popen[str], before: int) -> bool:
        assert process.poll() is None, f"it has ended by itself: {self.run.log.read_text()[-3000:]}"
        return self.run.committed() > before

    def _kill(self, process: subprocess.Popen[str], victim: Victim) -> None:
        if victim == "all":
            self._end(process)
            self.killed[victim] += 1
            return
        found = members(process.pid, victim)
        if victim == "worker":
            # The first one is the daemon, without which all workers end.
            found = found[1:] or found
        for pid in found if victim == "worker" else found[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.killed[victim] += bool(found)
        if victim in ("driver", "jvm"):
            # Its other processes live for as long as it does: the next start begins before they end.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        for pid in members(process.pid, "all"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)

    @property
    def bad(self) -> int:
        """Number of messages that are to end as dead letters."""
        return sum(body.startswith("bad") for body in self.stream.sent)

    def check(self, letters: Sequence[bytes | None], *, once: bool) -> str:
        """Check that no message is lost, and each row is there once; return the figures. `once`: dead letters, too."""
        sent = Counter(self.stream.sent)
        wanted = Counter(body for body in sent if not body.startswith("bad"))
        bad = Counter(body for body in sent if body.startswith("bad"))
        rows = self.run.bodies()
        dead = Counter((letter or b"").decode().rstrip("x") for letter in letters)
        several, other = replays(self.run.folder)
        figures = (
            f"{sum(self.killed.values())} kills {dict(self.killed)}, {self.run.starts} starts: {sent.total()} sent, "
            f"{rows.total()} rows, {len(rows)} distinct, {dead.total()} dead letters ({len(dead)} distinct of "
            f"{len(bad)}), {tries(self.run.folder)} replays of batches, {several} of batches that the sink had, "
            f"{other} with other rows"
        )
        print(f"\n{self.run.broker.name}-{self.run.protocol}, {self.run.sink}: {figures}", flush=True)
        lost, twice = wanted - rows, rows - wanted
        assert not lost, f"{len(lost)} lost, as {sorted(lost)[:5]}; {figures}"
        assert not twice, f"{twice.total()} too many, as {sorted(twice)[:5]}; {figures}"
        assert set(dead) == set(bad), figures
        assert dead == bad or not once, figures
        assert not other, figures
        return figures
