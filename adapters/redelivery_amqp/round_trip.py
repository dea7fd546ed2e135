"""Round trip that confirms earlier settlements: no broker answers a disposition.

Classic, Artemis and RabbitMQ dead-letter a rejected message without an answer, whether the rejection was settled or not
(measured). All of them process the frames of a session in order. The answer to a later attach in the same session
therefore confirms the rejection. The link is a second one from the same address, which the consumer may read, and it
never has credit.
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
    """One attach and its answer."""

    def __init__(self, receiver: DeliverySource, name: str, answer: Answer) -> None:
        self._answer: Answer | None = answer
        self.session = receiver.session
        self._receiver = receiver.session.receiver(name)
        receiver.describe(self._receiver.source)
        self._receiver.open()

    def on_attached(self) -> None:
        """Handle the broker's answer."""
        self._receiver.close()
        self._tell(None)

    def on_ended(self) -> None:
        """Handle the end of the link; a refusal is an answer too."""
        self._tell(None)

    def free(self) -> None:
        """Free the link. Only if its session goes on: a session is freed with its links."""
        self._receiver.free()

    def fail(self, error: RedeliveryError) -> None:
        """Report that there is no answer."""
        self._tell(error)

    def _tell(self, error: RedeliveryError | None) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(error)


def when_settled(
    receiver: DeliverySource, answer: Answer, ask: Callable[[DeliverySource, Answer], None]
) -> None:
    """Call `answer` when the broker has carried out the settlements of a link; at once if that is known or not needed.

    RabbitMQ processes each session independently. When the connection is cut, the broker can have taken a copy and drop
    acceptances that were written before it on another session (measured: four).
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
