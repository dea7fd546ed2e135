"""Addresses of a connection: each address of a name is one, and an address that refuses the log-in ends nothing."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import body_of

from redelivery import AdapterError, BrokerUnavailable, TransportError
from redelivery.adapter_support.sockets import resolved
from redelivery.driver.connection.failover import JITTER, FailoverAddresses, delay_after
from redelivery.events import Connected
from redelivery.settings import Endpoint, FailoverSettings
from redelivery.testing import MemoryBroker
from redelivery.uri.parser import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.driver.twins import Twin

    from redelivery.events import Event
    from redelivery.testing import ManualClock

CLUSTER = Endpoint("amqp", "cluster.test", 5672)
FOUND = {CLUSTER.host: ("127.0.0.3", "127.0.0.4", "127.0.0.5"), "dual.test": ("::1", "127.0.0.1")}


def look_up(endpoint: Endpoint) -> Sequence[Endpoint]:
    """Return the addresses of two of the names."""
    return [replace(endpoint, ip=ip) for ip in FOUND.get(endpoint.host, ())] or (endpoint,)


def tried(addresses: FailoverAddresses, *, good: str | None = None) -> list[str]:
    """Go through one round; return the addresses that were tried. Only the good one answers."""
    seen: list[str] = []

    def connect(endpoint: Endpoint) -> None:
        seen.append(endpoint.ip or endpoint.host)
        if seen[-1] != good:
            raise TransportError(f"{endpoint} is silent")

    try:
        addresses.try_each(connect)
    except TransportError:
        assert good is None
    return seen


def addresses_of(uri: str) -> FailoverAddresses:
    return FailoverAddresses(parse_uri(uri), look_up)


def test_each_address_of_a_name_is_tried() -> None:
    """One that accepts and is silent costs its time-out once: then the name's next address is tried."""
    addresses = addresses_of("amqp://cluster.test")
    assert tried(addresses, good="127.0.0.4") == ["127.0.0.3", "127.0.0.4"]
    assert tried(addresses, good="127.0.0.4") == ["127.0.0.5", "127.0.0.3", "127.0.0.4"]
    assert tried(addresses) == ["127.0.0.5", "127.0.0.3", "127.0.0.4"]


def test_names_and_addresses_are_one_list() -> None:
    """The addresses of a name are shuffled among those of the others, and each round has all, in the same order."""
    addresses = addresses_of("failover:(amqp://cluster.test,amqp://alone.test)?randomize=true")
    first = tried(addresses)
    assert sorted(first) == ["127.0.0.3", "127.0.0.4", "127.0.0.5", "alone.test"]
    assert tried(addresses) == first
    orders = {
        tuple(tried(addresses_of("failover:(amqp://cluster.test,amqp://alone.test)"))) for _ in range(50)
    }
    assert len(orders) > 5


def test_two_ways_to_one_node_are_one_address_until_it_fails() -> None:
    """A name with one address of IPv4 and one of IPv6 is tried as one; after a failure each is, until a success."""
    addresses = addresses_of("amqp://dual.test")
    assert (tried(addresses, good="dual.test"), addresses.number) == (["dual.test"], 1)
    assert (tried(addresses), addresses.number) == (["dual.test"], 2)
    assert (tried(addresses), addresses.number) == (["127.0.0.1", "::1"], 2)
    assert tried(addresses, good="::1") == ["127.0.0.1", "::1"]
    assert (addresses.number, tried(addresses)) == (1, ["dual.test"])


@pytest.mark.parametrize("uri", ["amqp://dual.test", "failover:(amqp://dual.test)?randomize=true"])
def test_a_silent_way_to_a_node_costs_one_time_out(uri: str) -> None:
    """Behind a try of both ways as one, in which the first was silent, the next round begins with the second."""
    for _ in range(20):
        addresses = addresses_of(uri)
        assert tried(addresses) == ["dual.test"]
        assert tried(addresses, good="127.0.0.1") == ["127.0.0.1"]


def test_one_node_has_one_text() -> None:
    """A node that is reached by IPv4 or IPv6 has one identity, and one sentence if both say the same."""
    addresses, seen = addresses_of("amqp://dual.test"), set()

    def refuse(endpoint: Endpoint) -> None:
        seen.add(str(endpoint))
        raise TransportError(f"{endpoint}: refused")

    said = []
    for _ in range(2):
        with pytest.raises(TransportError) as caught:
            addresses.try_each(refuse)
        said.append(str(caught.value))
    assert said == ["amqp://dual.test:5672: refused", "amqp://dual.test:5672: refused (127.0.0.1, ::1)"]
    assert seen == {"amqp://dual.test:5672"}


def test_nodes_behind_one_name_are_told_apart(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that moves to another node of its name has another address, and takes no flag there for a proof."""
    seen: list[Event] = []
    connection = twin.connect(observers=[seen.append])
    consumer = twin.call(connection.consumer("orders"))
    nodes = [replace(connection.settings.endpoints[0], ip=ip) for ip in ("10.0.0.4", "10.0.0.5")]

    def found(_: Endpoint) -> Sequence[Endpoint]:
        return nodes

    monkeypatch.setattr(connection._driver._addresses, "_look_up", found)
    history = connection._driver.dispatchers[consumer._dispatcher.subscribe.consumer].engine.state.history
    for node in nodes:
        twin.broker.cut()
        twin.advance(1)
        assert connection.health().connection.address == f"{twin.broker.uri} ({node.ip})"
        assert history._moved
    assert [each.address for each in seen if isinstance(each, Connected)][1:] == [
        f"{twin.broker.uri} ({node.ip})" for node in nodes
    ]


def answers(*addresses: tuple[socket.AddressFamily, str]) -> Callable[..., list[Any]]:
    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in addresses]

    return getaddrinfo


def test_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with several addresses is all of them, each with its own text; with one, or unknown, it stays a name."""
    four, six = socket.AF_INET, socket.AF_INET6
    monkeypatch.setattr(
        socket, "getaddrinfo", answers((four, "10.0.0.1"), (four, "10.0.0.2"), (six, "fd::1"))
    )
    assert [each.ip for each in resolved(CLUSTER)] == ["10.0.0.1", "10.0.0.2", "fd::1"]
    assert str(resolved(CLUSTER)[0]) == "amqp://cluster.test:5672 (10.0.0.1)"
    monkeypatch.setattr(socket, "getaddrinfo", answers((six, "::1"), (four, "127.0.0.1")))
    assert [each.ip for each in resolved(CLUSTER)] == ["::1", "127.0.0.1"]
    monkeypatch.setattr(socket, "getaddrinfo", answers((four, "10.0.0.1"), (four, "10.0.0.1")))
    assert resolved(CLUSTER) == (CLUSTER,)

    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert resolved(CLUSTER) == (CLUSTER,)


def test_delays_are_drawn_below_those_of_failover() -> None:
    """A delay is shortened by up to a quarter: clients of one node do not come back at the same moment."""
    failover = FailoverSettings(initial_reconnect_delay=1.0, max_reconnect_delay=8.0)
    assert [delay_after(rounds, failover) for rounds in range(6)] == [0, 1, 2, 4, 8, 8]
    assert [delay_after(rounds, failover, 1.0) for rounds in (1, 5)] == [1 - JITTER, 8 * (1 - JITTER)]
    assert len({addresses_of("amqp://cluster.test").draw() for _ in range(10)}) > 1
    assert addresses_of("memory://test").draw() == 0


def test_a_node_that_refuses_the_log_in_is_passed(twin: Twin, redelivery_clock: ManualClock) -> None:
    """At the first connect an address that refuses the log-in does not end the round: another may accept."""
    with MemoryBroker(clock=redelivery_clock) as other:
        twin.broker.refuse_connections(lambda: AdapterError("no such user"))
        uri = f"failover:({twin.broker.uri},{other.uri})?randomize=false"
        connection = twin.connect(uri=uri)
        consumer = twin.call(connection.consumer("orders"))
        other.send("orders", "a")
        assert body_of(twin.receive(consumer)) == "a"
        other.refuse_connections()
        with pytest.raises(AdapterError, match=r"no such user; .* refuses connections"):
            twin.connect(uri=uri)
        other.refuse_connections(lambda: AdapterError("no such user here"))
        with pytest.raises(AdapterError, match="no such user; no such user here"):
            twin.connect(uri=uri)


def test_refusals_that_pass_end_no_start_that_waits(twin: Twin) -> None:
    """A round of nothing but log-ins refused for now is made again; with one that is refused for good it ends."""
    twin.broker.refuse_connections(lambda: AdapterError("the vhost is down", passes=True))
    uri = f"failover:({twin.broker.uri})"
    with pytest.raises(BrokerUnavailable, match="the vhost is down"):
        twin.connect(uri=uri)
    twin.clock.call_later(5, twin.broker.accept_connections)
    assert twin.connect(uri=f"{uri}?startupMaxReconnectAttempts=-1").health().connection.connected
    twin.broker.refuse_connections(lambda: AdapterError("no such user"))
    with pytest.raises(AdapterError, match="no such user"):
        twin.connect(uri=f"{uri}?startupMaxReconnectAttempts=-1")


@pytest.mark.parametrize("last", ["passes", "stays"])
def test_one_refusal_that_stays_ends_the_start(last: str) -> None:
    """Of the refusals of one round the one that stays decides, whichever comes last."""
    kinds = [True, False] if last == "stays" else [False, True]

    def refuse(_: Endpoint) -> None:
        raise AdapterError("refused", passes=kinds.pop(0))

    with pytest.raises(AdapterError, match="refused") as caught:
        addresses_of("failover:(amqp://a,amqp://b)?randomize=false").try_each(refuse)
    assert caught.value.passes is False


def test_attempts_are_rounds(twin: Twin, redelivery_clock: ManualClock) -> None:
    """`maxReconnectAttempts` counts rounds over all addresses, as the Java client does."""
    calls: list[str] = []

    def refusal(name: str) -> Callable[[], TransportError]:
        def refuse() -> TransportError:
            calls.append(name)
            return TransportError("down")

        return refuse

    with MemoryBroker(clock=redelivery_clock) as other:
        uri = f"failover:({twin.broker.uri},{other.uri})?randomize=false&maxReconnectAttempts=2"
        connection = twin.connect(uri=uri)
        consumer = twin.call(connection.consumer("orders"))
        twin.broker.refuse_connections(refusal("one"))
        other.refuse_connections(refusal("two"))
        twin.broker.cut()
        with pytest.raises(TransportError, match="gave up"):
            twin.receive(consumer, 60)
    assert calls == ["two", "one", "two", "one"]
