"""Operations on a cluster in the middle of a run: as an operator, a crash, or the network does them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.brokers.toolchain import BrokerError
from integration.clusters.cluster import PairNode
from integration.clusters.rabbitmq import RabbitCluster, RabbitNode
from integration.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from integration.brokers import Broker
    from integration.clusters.run import Run
    from integration.proxy import LinkProxy

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """An operation, and what the run must look like for it."""

    act: Callable[[Run], None]
    first: int = 0
    """Number of the node that the consumer connects to."""
    proxied: bool = False
    """True if the consumer's connections go through proxies, one for each node."""
    home: str = ""
    """`queue` or `dead letters`: what is declared at the first node before the consumer starts."""


def term_one(run: Run) -> None:
    """TERM of the node that has the classic queues, and to which the consumer is connected; then its start."""
    node = run.cluster.nodes[0]
    run.mark(f"TERM {_at(run, node)}")
    node.stop()
    run.mark("it has ended")
    run.wait(8.0)
    _start(run, node)
    run.wait(8.0)


def rolling(run: Run) -> None:
    """TERM and start of each node, one after the other."""
    for node in run.cluster.nodes:
        run.mark(f"TERM {_at(run, node)}")
        node.stop()
        run.wait(1.0)
        _start(run, node)
        run.wait(4.0)


def kill_connected(run: Run, seconds: float = 10.0) -> None:
    """KILL of the node that the consumer is connected to; its start."""
    node = run.connected()
    run.mark(f"KILL {_at(run, node)}")
    node.kill(at_once=True)
    run.wait(seconds)
    _start(run, node)
    run.wait(6.0)


def kill_long(run: Run) -> None:
    """Do the same, and leave the node dead for longer than RabbitMQ keeps what its consumers held."""
    kill_connected(run, 90.0)


def kill_leader(run: Run) -> None:
    """KILL of the leader of a quorum queue, while the consumer is connected elsewhere."""
    cluster = _rabbit(run)
    connected = run.connected()
    if cluster.serving(run.queue) is connected:
        other = next(node for node in cluster.nodes if node is not connected)
        cluster.lead(run.queue, other)
        eventually(lambda: cluster.serving(run.queue) is other, message="the leader has moved")
        run.wait(2.0)
    leader = cluster.serving(run.queue)
    run.mark(f"KILL {leader.node}, the leader, the consumer is at {run.connected().ports}")
    leader.kill(at_once=True)
    run.wait(12.0)
    _start(run, leader)
    run.wait(6.0)


def move_leader(run: Run) -> None:
    """Move the leader of a quorum queue four times."""
    cluster = _rabbit(run)
    for _ in range(4):
        place = cluster.nodes.index(cluster.serving(run.queue))
        after = cluster.nodes[(place + 1) % len(cluster.nodes)]
        run.mark(f"the leader moves to {after.node}")
        cluster.lead(run.queue, after)
        run.wait(5.0)


def majority(run: Run) -> None:
    """KILL of the two other nodes for 20 s; the consumer stays connected."""
    _others_dead(run, 20.0, cut=False)


def minority(run: Run) -> None:
    """KILL of the two other nodes for half a minute; the consumer's connection is cut meanwhile."""
    _others_dead(run, 30.0, cut=True)


def long_minority(run: Run) -> None:
    """KILL of the two other nodes for two minutes; the consumer's connection is cut meanwhile."""
    _others_dead(run, 116.0, cut=True)


def kill_home(run: Run) -> None:
    """KILL of the node of a classic queue; the consumer is connected elsewhere."""
    kill_first(run, 20.0)


def kill_dead_letters(run: Run) -> None:
    """KILL of the node of the classic dead-letter queue for 70 s; the queue itself is well."""
    kill_first(run, 70.0)


def kill_first(run: Run, seconds: float = 10.0) -> None:
    """KILL of the first node; its start."""
    node = run.cluster.nodes[0]
    run.mark(f"KILL {_at(run, node)}")
    node.kill(at_once=True)
    run.wait(seconds)
    _start(run, node)
    run.wait(12.0)


def term_each(run: Run) -> None:
    """TERM and start of each broker."""
    rolling(run)


def freeze(run: Run) -> None:
    """Freeze the node that the consumer is connected to for 45 s."""
    node = run.connected()
    _freeze(run, node, 45.0)
    run.wait(12.0)


def all_dead(run: Run) -> None:
    """KILL of all nodes for half a minute."""
    cluster = run.cluster
    run.mark("KILL of all nodes")
    for node in cluster.nodes:
        node.kill(at_once=True)
    run.wait(30.0)
    run.mark("they start")
    cluster.start_nodes(cluster.nodes)
    run.mark("all serve")
    run.wait(8.0)


def partition(run: Run) -> None:
    """Separate the node that the consumer is connected to from the two others for half a minute."""
    cluster, alone = _rabbit(run), run.connected()
    assert isinstance(alone, RabbitNode)
    run.mark(f"partition: {_at(run, alone)} alone")
    cluster.part(alone)
    run.wait(30.0)
    cluster.part(alone, healed=True)
    run.mark("healed")
    run.wait(15.0)


def cut(run: Run) -> None:
    """Cut the consumer's connection eight times."""
    for number in range(8):
        cut_once(run, f"cut {number + 1}")
        run.wait(2.0)


def silence(run: Run) -> None:
    """Stop all bytes to the consumer's node and back for 45 s, and keep the connection open."""
    place = run.cluster.nodes.index(run.connected())
    run.mark("silence")
    run.proxies[place].stall()
    run.wait(45.0)
    run.proxies[place].resume()
    run.mark("the link flows")
    run.wait(8.0)


def slow(run: Run) -> None:
    """Delay the consumer's connection by 200 ms each way."""
    _link(run, "200 ms each way", lambda proxy: proxy.delay(0.2))
    run.wait(25.0)
    _link(run, "no delay", lambda proxy: proxy.delay(0.0))


def narrow(run: Run) -> None:
    """Limit the consumer's connection to 20 KB a second."""
    _link(run, "20 KB/s", lambda proxy: proxy.narrow(20_000))
    run.wait(25.0)
    _link(run, "no limit", lambda proxy: proxy.narrow(0))


def _link(run: Run, what: str, change: Callable[[LinkProxy], None]) -> None:
    run.mark(what)
    for proxy in run.proxies:
        change(proxy)


def failover(run: Run) -> None:
    """KILL of the active one of an Artemis pair; failover, and failback when the primary is started again."""
    _failover(run, lambda node: node.kill(at_once=True), "KILL")


def failover_term(run: Run) -> None:
    """Do the same by TERM."""
    _failover(run, lambda node: node.stop(), "TERM")


def failover_both(run: Run) -> None:
    """KILL of the active one of a Classic pair, and then of the other one."""
    first, second = run.cluster.nodes
    for node, other in ((first, second), (second, first)):
        assert isinstance(node, PairNode)
        assert isinstance(other, PairNode)
        run.mark(f"KILL {_at(run, node)}")
        node.kill(at_once=True)
        other.active()
        run.mark(f"{_name(run, other)} is active")
        run.wait(8.0)
        node.stand_by()
        run.mark(f"{_name(run, node)} stands by")
        run.wait(2.0)


def both_dead(run: Run) -> None:
    """KILL of both of a pair for half a minute."""
    run.mark("KILL of both")
    for node in run.cluster.nodes:
        node.kill(at_once=True)
    run.wait(30.0)
    run.mark("they start")
    run.cluster.start()
    run.mark("one is active")
    run.wait(10.0)


def chosen_by_seed(run: Run) -> None:
    """Do what operators, crashes and networks do, one after the other, chosen by the seed, for the minutes of the run.

    After each operation all nodes serve again; the next one comes after some seconds.
    """
    operations = RABBIT_OPERATIONS if isinstance(run.cluster, RabbitCluster) else PAIR_OPERATIONS
    over = time.monotonic() + run.minutes * 60.0
    while time.monotonic() < over:
        run.dice.choice(operations)(run)
        run.cluster.start()
        run.wait(5.0)


def cut_once(run: Run, what: str = "cut") -> None:
    """Cut the consumer's connection."""
    run.mark(what)
    for proxy in run.proxies:
        proxy.cut(reset=run.dice.random() < 0.5)


def restart_one(run: Run) -> None:
    """TERM and start of any node."""
    _away(run, lambda node: node.stop(), "TERM")


def kill_one(run: Run) -> None:
    """KILL and start of any node."""
    _away(run, lambda node: node.kill(at_once=True), "KILL")


def move_once(run: Run) -> None:
    """Make any node the leader of the queue."""
    cluster = _rabbit(run)
    node = run.dice.choice(cluster.nodes)
    run.mark(f"the leader moves to {node.node}")
    # It refuses while the members of the queue are not all there again.
    with suppress(BrokerError):
        cluster.lead(run.queue, node)


def freeze_briefly(run: Run) -> None:
    """Freeze any node for up to 20 s."""
    _freeze(run, run.dice.choice(run.cluster.nodes), run.dice.uniform(1.0, 19.0))


RABBIT_OPERATIONS: Sequence[Callable[[Run], None]] = (
    restart_one, restart_one, kill_one, kill_one, rolling, move_once, cut_once, cut_once, freeze_briefly, partition,
    all_dead,
)  # fmt: skip
"""Those of the seed; what happens often stands twice."""
PAIR_OPERATIONS: Sequence[Callable[[Run], None]] = (
    failover,
    failover,
    failover_term,
    cut_once,
    cut_once,
    both_dead,
)

FAULTS = {
    "term_one": Fault(term_one),
    "rolling": Fault(rolling),
    "kill_connected": Fault(kill_connected),
    "kill_long": Fault(kill_long),
    "kill_leader": Fault(kill_leader),
    "move_leader": Fault(move_leader),
    "majority": Fault(majority),
    "minority": Fault(minority, proxied=True),
    "long_minority": Fault(long_minority, proxied=True),
    "kill_home": Fault(kill_home, first=2, home="queue"),
    "kill_dead_letters": Fault(kill_dead_letters, first=2, home="dead letters"),
    "kill_first": Fault(kill_first),
    "term_each": Fault(term_each),
    "freeze": Fault(freeze),
    "all_dead": Fault(all_dead),
    "partition": Fault(partition),
    "cut": Fault(cut, proxied=True),
    "silence": Fault(silence, proxied=True),
    "slow": Fault(slow, proxied=True),
    "narrow": Fault(narrow, proxied=True),
    "failover": Fault(failover),
    "failover_term": Fault(failover_term),
    "classic.failover": Fault(failover_both),
    "both_dead": Fault(both_dead),
    "random": Fault(chosen_by_seed, proxied=True),
}
"""By name; one of a single kind of cluster has its first word before it."""


def _start(run: Run, node: Broker) -> None:
    run.mark(f"{_name(run, node)} starts")
    node.start()
    run.mark(f"{_name(run, node)} is up")


def _away(run: Run, end: Callable[[Broker], object], what: str) -> None:
    """End any node, and start it after up to 15 s."""
    node = run.dice.choice(run.cluster.nodes)
    run.mark(f"{what} {_at(run, node)}")
    end(node)
    run.wait(run.dice.uniform(0.0, 15.0))
    _start(run, node)


def _freeze(run: Run, node: Broker, seconds: float) -> None:
    run.mark(f"STOP {_at(run, node)}")
    node.pause()
    run.wait(seconds)
    node.resume()
    run.mark("CONT")


def _others_dead(run: Run, seconds: float, *, cut: bool) -> None:
    cluster = run.cluster
    ours = run.connected()
    others = [node for node in cluster.nodes if node is not ours]
    run.mark(f"KILL of the two others, the consumer is at {_at(run, ours)}")
    for node in others:
        node.kill(at_once=True)
    run.wait(4.0)
    if cut:
        run.mark("cut")
        for proxy in run.proxies:
            proxy.cut()
    run.wait(seconds)
    run.mark("both start")
    cluster.start_nodes(others)
    run.mark("both are up")
    run.wait(20.0)


def _failover(run: Run, end: Callable[[Broker], object], what: str) -> None:
    primary, backup = run.cluster.nodes
    assert isinstance(primary, PairNode)
    assert isinstance(backup, PairNode)
    run.mark(f"{what} of the primary")
    end(primary)
    backup.active()
    run.mark("the backup is active")
    run.wait(10.0)
    primary.stand_by()
    run.mark("the primary starts: failback")
    primary.active()
    run.mark("the primary is active")
    run.wait(12.0)


def _rabbit(run: Run) -> RabbitCluster:
    cluster = run.cluster
    assert isinstance(cluster, RabbitCluster)
    return cluster


def _name(run: Run, node: Broker) -> str:
    return f"n{run.cluster.nodes.index(node) + 1}"


def _at(run: Run, node: Broker) -> str:
    """Return a node's name, and what it is in this run."""
    found = [_name(run, node)]
    if run.connected() is node:
        found.append("connected")
    if isinstance(run.cluster, RabbitCluster):
        # Right after another operation no node may know it.
        with suppress(BrokerError):
            found += ["has the queue"] if run.cluster.serving(run.queue) is node else []
    return ", ".join(found)
