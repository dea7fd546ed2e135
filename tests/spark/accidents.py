"""Events in and between the batches of a query: deaths, cuts, lost answers, and starts that overlap."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tests.spark.query import InlineReader, Killed, KillsQuery, Query, readers_of, with_options

from redelivery.errors import ConfigurationError
from redelivery_spark.stream.stream_reader import opened
from redelivery_spark.wal.records import Refusal, Verdict, verdict_name
from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.spark.query import Row

    from redelivery.testing import MemoryBroker
    from redelivery_spark.stream.coordinator import Coordinator

__all__ = ["Accidents"]


class Accidents:
    """A query with events in and between its batches."""

    def __init__(
        self, broker: MemoryBroker, query: Query, messages: Iterable[tuple[str, str]], *, evidence: bool
    ) -> None:
        self._broker = broker
        self._query = query
        self._evidence = evidence
        # Messages that are not sent yet: bodies and ids.
        self._left = deque(messages)
        self._send(len(self._left) // 3)
        # Starts that were replaced, and have not ended.
        self._old: list[Coordinator] = []
        self._new: Coordinator | None = None

    def _send(self, most: int) -> None:
        for _ in range(min(most, len(self._left))):
            body, identity = self._left.popleft()
            self._broker.send("orders", body, headers={"id": identity} if identity else {})

    def handle(self, row: Row) -> None:
        """Do what the body asks for."""
        body = row["body"].decode()
        assert row["delivery_count"] <= 3, "beyond its redeliveries"
        kind = body.partition("-")[0]
        if kind == "killer":
            raise KillsQuery(kind)
        if kind == "bad" or (kind == "flaky" and row["delivery_count"] < 3):
            raise ValueError(kind)

    def step(self, event: str | tuple[str, int, bool]) -> None:
        """Make an event happen, and run a batch."""
        query, broker = self._query, self._broker
        self._send(2)
        if event == "cut":
            if query.source is not None:
                # Some of the arrived messages are taken, and not published.
                readers_of(query.source).reader.step(0.0)
            broker.cut()
        elif event == "refuse":
            broker.refuse_sends(2)
            broker.refuse_settlements(2)
        elif event == "late":
            self._late()
        elif event == "lost":
            broker.drop_accepts(3)
        elif event == "restart":
            query.end()
        elif event == "old":
            self._old_ones()
        elif event == "partitions":
            query.die()
            with_options(query, partitions=1 if query.options.partitions > 1 else 3)
        elif isinstance(event, tuple):
            self._arm(*event)
        self._run(again=event == "again")

    def _run(self, *, again: bool) -> None:
        query = self._query
        try:
            if again:
                self._again()
            query.step(self.handle, evidence=self._evidence)
        except (Killed, KillsQuery):
            query.die()
            self._old += [] if self._new is None else [self._new]
        except LogTaken:
            assert self._new is not None, "by itself"
            self._old.append(query.start())
            query.source = self._new
        else:
            # Spark's own log lets only one of two continue: here, so far, the older one.
            if self._new is not None:
                self._old += [each for each in (query.source, self._new) if each is not None]
                query.source = None
        self._new = None

    def end(self) -> None:
        """Run without any more events until no row waits; then with AvailableNow, which ends."""
        query = self._query
        query.die()  # a death that is armed still happens with it
        self._broker.drop_accepts(0)
        self._send(len(self._left))
        self._old_ones()
        for source in self._old:
            source.close()
        query.drain(self.handle, evidence=self._evidence)
        query.start().available_now()
        assert query.step(self.handle) is None

    def _again(self) -> None:
        """Run a batch twice: its rows are the same, whatever has arrived in between."""
        query = self._query
        if query.plan():
            before = query.read()
            query.die()
            after = query.read()
            told = [row["_place"] for rows in before for row in rows]
            given_up = query.start()._journal.state.given_up
            assert given_up is not None or told == [row["_place"] for rows in after for row in rows]

    def _arm(self, what: str, count: int, after: bool) -> None:
        """Die at one of the next writes of a kind, before or after it; `count`: writes until then."""
        source = self._query.start()
        if what == "other":
            if not source._journal._store.url.startswith("/"):
                self._arm_other(source, count)
            return
        connection = readers_of(source).source
        owners = {"accept": connection, "send": connection._port}
        owner: object = owners.get(what, source._journal._store)
        name = "publish" if what == "break" else what
        wrapped: Callable[..., object] = getattr(owner, name)
        left = [count]

        def dying(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] and not left[0] < 0:
                return wrapped(*arguments, **named)
            if what == "break":
                # Cut the connection at a publication.
                self._broker.cut()
                return wrapped(*arguments, **named)
            if after:
                wrapped(*arguments, **named)
            raise Killed

        setattr(owner, name, dying)

    def _arm_other(self, source: Coordinator, count: int) -> None:
        """Start the query again in another process after `count` writes of this one: only the newest may write."""
        store, left = source._journal._store, [count]
        publish = store.publish

        def published(*arguments: Any, **named: Any) -> bool:
            left[0] -= 1
            if left[0] < 0 and self._new is None and self._query.source is source:
                self._new = opened(self._query.options, InlineReader)
            return publish(*arguments, **named)

        store.publish = published  # type: ignore[method-assign]

    def _old_ones(self) -> None:
        """Continue starts that were replaced, as long as they do not notice it."""
        for source in list(self._old):
            try:
                for _ in range(3):
                    readers_of(source).reader.step(0.5)
                    source.latest(self._query.committed, 30)
            except (LogTaken, ConfigurationError):
                source.close()
                self._old.remove(source)

    def _late(self) -> None:
        """End a task of a settled batch late, with another verdict."""
        query = self._query
        for number, rows in query.output.items():
            if number < query.batch - 1 and rows:
                refused = {row["_place"]: Refusal(row["delivery_count"], "fail", "late") for row in rows}
                name = verdict_name(number, "late", list(refused))
                query.records.judge(name, Verdict(list(refused), refused), durable=True)
