"""Exposition under load, from several threads, and without prometheus-client."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from prometheus_client import CollectorRegistry
from tests.prometheus.scrapes import scrape

import redelivery
from redelivery.prometheus import Metrics
from redelivery.testing import MemoryBroker

WITHOUT = """
import sys
sys.modules["prometheus_client"] = None
try:
    import redelivery.prometheus
except ImportError as error:
    print(error)
"""
MESSAGES = 2000


@pytest.mark.ci("2,000 messages beside scrapes: 0.7 s")
def test_scrapes_go_on_while_messages_are_handled() -> None:
    """Scrapes by two threads can be read while four workers handle messages; the last one has all."""
    registry, done, broken = CollectorRegistry(), threading.Event(), list[BaseException]()

    def look() -> None:
        last = 0.0
        try:
            while not done.is_set():
                now = sum(scrape(registry).by("redelivery_outcomes_total", "outcome").values())
                assert now >= last
                last = now
        except BaseException as error:
            broken.append(error)
            raise

    threads = [threading.Thread(target=look) for _ in range(2)]
    with (
        MemoryBroker("scrapes"),
        redelivery.connect("memory://scrapes", observers=[Metrics(registry)]) as connection,
    ):
        for each in threads:
            each.start()
        for _ in range(MESSAGES):
            connection.send("orders", "a")
        seen = threading.Semaphore(0)
        connection.listen("orders", lambda _: seen.release(), workers=4)
        connection.start()
        for _ in range(MESSAGES):
            seen.acquire(timeout=30)
        connection.drain()
        done.set()
        for each in threads:
            each.join()
        found = scrape(registry)
    assert broken == []
    assert found.by("redelivery_outcomes_total", "outcome")["accepted"] == MESSAGES
    assert found.by("messaging_process_duration_seconds_count", "error_type") == {"": MESSAGES}
    assert found.kinds["redelivery_outcomes"] == "counter"


def test_without_the_library_one_sentence_says_what_to_install() -> None:
    """The import without prometheus-client raises ImportError, which says what to install."""
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert run.stdout == (
        "redelivery.prometheus needs prometheus-client 0.20 or newer; pip install 'redelivery[prometheus]'\n"
    )
