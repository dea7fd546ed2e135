"""How to learn that the broker has carried out what was settled before: no broker answers a disposition.

Classic, Artemis and RabbitMQ dead-letter a rejected message and say nothing, whether the rejection was settled or not
(measured). All of them take the frames of a session in order, so the answer to a later attach in the same session says
that the rejection has been carried out. The link is a second one from the same address, which the consumer may read,
and it never has credit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError
    from redelivery_amqp.delivery_source import DeliverySource

    Answer = Callable[[RedeliveryError | None], None]

__all__ = ["RoundTrip", "when_settled"]


class RoundTrip:
    """One question and its answer."""

    def __init__(self, receiver: DeliverySource, name: str, answer: Answer) -> None:
        self._answer: Answer | None = answer
        self.session = receiver.session
        self._receiver = receiver.session.receiver(name)
        receiver.describe(self._receiver.source)
        self._receiver.open()

    def on_attached(self) -> None:
        """The broker has answered."""
        self._receiver.close()
        self._tell(None)

    def on_ended(self) -> None:
        """The link has ended; a refusal is an answer too."""
        self._tell(None)

    def free(self) -> None:
        """Free the link. Only while its session stands: a session is freed with its links."""
        self._receiver.free()

    def fail(self, error: RedeliveryError) -> None:
        """There will be no answer."""
        self._tell(error)

    def _tell(self, error: RedeliveryError | None) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(error)


def when_settled(
    receiver: DeliverySource, answer: Answer, ask: Callable[[DeliverySource, Answer], None]
) -> None:
    """Tell when the broker has carried out what was settled: at once if it has, or if that need not be known.

    RabbitMQ works off each session in a process of its own: when the connection is cut it may have taken copies, and
    drop the acceptances that came before them on another session (measured: four).
    """
    progress, written = receiver.progress, receiver.progress.written
    if not progress.doubtful:
        answer(None)
        return

    def carried_out(error: RedeliveryError | None) -> None:
        if error is None:
            progress.carried_out(written)
        answer(error)

    ask(receiver, carried_out)
