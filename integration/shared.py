"""The brokers that all processes of a run use: each is started once, by the process that began the run.

That process (pytest-xdist's controller, or the only one) runs no test while others do: it starts a broker when a
process asks for it, over a socket in the run's folder, and is the parent of all of them. They end with it, by any
death: its cleanup closes them; the watchdog of `brokers/process.py` ends them when its pipe breaks. A process that runs
tests has a copy of the `Broker`, whose server only answers questions. A test that kills, stops, freezes or fills its
broker has `@pytest.mark.own_broker`, and gets one of its own process.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import traceback
from collections import Counter, defaultdict
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from integration.availability import CANNOT_BE_HAD
from integration.brokers import ALL_BROKERS, BrokerError
from integration.groups import NICE, USUAL
from integration.run_folder import is_worker, run_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.terminal import TerminalReporter

    from integration.brokers import Broker

    Ask = Callable[..., Any]

__all__ = ["serve", "shared_brokers"]

_HOST = pytest.StashKey["Host"]()
_SOCKET = "brokers"


class Host:
    """The brokers, in the process that began the run."""

    def __init__(self) -> None:
        """Nothing is started."""
        self._brokers: dict[str, Broker] = {}
        self._replaced: list[Broker] = []
        self._ended: Counter[str] = Counter()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._listener: Listener | None = None

    def listen(self, address: str) -> None:
        """Answer the other processes of the run."""
        self._listener = Listener(address, "AF_UNIX")
        threading.Thread(target=self._accept, name="shared-brokers", daemon=True).start()

    def answer(self, question: str, name: str, *arguments: Any) -> Any:
        """Answer a question about a broker: `broker` (starts it), `replace`, or one about its server."""
        if question == "broker":
            return self._broker(name)
        if question == "replace":
            return self._replace(name, *arguments)
        found = getattr(self._brokers[name].server, question)
        return found(*arguments) if callable(found) else found

    def close(self) -> None:
        """End all."""
        if self._listener is not None:
            self._listener.close()
        for broker in (*self._brokers.values(), *self._replaced):
            broker.close()

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Write which brokers have ended, although no test may end them.

        It does not fail the run: Artemis ends itself if a part of it does not answer for two minutes, as in a deadlock.
        """
        if self._ended:
            terminalreporter.section("shared brokers that had ended by themselves")
        for name, times in self._ended.items():
            terminalreporter.line(f"shared broker {name} had ended, and was started again: {times} times")

    def _broker(self, name: str) -> Broker:
        with self._locks[name]:  # two processes may ask for the same one
            found = self._brokers.get(name)
            if found is None:
                ALL_BROKERS[name].obtain()
                found = ALL_BROKERS[name]()
                try:
                    found.start()
                except BaseException:
                    found.close()
                    raise
                self._brokers[name] = found
            elif not found.running:
                self._ended[name] += 1
                found.start()
            if self._listener is not None and not found.containerised:
                # As the processes that use it: Spark's go first (groups.py).
                with contextlib.suppress(OSError):  # it has just ended, or only root may
                    os.setpriority(os.PRIO_PGRP, found.pid, USUAL + NICE)
            return found

    def _replace(self, name: str, port: int) -> None:
        """Start another one for the tests to come, unless that was done: those that run may still use it."""
        with self._locks[name]:
            found = self._brokers.get(name)
            if found is not None and port in found.ports.values():
                self._replaced.append(self._brokers.pop(name))

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(
                target=self._serve, args=(connection,), name="shared-brokers", daemon=True
            ).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                question = connection.recv()
                answer: tuple[type[Exception] | None, Any]
                try:
                    answer = None, self.answer(*question)
                except CANNOT_BE_HAD as error:
                    answer = BrokerError, str(error)
                except Exception:
                    answer = RuntimeError, traceback.format_exc()
                connection.send(answer)


class Guest:
    """Access to the host from another process of the run."""

    def __init__(self, address: str) -> None:
        """Take the address; the first question connects."""
        self._address = address
        self._connection: Connection[Any, Any] | None = None
        self._lock = threading.Lock()

    def answer(self, *question: Any) -> Any:
        """Ask the host. Raises BrokerError if a broker gives it no answer, RuntimeError for a fault of its own."""
        with self._lock:
            connection = self._connection or Client(self._address, "AF_UNIX")
            # Until it is answered: the time limit of a test may end the wait, and the next question must not get this
            # one's answer.
            self._connection = None
            try:
                connection.send(question)
                error, answer = connection.recv()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        if error is not None:
            raise error(answer)
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


class SharedServer:
    """Server of a shared broker: it answers questions, and is neither stopped nor frozen."""

    def __init__(self, ask: Ask, name: str) -> None:
        """Take the function that asks the host."""
        self._ask = ask
        self._name = name

    @property
    def running(self) -> bool:
        """True if it exists."""
        return bool(self._ask("running", self._name))

    @property
    def pid(self) -> int:
        """Pid of its first process."""
        return int(self._ask("pid", self._name))

    def execute(self, argv: list[str]) -> str:
        """Run a tool next to it."""
        return str(self._ask("execute", self._name, argv))

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the log."""
        return str(self._ask("log_tail", self._name, characters))

    def _refused(self, *_: object, **options: object) -> NoReturn:
        raise BrokerError(
            f"other tests use this {self._name}: mark the test with own_broker, and it gets its own"
        )

    start = stop = kill = pause = resume = _refused

    def close(self) -> None:
        """Leave it running."""


class SharedBrokers:
    """The shared brokers, for the tests of one process."""

    def __init__(self, source: Host | Guest) -> None:
        """Take the host, or the way to it."""
        self._source = source
        self._copies: dict[str, Broker] = {}

    def broker(self, name: str) -> Broker:
        """Return the running broker; it is started if no process has asked for it before."""
        found: Broker = self._source.answer("broker", name)
        known = self._copies.get(name)
        if known is None or known.ports != found.ports:
            known = copy.copy(found)
            known._server = SharedServer(self._source.answer, name)
            self._copies[name] = known
        return known

    def known(self, name: str) -> Broker | None:
        """Return the broker if a test of this process has used it, or None."""
        return self._copies.get(name)

    def replace(self, broker: Broker) -> None:
        """Start another one for later tests: this one is broken."""
        self._source.answer("replace", broker.name, next(iter(broker.ports.values())))

    def close(self) -> None:
        """Leave the brokers to the process that began the run."""
        if isinstance(self._source, Guest):
            self._source.close()


def serve(config: pytest.Config) -> None:
    """Be ready to start brokers, in the process that begins the run."""
    if is_worker(config):
        return
    host = config.stash[_HOST] = Host()
    config.add_cleanup(host.close)
    config.pluginmanager.register(host, "shared-brokers")
    if config.getoption("numprocesses", None) or config.getoption("tx", None):
        host.listen(str(run_folder() / _SOCKET))


def shared_brokers(config: pytest.Config) -> SharedBrokers:
    """Return the access of this process."""
    if is_worker(config):
        return SharedBrokers(Guest(str(run_folder() / _SOCKET)))
    return SharedBrokers(config.stash[_HOST])
