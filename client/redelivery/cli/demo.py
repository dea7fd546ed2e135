"""`redelivery demo`: redelivery and dead-lettering in a few seconds, without a broker."""

from __future__ import annotations

import logging

import click

from redelivery.cli.common_options import output_option, verbose_option
from redelivery.cli.exit_codes import FAILED, OK, Failure
from redelivery.cli.param_types import milliseconds, number

__all__ = ["demo"]


def _delay(value: object) -> int:
    return number(1, 60_000)(milliseconds(1)(value))


@click.command(
    short_help="See redelivery at work in a few seconds, without a broker.",
    epilog="""\b
Examples:
  redelivery demo
  redelivery demo --delay 1000
  redelivery demo --output jsonl | jq -c 'select(.type == "attempt")'""",
)
@click.option(
    "--delay", type=_delay, default="400ms", show_default=True, metavar="DURATION",
    help="Delay before the first redelivery, 60 s at most; it doubles each time. A bare number: milliseconds.",
)  # fmt: skip
@output_option
@verbose_option
@click.pass_context
def demo(ctx: click.Context, delay: int, output: str) -> int:
    """Show redelivery at work on an embedded broker: three messages, one of which is poison.

    In real time: a message that succeeds, one that fails twice and succeeds when it is redelivered, and one that
    fails until it is dead-lettered. Exit code 0 only if all of it happened as promised: the deliveries counted,
    no delay cut short, the dead letter in its queue.
    """
    from redelivery.cli.demo_run import Demo, Outcome  # noqa: PLC0415
    from redelivery.cli.demo_view import JsonView, TableView  # noqa: PLC0415

    if not ctx.meta["verbosity"]:
        # The timeline says what the warnings would.
        logging.getLogger("redelivery").setLevel(logging.ERROR)
    show = Demo(delay)
    view = TableView(show) if output == "table" else JsonView(lines=output == "jsonl")
    outcome: Outcome | None = None
    with view.live():
        for event in show.run(view.tick):
            if isinstance(event, Outcome):
                outcome = event
            else:
                view.attempt(event)
    assert outcome is not None, "the last thing that `run` yields"
    view.outcome(outcome)
    if not outcome.ok:
        broken = "; ".join(check.promise for check in outcome.checks if not check.kept)
        raise Failure(f"this did not happen as promised: {broken}", FAILED)
    return OK
