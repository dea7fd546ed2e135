"""Possible next actions in a world: of the broker, the application and the adversary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.process import RETRIES
from tests.simulator.quorum import noted_count

if TYPE_CHECKING:
    from tests.simulator.profiles import Message
    from tests.simulator.world import Action, World

__all__ = ["choices", "free", "next_time"]

HOUR = 3600.0


def choices(world: World) -> list[Action]:
    """Return all possible next actions."""
    can: list[Action] = []
    if world.unsent:
        can.append(("send", world.unsent[0].name))
    for delivery in world.handlers:
        can += [("end", delivery.message.name, delivery.epoch, outcome) for outcome in world.outcomes]
    can += _while_up(world) if world.up else [("up",)]
    if not world.up and world.budget["move"]:
        can.append(("up", "elsewhere"))
    for how in ("crash", "die") if world.handlers else ():
        # With a ledger, and without.
        if world.budget[how] and (world.ledger is not None) == (how == "crash"):
            can += [(how, read) for read in {0, len(world.broker.wire)}]
    for name, (due, _) in world.broker.delayed.items():
        if due <= world.now or world.budget["hasty"]:
            can.append(("ripe", name))
    if world.budget["redrive"]:
        can += [("redrive", message.name) for message in world.all if _may_redrive(world, message)]
    can += _elsewhere(world)
    if next_time(world) is not None:
        can.append(("wait",))
    return can


def _may_redrive(world: World, message: Message) -> bool:
    """Return True if a message is dead and its consumer knows it; one of its kin may have been put back instead."""
    if world.truth.gone.get(message.name) != "dead" or world.truth.size[message.kin] > 1:
        return False
    mine = [each.message for unsettled in world.broker.unsettled.values() for each in unsettled]
    return message not in mine and all(each.message is not message for each, _ in world.broker.answers)


def _while_up(world: World) -> list[Action]:
    broker = world.broker
    can: list[Action] = []
    if broker.queue and broker.has_told(broker.queue[0]):
        can += [("deliver", broker.queue[0].name, c) for c in world.process.engines if broker.may_deliver(c)]
    for number, engine in world.process.engines.items():
        if free(world, number) and (engine.load.ready() or (engine.load.suspects and not world.handlers)):
            can.append(("begin", number))
    if any(kind != "accept" for kind, _ in broker.wire):
        can.append(("broker",))
        if world.budget["refuse"]:
            can.append(("refuse",))
    if broker.answers:
        can.append(("answer",))
    # A message that is sent later, or put back, may be known from before.
    later = world.truth.gone and (world.unsent or world.budget["redrive"])
    if world.budget["cut"] and (any(broker.unsettled.values()) or broker.wire or later):
        can += [("cut", read) for read in range(len(broker.wire) + 1)]
        if world.profile.marks == "any":
            can += [("cut", read, "unmarked") for read in range(len(broker.wire) + 1)]
    if world.budget["kill"] and broker.would_forget(world.now) is not None:
        can.append(("kill", len(broker.wire)))
    can += _taken_back(world)
    if world.budget["close"]:
        can += [("close", number) for number in world.process.engines]
    return can


def _elsewhere(world: World) -> list[Action]:
    """Return the possible actions of a consumer in another process."""
    can: list[Action] = []
    if world.budget["other"] and world.broker.queue:
        can.append(("other", "take", world.broker.queue[0].name))
    for message in world.theirs:
        can += [("other", "ok", message.name), ("other", "back", message.name)]
        # With a ledger, all processes of a queue have one.
        if world.native and world.ledger is None and noted_count(message) < RETRIES:
            can.append(("other", "fail", message.name))
    return can


def _taken_back(world: World) -> list[Action]:
    """Return what the broker may take back: one delivery of a consumer, or all; settled ones only if that may cross."""
    can: list[Action] = []
    for number in world.process.engines if world.budget["takeback"] else ():
        mine = world.broker.unsettled[number]
        some = [each for each in mine if each.final is None or world.budget["cross"]]
        can += [("takeback", number, each.message.name) for each in some]
        if some and len(some) == len(mine):
            can.append(("takeback", number, None))
    if world.broker.notices:
        can.append(("notice",))
    if world.broker.settled:
        can.append(("learn",))
    return can


def free(world: World, consumer: int) -> bool:
    """Return True if a consumer has an idle worker."""
    return sum(delivery.consumer == consumer for delivery in world.handlers) < world.case.workers


def next_time(world: World) -> float | None:
    """Return when something happens by itself, or None; hourly reminders of messages set aside do not count."""
    engines = world.process.engines.values()
    times = [
        at for engine in engines for at in (engine.load.next_due(), engine.next_alarm()) if at is not None
    ]
    times += [due for due, _ in world.broker.delayed.values() if due > world.now]
    return min((at for at in times if at < world.now + HOUR / 2), default=None)
