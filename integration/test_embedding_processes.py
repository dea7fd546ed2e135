"""Examples of consumers in several processes, and `redelivery consume` for a supervisor, with a real Artemis."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from tests.needs import need

from integration.embedded import GRACE, QUEUE, asked, handled, left, protocol, sent, status, uri
from integration.eventually import PATIENCE, SLACK, eventually
from integration.program import EXAMPLES, Program, WebProgram
from integration.stranded import eventually_given_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = [
    pytest.mark.ci("web applications in several processes"),
    pytest.mark.own_broker("uses the queue of the examples"),
]

__all__ = ["protocol", "uri"]

BEFORE_THE_FORK = """
import gunicorn_app

def on_starting(server):
    gunicorn_app.connect().__enter__()
"""


def gunicorn(uri: str, conf: str = "gunicorn_conf.py", folder: Path = EXAMPLES) -> WebProgram:
    need("gunicorn")
    arguments = [
        "-m",
        "gunicorn",
        "-c",
        conf,
        "-b",
        "127.0.0.1:PORT",
        "--no-control-socket",
        "gunicorn_app:app",
    ]
    return WebProgram(arguments, folder=folder, environment={"REDELIVERY_URL": uri})


# gunicorn.


def test_gunicorn(uri: str) -> None:
    """Each of two workers has its own connection; SIGTERM drains both, and no order is lost or handled twice."""
    with gunicorn(uri) as program:
        eventually(lambda: program.output.count("consuming orders") == 2)
        bodies = [f"item-{number}" for number in range(30)]
        for body in bodies:
            assert asked(program.url, body.encode())[0] == 202
        assert program.terminated() == 0
        found = handled(program)
    rest = left(uri, QUEUE, expected=len(bodies) - len(found))
    assert sorted([*found, *rest]) == sorted(bodies)


def test_gunicorn_without_a_broker(uri: str, artemis: Broker, make_proxy: Callable[..., LinkProxy]) -> None:
    """Without a broker a request gets 503, and SIGTERM ends gunicorn with a clean shutdown."""
    proxy = make_proxy(artemis.ports["stomp"])
    with gunicorn(artemis.uri(port=proxy.port)) as program:
        eventually(lambda: program.output.count("consuming orders") == 2)
        proxy.refuse()
        proxy.cut()
        assert asked(program.url, b"bolt")[0] == 503
        assert program.terminated(GRACE + SLACK) == 0


def test_a_connection_made_before_the_fork(uri: str, tmp_path: Path) -> None:
    """A worker that uses its parent's connection gets an error that explains it, and sends nothing."""
    (tmp_path / "conf.py").write_text(BEFORE_THE_FORK, encoding="utf-8")
    with gunicorn(uri, str(tmp_path / "conf.py")) as program:
        eventually(lambda: status(program.url) == 500)
        assert "this connection was opened in process" in program.output
        assert "make a connection in each process, after the fork" in program.output
        assert program.terminated() == 0
    assert left(uri, QUEUE) == []


# A pool of processes.


def test_pool(uri: str) -> None:
    """SIGTERM to the parent drains all four processes: each order is handled once, or still on the broker."""
    with Program(["process_pool.py", uri]) as program:
        bodies = sent(uri, 50)
        eventually(lambda: handled(program))
        assert program.terminated() == 0
        found = handled(program)
    rest = left(uri, QUEUE, expected=len(bodies) - len(found))
    assert sorted([*found, *rest]) == sorted(bodies)


@pytest.mark.own_broker("may restart it: Artemis strands messages")
@pytest.mark.parametrize("which", ["child", "parent"])
def test_pool_that_loses_a_process(uri: str, artemis: Broker, which: str) -> None:
    """All processes of the pool end if one is killed, and each order is handled or on the broker."""
    with Program(["process_pool.py", uri]) as program:
        bodies = sent(uri, 50)
        eventually(lambda: len(handled(program)) > 1)
        pid = int(re.findall(r"^(\d+) handled", program.output, re.MULTILINE)[0])
        os.kill(pid if which == "child" else program.process.pid, signal.SIGKILL)
        assert program.process.wait(PATIENCE) == (1 if which == "child" else -signal.SIGKILL)
        eventually(lambda: not alive_in_group(program.process.pid))
        found = set(handled(program))

    def all_are_there(_: int) -> bool:
        found.update(left(uri, QUEUE))
        return found == set(bodies)

    # The killed process may have handled a message without writing its acknowledgement: it may be handled again.
    # Artemis may release its other messages seconds later, or strand them.
    eventually_given_back(all_are_there, artemis, QUEUE, message="the orders are handled or on the broker")


def alive_in_group(group: int) -> bool:
    """True if a process of a group runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# redelivery consume.


@pytest.mark.own_broker("kills it")
@pytest.mark.parametrize("handler", ["handle", "handle_async"])
def test_consume_health(
    artemis: Broker, unique_queue: str, tmp_path: Path, protocol: str, handler: str
) -> None:
    """`redelivery consume` is always live, and not ready while the broker is down; no password is shown."""
    (tmp_path / "shop.py").write_text(
        "def handle(message): ...\nasync def handle_async(message): ...\n", encoding="utf-8"
    )
    arguments = [
        "-m",
        "redelivery.cli",
        "consume",
        unique_queue,
        "--handler",
        f"shop:{handler}",
        "--health",
        "PORT",
    ]
    environment = {"REDELIVERY_URL": artemis.uri(protocol=protocol)}
    with WebProgram(arguments, folder=tmp_path, environment=environment) as program:
        eventually(lambda: status(f"{program.url}/readyz") == 200)
        artemis.kill()
        eventually(lambda: status(f"{program.url}/readyz") == 503)
        found, body = asked(f"{program.url}/livez")
        assert (found, json.loads(body)["consumers"][0]["state"]) == (200, "waiting for the broker")
        assert not {artemis.user, artemis.password} & set(re.findall(r"\w+", body))
        artemis.start()
        eventually(lambda: status(f"{program.url}/readyz") == 200)
        assert program.terminated() == 0
        assert f"health: {program.url}/livez and {program.url}/readyz" in program.output
