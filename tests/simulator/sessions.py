"""A session in a world of whole connections: acknowledgements, commits, rollbacks, and commits in doubt.

Each transaction sends a message that lists what it has received. This shows if it was carried out: all of it, or
nothing, and each at most once.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.simulator.truth import Violation

from redelivery.errors import AdapterError, RedeliveryError, TransactionRolledBack, TransportError

if TYPE_CHECKING:
    from tests.simulator.drivers import DriverWorld

    from redelivery import Message

__all__ = ["SessionPart"]

Action = tuple[Any, ...]


class Transaction:
    """One commit: its received messages, its sent message, and its end."""

    def __init__(self, number: int, messages: list[Message]) -> None:
        self.name = f"t{number}"
        self.messages = messages
        self.ended = False
        self.error: RedeliveryError | None = None


class SessionPart:
    """One session at a time in the mode `client` or `transacted`, on one thread; commits wait on another."""

    def __init__(self, world: DriverWorld) -> None:
        self._world = world
        self._mode = world.case.session
        self._transactions: list[Transaction] = []
        self._pending: Transaction | None = None
        self._thread: threading.Thread | None = None
        self._hand: list[Message] = []
        self._begin()

    def _begin(self) -> None:
        self._session = self._world.connection.session(self._mode)
        self._consumer = self._session.consumer("q")

    @property
    def busy(self) -> bool:
        """True if it can do something."""
        return bool(self._hand) or self._pending is not None

    def have(self) -> list[Message]:
        """Return the messages that it has received and not settled."""
        return [*self._hand, *(self._pending.messages if self._pending is not None else ())]

    def choices(self) -> list[Action]:
        """Return the possible next actions; while a commit waits, only the broker's answer."""
        stall = [("session", "stall"), ("session", "resume")]
        if self._pending is not None:
            return [*stall, ("session", "resume")]
        ways = ["receive", "receive", "receive"]
        if self._mode == "client":
            ways += ["acknowledge", "acknowledge", "recover"]
        else:
            ways += ["commit", "commit", "commit", "doubt", "rollback", "refuse"]
        return [*stall, *(("session", way) for way in (*ways, "reopen"))]

    def do(self, what: str) -> None:
        """Do one action."""
        if what in ("stall", "resume"):
            broker = self._world.broker
            (broker.stall_confirmations if what == "stall" else broker.resume_confirmations)()
        elif self._pending is None:
            getattr(self, f"_{what}")()

    def _receive(self) -> None:
        message = self._consumer.receive(timeout=0)
        if message is not None:
            self._hand.append(message)

    def _taken(self) -> list[Message]:
        taken, self._hand = self._hand, []
        return taken

    def _acknowledge(self) -> None:
        if self._mode != "client":
            return
        for message in self._taken():
            self._world.succeeded(message)
        self._session.acknowledge()

    def _recover(self) -> None:
        if self._mode != "client":
            return
        for message in self._taken():
            self._world.failed(message)
        self._session.recover()

    def _rollback(self) -> None:
        if self._mode != "transacted":
            return
        transaction = Transaction(len(self._transactions), [])
        transaction.error = TransactionRolledBack("by the application")
        self._transactions.append(transaction)
        self._session.send("out", transaction.name)
        for message in self._taken():
            self._world.failed(message)
        self._session.rollback()

    def _refuse(self) -> None:
        self._world.broker.refuse_sends(1)

    def _reopen(self) -> None:
        """Close it, which rolls back, or releases; and open another one."""
        if not self._world.connection.connected:
            return
        # Closing waits for the answers of late commits, in real time.
        self._world.broker.resume_confirmations()
        self._world.clock.advance(0)
        for message in self._taken():
            # Each message of a transaction is charged.
            self._world.ever[self._world.like(message)] += 1
        self._session.close()
        self._begin()

    def _finish(self) -> None:
        self._receive()
        (self._commit if self._mode == "transacted" else self._acknowledge)()

    def _commit(self) -> None:
        """Commit on another thread, which waits for the connection and the answer; this thread moves the time."""
        if self._mode != "transacted" or not self._hand:
            return
        transaction = self._pending = Transaction(len(self._transactions), self._taken())
        self._transactions.append(transaction)
        self._session.send("out", transaction.name)

        def commit() -> None:
            try:
                self._session.commit()
            except RedeliveryError as error:
                transaction.error = error
            transaction.ended = True
            self._world.clock.detach()

        self._world.clock.attach()
        self._thread = threading.Thread(target=commit, name="commit", daemon=True)
        self._thread.start()

    def _doubt(self) -> None:
        """Commit, and lose the connection before the answer."""
        self._world.broker.stall_confirmations()
        self._commit()
        self._world.clock.advance(0)
        self._world.broker.cut()
        self._world.clock.advance(0)
        self._world.broker.resume_confirmations()

    def look(self) -> None:
        """Record a commit that has ended."""
        transaction = self._pending
        if transaction is None or not transaction.ended:
            return
        assert self._thread is not None
        self._thread.join()
        self._pending = None
        error, world = transaction.error, self._world
        how = "committed" if error is None else type(error).__name__
        world.seen[f"commit: {how}"] += 1
        if error is None:
            for message in transaction.messages:
                world.succeeded(message)
        elif isinstance(error, AdapterError):
            for message in transaction.messages:
                world.failed(message)

    def close(self) -> None:
        """End it, whatever is on its way."""
        with suppress(RuntimeError):
            while self._pending is not None and not self._pending.ended:
                self._world.clock.advance(10)

    def settled(self) -> None:
        """Check that each transaction was carried out as a whole, once, or had no effect. Raises Violation."""
        world = self._world
        there = Counter(held.body.decode() for held in world.broker.messages("out"))
        committed: Counter[tuple[str, str]] = Counter()
        for transaction in self._transactions:
            many, error = there[transaction.name], transaction.error
            if many > 1:
                raise Violation(f"twice: what {transaction.name} has sent is there {many} times")
            sure = error is None or isinstance(error, TransactionRolledBack | AdapterError)
            if sure and many != (error is None):
                raise Violation(f"transaction: {transaction.name} has ended with {error!r}, and sent {many}")
            if many:
                committed.update(world.like(message) for message in transaction.messages)
            if many and isinstance(error, TransportError):
                world.seen["in doubt, committed"] += 1
                for message in transaction.messages:
                    world.successes[world.like(message)] += 1
        for like, many in committed.items():
            if many > world.size[like]:
                raise Violation(f"twice: {like} was committed {many} times")
