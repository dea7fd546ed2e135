"""Fixtures: the brokers (lazy, shared by the processes of a run, or own), Java clients, queue names, proxies."""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import TYPE_CHECKING

import pytest
from tests.plugins import PLUGINS, REGISTERED
from tests.transitions import transitions, transitions_of_the_run

from integration.again import (
    QUEUES,
    pytest_runtest_call,
    pytest_runtest_logreport,
    pytest_runtest_protocol,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from integration.availability import fetched, had, started
from integration.brokers import (
    ALL_BROKERS,
    BROKERS,
    LIGHT_JVM,
    STOMP_BROKERS,
    Broker,
    BrokerError,
    Progress,
    containers_wanted,
    required,
)
from integration.compatibility.record import recorder
from integration.every_version import pytest_cmdline_main
from integration.groups import (
    Priority,
    owns,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from integration.java_client import JavaClient
from integration.own_skips import pytest_runtest_makereport
from integration.peers import PEERS
from integration.proxy import LinkProxy
from integration.raw_amqp import need_proton
from integration.run_folder import begin, is_worker
from integration.shared import SharedBrokers, serve, shared_brokers
from integration.stomp_client import StompClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

# Hooks, of integration/again.py, integration/groups.py and integration/own_skips.py.
__all__ = [
    "pytest_cmdline_main",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
    "transitions",
    "transitions_of_the_run",
]

if not REGISTERED:
    pytest_plugins = PLUGINS

Client = JavaClient | StompClient


class Session:
    """Programs that the tests of this process use: brokers, one Java program per broker and client."""

    def __init__(self, stack: contextlib.ExitStack, shared: SharedBrokers) -> None:
        """Start without programs; all of them end with `stack`."""
        self._stack = stack
        self._shared = shared
        self._brokers: dict[str, Broker] = {}
        self._java: dict[tuple[str, int], Client] = {}
        self._fetched: set[str] = set()
        self.owns = False
        """True while a test runs that has `own_broker`."""

    def broker(self, name: str) -> Broker:
        """Return the running broker: that of all processes, or one of this process if the test has `own_broker`."""
        if name not in self._fetched:
            if "stomp" not in ALL_BROKERS[name].services:
                need_proton(name)
            fetched(ALL_BROKERS[name])
            self._fetched.add(name)
        return self._own(name) if self.owns else had(name, name, lambda: self._shared.broker(name))

    def _own(self, name: str) -> Broker:
        """Return this process' own broker, restarted if the test before has killed, stopped or frozen it."""
        found = self._brokers.get(name)
        if found is None:
            found = ALL_BROKERS[name]()
            self._stack.callback(found.close)
            self._brokers[name] = found
        if found.running:
            found.resume()
        else:
            started(found)
        return found

    def running(self, name: str) -> Broker | None:
        """Return the broker if this process has used it, or None."""
        return self._brokers.get(name) if self.owns else self._shared.known(name)

    def renew(self, broker: Broker, *, stuck: bool) -> None:
        """Restart a broker that has stranded messages. A shared one is replaced if it is `stuck`."""
        if self.owns:
            broker.restart()
        elif stuck:
            self._shared.replace(broker)

    def java(self, broker: Broker, kind: str | None = None) -> Client:
        """Return the Java client of this kind for this broker; "stomp" is not a Java program, but does the same."""
        kind = kind or broker.java_clients[0]
        if kind == "stomp":
            return StompClient(broker)
        key = f"{kind} {getattr(broker, 'virtual_host', '')}", broker.ports[broker.services[0]]
        if key not in self._java:
            what = f"{broker.name}'s Java client {kind}"
            client = had(broker.name, what, lambda: JavaClient(broker, kind))
            self._java[key] = self._stack.enter_context(client)
        return self._java[key]

    def client(self, broker: Broker, protocol: str) -> Client:
        """Return the client whose messages arrive whole over this protocol, and that can read the library's."""
        if protocol == "amqp":
            return self.java(broker, "qpid")
        return self.java(broker, "stomp" if broker.name == "rabbitmq" else None)


def pytest_report_header() -> list[str]:
    """Return the brokers that will run, and the reasons of the others."""
    lines: list[str] = []
    for name, kind in ALL_BROKERS.items():
        reason = kind.unavailable()
        which = kind.image_name() if kind.in_container() else kind.version
        must = "MUST RUN, BUT" if required(name) else "skipped"
        lines.append(f"broker {name} {which}: {'will run' if reason is None else f'{must}: {reason}'}")
    return lines


def pytest_configure(config: pytest.Config) -> None:
    """Show the progress of long work (downloads, starts) on stderr, which pytest captures, and use light JVMs.

    Record the results of the run if that is requested.
    """
    begin(config)
    serve(config)
    if is_worker(config):
        config.pluginmanager.register(Priority(), "priority")
    config.addinivalue_line(
        "markers", "own_broker(reason): the test changes its broker, and has one that no other process uses"
    )
    found = recorder(config)
    if found is not None:
        config.pluginmanager.register(found, "compatibility")
    capture = config.pluginmanager.getplugin("capturemanager")
    plain = Progress.write

    def loud(text: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            plain(text)

    Progress.write = staticmethod(loud)
    Broker.jvm = (*Broker.jvm, *LIGHT_JVM)
    JavaClient.jvm = (*JavaClient.jvm, *LIGHT_JVM)


@pytest.fixture(scope="session")
def _programs(pytestconfig: pytest.Config) -> Iterator[Session]:
    with contextlib.ExitStack() as stack, contextlib.closing(shared_brokers(pytestconfig)) as shared:
        yield Session(stack, shared)


@pytest.fixture
def session(request: pytest.FixtureRequest, _programs: Session) -> Session:
    """The programs that this test run has started."""
    _programs.owns = owns(request.node)
    return _programs


@pytest.fixture
def artemis(session: Session) -> Broker:
    """A running ActiveMQ Artemis."""
    return session.broker("artemis")


@pytest.fixture
def activemq(session: Session) -> Broker:
    """A running ActiveMQ Classic."""
    return session.broker("activemq")


@pytest.fixture
def brokerj(session: Session) -> Broker:
    """A running Qpid Broker-J."""
    return session.broker("brokerj")


@pytest.fixture
def rabbitmq(session: Session) -> Broker:
    """A running RabbitMQ."""
    return session.broker("rabbitmq")


@pytest.fixture(params=sorted(STOMP_BROKERS))
def broker(request: pytest.FixtureRequest, session: Session) -> Broker:
    """Each broker with STOMP, one after the other."""
    return session.broker(request.param)


@pytest.fixture(params=sorted(BROKERS))
def any_broker(request: pytest.FixtureRequest, session: Session) -> Broker:
    """Each broker, one after the other; all of them have AMQP."""
    return session.broker(request.param)


@pytest.fixture(scope="module", params=sorted(BROKERS))
def contained(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Each broker in a container of its own, if REDELIVERY_CONTAINERS requests it."""
    kind = BROKERS[request.param]
    if not containers_wanted(kind.name):
        pytest.skip(f"{kind.name}: REDELIVERY_CONTAINERS does not ask for a container of it")
    what = f"{kind.name} in a container"

    def get() -> None:
        reason = kind.container_problem()
        if reason is not None:
            raise BrokerError(reason)

    had(kind.name, what, get)
    with contextlib.closing(started(kind(containerised=True), what)) as broker:
        yield broker


@pytest.fixture(params=PEERS, ids="-".join)
def peer(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Each protocol of each broker."""
    name, protocol = request.param
    return session.broker(name), protocol


@pytest.fixture
def java_client(session: Session) -> Callable[[Broker, str | None], Client]:
    """`java_client(broker, kind)`: the Java client; kind None = the broker's own."""
    return session.java


@pytest.fixture
def client_for(session: Session) -> Callable[[Broker, str], Client]:
    """`client_for(broker, protocol)`: the client that understands the library's messages there."""
    return session.client


@pytest.fixture
def java(session: Session, broker: Broker) -> Client:
    """The Java client of `broker`'s own kind; on RabbitMQ, which has none over STOMP, its substitute."""
    return session.client(broker, "stomp")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session of Spark for all tests that do not kill it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 -- Spark may be missing
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from integration.spark_jvm import new_session  # noqa: PLC0415

    def get() -> SparkSession:
        with pytest.MonkeyPatch.context() as patch:  # its JVM is not only of the test that needs it first
            patch.delenv("PYTEST_CURRENT_TEST", raising=False)
            try:
                return new_session()
            except (Py4JError, PySparkException) as error:
                raise BrokerError(str(error)) from error

    session = had("spark", "a session of Spark", get)
    yield session
    session.stop()


@pytest.fixture
def spark_abroad(spark: SparkSession) -> SparkSession:
    """The same Spark with settings of its own, in a time zone that is not UTC."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


@pytest.fixture
def new_queue(request: pytest.FixtureRequest) -> Callable[[], str]:
    """`new_queue()`: a queue name that no other test uses."""
    stem = re.sub(r"\W+", "_", request.node.name).strip("_")[:40]
    names = request.node.stash.setdefault(QUEUES, [])

    def new() -> str:
        names.append(f"it.{stem}.{uuid.uuid4().hex[:8]}")
        return str(names[-1])

    return new


@pytest.fixture
def unique_queue(new_queue: Callable[[], str]) -> str:
    """A queue name that no other test uses."""
    return new_queue()


@pytest.fixture
def make_proxy() -> Iterator[Callable[..., LinkProxy]]:
    """`make_proxy(port, opaque=False)`: a running proxy in front of this port."""
    with contextlib.ExitStack() as stack:
        yield lambda port, **options: stack.enter_context(LinkProxy(port, **options))


@pytest.fixture
def proxy(broker: Broker, make_proxy: Callable[..., LinkProxy]) -> LinkProxy:
    """A proxy in front of `broker`'s STOMP port; `broker.uri(port=proxy.port)` goes through it."""
    return make_proxy(broker.stomp_port)
