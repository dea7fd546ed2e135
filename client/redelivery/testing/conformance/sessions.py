"""Sessions: messages that are settled together, on brokers with and without transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.testing.conformance.bench import QUIET, Suite, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery import Connection, Message, Session
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Sessions"]

POLICY = redelivery.RedeliveryPolicy(
    maximum_redeliveries=1, initial_redelivery_delay=0.1, redelivery_delay=0.1
)
MANY = 50


def transacted(bench: Bench, connection: Connection) -> Session | None:
    """Return a transacted session; None: the broker has none, and refuses it with that reason."""
    if bench.capabilities.transactions:
        return connection.session("transacted")
    refused(lambda: connection.session("transacted"), "has no transactions over this protocol")
    return None


def texts(found: list[Any]) -> list[str]:
    return sorted(one.text for one in found)


class Sessions(Suite):
    """Promises of the five modes."""

    def test_a_commit_covers_receives_and_sends(self, bench: Bench) -> None:
        """A commit acknowledges and sends everything; nothing has an effect before it.

        Two queues are received from, and one is sent to.
        """
        connection = bench.connect(POLICY)
        session = transacted(bench, connection)
        if session is None:
            return
        out, second = f"{bench.queue}.out", f"{bench.queue}.second"
        for number in range(MANY):
            bench.post(connection, str(number))
        bench.post(connection, "other", second)
        consumers = [session.consumer(bench.queue), session.consumer(second)]
        received = [bench.pull(consumers[0]) for _ in range(MANY)] + [bench.pull(consumers[1])]
        for message in received:
            session.send(out, message.body, headers={"conformance": bench.run})
        session.commit()
        assert {message.outcome for message in received} == {"accepted"}
        bench.leave()
        assert [one.body for one in bench.left(out, len(received))] == [message.body for message in received]
        assert (bench.left(), bench.left(second)) == ([], [])

    def test_a_rollback_drops_sends_and_charges_receives(self, bench: Bench) -> None:
        """A rollback drops the sends, and redelivers the received messages after their delay, charged.

        When their redeliveries are used up, they are poison.
        """
        connection = bench.connect(POLICY)
        session = transacted(bench, connection)
        if session is None:
            return
        out = f"{bench.queue}.out"
        bench.post(connection, "bad")
        consumer = session.consumer(bench.queue)
        for count in (1, 2):
            message = bench.pull(consumer)
            assert (message.delivery_count, message.redelivered) == (count, count > 1)
            session.send(out, "never", headers={"conformance": bench.run})
            session.rollback()
        assert texts(bench.buried(connection, 1)) == ["bad"]
        assert (bench.left(), bench.left(out)) == ([], [])

    def test_a_session_that_closes_rolls_back(self, bench: Bench) -> None:
        """A message of a closed session goes to the next consumer, with one redelivery charged."""
        connection = bench.connect(POLICY)
        session = transacted(bench, connection)
        if session is None:
            return
        bench.post(connection, "once")
        with session:
            bench.pull(session.consumer(bench.queue))
        message = bench.pull(connection.consumer(bench.queue))
        assert (message.text, message.delivery_count) == ("once", 2)
        message.accept()
        assert bench.left() == []

    def test_a_refused_commit_sends_and_accepts_nothing(self, bench: Bench) -> None:
        """A message that cannot be sent ends the transaction with an AdapterError.

        The received messages are redelivered.
        """
        connection = bench.connect(POLICY)
        session = transacted(bench, connection)
        if session is None or bench.broker.refuses is None:
            return
        out = f"{bench.queue}.out"
        bench.post(connection, "kept")
        consumer = session.consumer(bench.queue)
        bench.pull(consumer)
        session.send(out, "never", headers={"conformance": bench.run})
        session.send(bench.broker.refuses, "refused")
        with pytest.raises(redelivery.RedeliveryError):
            session.commit()
        again = bench.pull(consumer)
        assert again.text == "kept"
        session.commit()
        assert (bench.left(), bench.left(out)) == ([], [])

    def test_a_cut_before_the_commit_rolls_back_and_charges_nothing(self, bench: Bench) -> None:
        """A commit after a cut raises TransactionRolledBack.

        The message is redelivered with the same count, and its sends are dropped.
        """
        connection = bench.connect(POLICY)
        session = transacted(bench, connection)
        if session is None:
            return
        out = f"{bench.queue}.out"
        bench.post(connection, "kept")
        consumer = session.consumer(bench.queue)
        bench.pull(consumer)
        session.send(out, "never", headers={"conformance": bench.run})
        bench.cut(connection)
        with pytest.raises(redelivery.TransactionRolledBack, match="nothing was sent"):
            session.commit()
        again = bench.pull(consumer)
        assert (again.text, again.redelivery_count) == ("kept", 0)
        session.commit()
        assert (bench.left(), bench.left(out)) == ([], [])

    def test_client_acknowledges_all_so_far(self, bench: Bench) -> None:
        """One acknowledgement covers all messages received so far.

        Messages received after it return to the queue when the session closes.
        """
        connection = bench.connect(POLICY)
        for body in "123":
            bench.post(connection, body)
        session = connection.session("client")
        consumer = session.consumer(bench.queue)
        messages = [bench.pull(consumer) for _ in range(2)]
        messages[1].accept()
        assert [message.outcome for message in messages] == ["accepted", "accepted"]
        assert bench.pull(consumer).text == "3"
        session.close()
        assert texts(bench.left(at_least=1)) == ["3"]

    @pytest.mark.parametrize("mode", ["client", "individual"])
    def test_recover_charges_what_is_unsettled(self, bench: Bench, mode: str) -> None:
        """A recovered message is redelivered after its delay.

        When its redeliveries are used up, it is poison.
        """
        connection = bench.connect(POLICY)
        bench.post(connection, "bad")
        session = connection.session(mode)
        consumer = session.consumer(bench.queue)
        for count in (1, 2):
            assert bench.pull(consumer).delivery_count == count
            session.recover()
        assert texts(bench.buried(connection, 1)) == ["bad"]
        assert bench.left() == []

    @pytest.mark.parametrize("mode", ["auto", "dups_ok"])
    def test_a_receive_accepts_where_the_mode_says_so(self, bench: Bench, mode: str) -> None:
        """A message is acknowledged when `receive` returns it; none is left."""
        connection = bench.connect(POLICY)
        bench.post(connection, "x")
        consumer = connection.session(mode).consumer(bench.queue)
        assert bench.pull(consumer).outcome == "accepted"
        assert consumer.receive(QUIET) is None
        assert bench.left() == []

    def test_a_listener_commits_each_message(self, bench: Bench) -> None:
        """A handler may commit or roll back: each message is sent on once, and poison is dead-lettered."""
        connection = bench.connect(POLICY)
        session = transacted(bench, connection)
        if session is None:
            return
        out = f"{bench.queue}.out"
        bodies = ["good-1", "bad", "good-2"]
        for body in bodies:
            bench.post(connection, body)
        session.listen(bench.queue, _sending_on(bench, session, out))
        connection.start()
        bench.eventually(lambda: connection.report().accepted == 2, "the good ones are committed")
        assert texts(bench.buried(connection, 1)) == ["bad"]
        assert texts(bench.left(out, 2)) == ["good-1", "good-2"]
        assert bench.left() == []


def _sending_on(bench: Bench, session: Session, out: str) -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        if message.text == "bad":
            session.rollback()
            return
        session.send(out, message.text, headers={"conformance": bench.run})
        session.commit()

    return handle
