"""Measures which of several subscriptions gets a message: groups, exclusive consumers, topics, wildcards.

`integration.measure_windows` runs it. The source of docs/measured/windows.md, section c.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from integration.brokers import Broker, RabbitMQ
from integration.raw_amqp import RawAmqp
from integration.stomp_wire import NAMES, Wire, ack, address, by, end, errors, filled, messages, number, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.stomp_wire import Frame


def groups(broker: Broker) -> None:
    """Print which subscription gets each of four message groups, before and after one is added or ended."""
    for how in ("two at once", "second later", "first full, second later", "first ended"):
        queue = filled(broker, 120, "groups", group=lambda n: f"g{n % 4}")
        with Wire(broker) as wire:
            wire.write(wire.subscribe(queue, "a", 8))
            if how == "two at once":
                wire.write(wire.subscribe(queue, "b", 8))
            first = messages(wire.quiet())
            line = [f"first {by(first)}"]
            if how == "first full, second later":
                wire.write(wire.subscribe(queue, "b", 40))
                line.append(f"second begun: +{by(wire.quiet())}")
            wire.write(ack(first[:4]))
            more = messages(wire.quiet())
            line.append(f"ACK of 4: +{by(more)}")
            if how in ("second later", "first ended"):
                wire.write(wire.subscribe(queue, "b", 40))
                line.append(f"second begun: +{by(wire.quiet())}")
            if how == "first ended":
                wire.write(end("a", b"receipt:u\n"))
                line.append(f"first ended with {len(first) - 4 + len(more)} held: +{by(wire.quiet())}")
            owners: dict[int, set[str]] = {}
            seen = first + more
            wire.write(ack([*first[4:], *more]) if how != "first ended" else b"")
            while now := messages(wire.read(1.0)):
                seen += now
                wire.write(ack(now))
            for one in seen:
                owners.setdefault(number(one) % 4, set()).add(one.header(b"subscription").decode())
            shown = {f"g{k}": "".join(sorted(v)) for k, v in sorted(owners.items())}
            print(f"  {how}: {'; '.join(line)}; {len(seen)} in all, groups at {shown}")


def elsewhere(broker: Broker) -> None:
    """Print the effect of the end of a full subscription on a wider one, and on one of another connection."""
    for when in ("before the wide one", "after the wide one"):
        for many in (0, 1, 4):
            group: Callable[[int], str] | None = None if not many else partial(_group, many)
            queue = filled(broker, 4, "elsewhere", group=group)
            with Wire(broker) as own, Wire(broker) as other:
                own.write(own.subscribe(queue, "narrow", 4))
                held = messages(own.quiet())
                if when == "before the wide one":
                    other.write(other.subscribe(queue, "other", 10))
                    other.quiet()
                own.write(own.subscribe(queue, "wide", 20))
                own.quiet()
                if when == "after the wide one":
                    other.write(other.subscribe(queue, "other", 10))
                    other.quiet()
                own.write(end("narrow", b"receipt:u\n"))
                found = (own.quiet(), other.quiet())
                kept, gone = (sorted(map(number, messages(each))) for each in found)
                print(
                    f"  {many} groups, the other begun {when}: {len(held)} held, then {kept} by the wide one, "
                    f"{gone} at the other connection"
                )
    for times in (1, 3, 7):
        queue = filled(broker, 1, "counted")
        with Wire(broker) as wire:
            for turn in range(times):
                wire.write(wire.subscribe(queue, f"s{turn}", 4))
                assert messages(wire.quiet()), "it is sent again"
                wire.write(end(f"s{turn}", b"receipt:u\n"))
                wire.quiet()
        with RawAmqp(broker) as amqp:
            print(f"  {times} such ends: AMQP delivery-count {amqp.receive(queue)[0].delivery_count}")


def spread(broker: Broker) -> None:
    """Print how many of 1,000 messages in 100 groups each of four connections gets, by size of their windows."""
    for late in (0.0, 0.5):
        for size in (4, 164, 1000):
            queue = filled(broker, 1000, "spread", group=partial(_group, 100))
            counts = [0, 0, 0, 0]
            with ExitStack() as stack:
                wires = [stack.enter_context(Wire(broker)) for _ in counts]
                waiting: list[list[Frame]] = [[] for _ in counts]
                for at, wire in enumerate(wires):
                    wire.write(wire.subscribe(queue, "s", size))
                    waiting[at] = messages(wire.quiet(late)) if late else []
                idle = 0
                while sum(counts) < 1000 and idle < 50:
                    idle += 1
                    for at, wire in enumerate(wires):
                        waiting[at] += messages(wire.read(0.002))
                        if waiting[at]:
                            wire.write(ack([waiting[at].pop(0)]))
                            counts[at] += 1
                            idle = 0
            print(f"  windows of {size}, begun {'one after the other' if late else 'together'}: {counts}")


def _group(many: int, at: int) -> str:
    return f"g{at % many}"


def kinds(broker: Broker) -> None:
    """Print the same for selectors, topics, durable subscriptions, exclusive consumers and wildcards."""
    name = f"w.sel.{next(NAMES)}"
    put(broker, name, range(40), more="colour:red\n")
    put(broker, name, range(40, 80), more="colour:blue\n")
    with Wire(broker) as wire:
        for identity in "ab":
            wire.write(wire.subscribe(name, identity, 10, {"selector": "colour = 'blue'"}))
        found = wire.quiet()
        print(f"  selector blue, two of 10: {by(found)}, numbers {sorted(map(number, messages(found)))[:3]}…")
    _topics(broker)
    if broker.name == "activemq":
        _exclusive_on_classic(broker)
        stem = f"w.wild{next(NAMES)}"
        for leaf in "xyz":
            put(broker, f"{stem}.{leaf}", range(40))
        with Wire(broker) as wire:
            for identity in "ab":
                wire.write(wire.subscribe(f"{stem}.*", identity, 10))
                print(f"  wildcard over three queues of 40, window 10, {identity}: {by(wire.quiet())}")
        with Wire(broker) as wire:
            for identity in "ab":
                wire.write(wire.subscribe(f"{stem}.x,{stem}.y", identity, 10))
                print(f"  two queues in one name, window 10, {identity}: {by(wire.quiet())}")
        with Wire(broker) as wire:
            for identity in "ab":
                wire.write(wire.subscribe("/temp-queue/mine", identity, 10))
            wire.quiet()
            wire.write(b"SEND\ndestination:/temp-queue/mine\n\nx\0" * 60)
            print(f"  temporary queue, two of 10, 60 sent: {by(wire.quiet())}")
    if broker.name == "artemis":
        _exclusive_on_artemis(broker)
    if isinstance(broker, RabbitMQ):
        _single_active(broker)


def _topics(broker: Broker) -> None:
    name = f"w.topic.{next(NAMES)}"
    own = {"subscription-type": "MULTICAST"} if broker.name == "artemis" else {}
    topic = address(broker, name, topic=True)
    with Wire(broker) as wire:
        wire.write(b"".join(wire.subscribe(topic, identity, 10, own) for identity in "ab"))
        wire.quiet()
        put(broker, name, range(5), topic=True)
        print(f"  topic, two of 10, five sent: {by(wire.quiet())}")
    name = f"w.topic.{next(NAMES)}"
    topic = address(broker, name, topic=True)
    durable = {
        "activemq": {"activemq.subscriptionName": "s"},
        "artemis": {"durable-subscription-name": "s", **own},
        "rabbitmq": {"durable": "true", "auto-delete": "false", "x-queue-name": f"sub-{name}"},
    }[broker.name]
    with Wire(broker, f"client{name}") as wire:
        wire.write(b"".join(wire.subscribe(topic, identity, 10, durable) for identity in "ab"))
        refused = errors(wire.quiet())
        put(broker, name, range(60), topic=True)
        found = [] if refused and broker.name != "activemq" else messages(wire.quiet())
        twice = len(found) - len(set(map(number, found)))
        print(f"  durable subscription, twice of 10, 60 sent: {by(found)}, {twice} of them twice; {refused}")


def _exclusive_on_classic(broker: Broker) -> None:
    for how in ("consumer.exclusive=true", "activemq.exclusive:true"):
        name = f"w.exclusive.{next(NAMES)}"
        put(broker, name, range(60))
        queue, headers = (
            (f"/queue/{name}?{how}", {}) if "=" in how else (name, {"activemq.exclusive": "true"})
        )
        with Wire(broker) as wire:
            for identity in "ab":
                wire.write(wire.subscribe(queue, identity, 10, headers))
                print(f"  exclusive by {how}, window 10, {identity}: +{by(wire.quiet())}")


def _exclusive_on_artemis(broker: Broker) -> None:
    name = f"w.exclusive.{next(NAMES)}"
    with RawAmqp(broker) as amqp:
        amqp.manage(
            "broker",
            "createQueue",
            json.dumps({"name": name, "address": name, "routing-type": "ANYCAST", "exclusive": True}),
        )
    put(broker, name, range(60))
    with Wire(broker) as wire:
        for identity in "ab":
            wire.write(wire.subscribe(name, identity, 10))
            print(f"  exclusive queue, window 10, {identity}: +{by(wire.quiet())}")
        wire.write(end("a"))
        print(f"  the first ended: +{by(wire.quiet())}")


def _single_active(broker: RabbitMQ) -> None:
    name = f"w.single.{next(NAMES)}"
    code = (
        'rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"NAME">>), true, false, '
        '[{<<"x-single-active-consumer">>, bool, true}], none, <<"tester">>).'
    )
    broker.control("eval", code.replace("NAME", name))
    put_to = f"/amq/queue/{name}"
    with Wire(broker) as wire:
        wire.write(b"".join(b"SEND\ndestination:%b\n\n%d \0" % (put_to.encode(), n) for n in range(60)))
        wire.quiet(0.3)
        for identity in "ab":
            wire.write(wire.subscribe(put_to, identity, 10))
        first = wire.quiet()
        print(f"  x-single-active-consumer, two of 10: {by(first)} {errors(first)}")
        wire.write(end("a") + wire.subscribe(put_to, "a", 20))
        again = wire.quiet()
        print(f"  the first again with 20 in one write: +{by(again)} {errors(again)}")
