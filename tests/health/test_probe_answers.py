"""Answers to probes by path."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from redelivery.core.report import Report
from redelivery.health import ConnectionHealth, Health, probes
from redelivery.health.probes import ProbeAnswers

if TYPE_CHECKING:
    from tests.health.conftest import Source

    from redelivery.health.probes import ProbeAnswer


def answers(source: Source) -> ProbeAnswers:
    return ProbeAnswers(source, None, "consuming")


def sentence(answer: ProbeAnswer) -> str:
    return answer.body.decode()


@pytest.mark.parametrize(
    ("live", "ready", "livez", "readyz"),
    [(True, True, 200, 200), (True, False, 200, 503), (False, False, 503, 503)],
)
def test_health(source: Source, live: bool, ready: bool, livez: int, readyz: int) -> None:
    """`/livez` follows `live`, `/readyz` follows `ready`; both have the whole health."""
    source.live, source.ready, source.reasons = live, ready, ("why",)
    for path, status in (("/livez", livez), ("/readyz?verbose=1", readyz)):
        found = answers(source).answer("GET", path)
        assert (found.status, found.content_type) == (status, "application/json")
        assert json.loads(found.body)["reasons"] == ["why"]


def test_what_is_asked_of_the_connection(source: Source) -> None:
    """`ready_when` is checked at once, and answers have no texts of errors."""
    made = ProbeAnswers(source, None, "connected")
    made.answer("GET", "/livez")
    assert source.asked == [("connected", True), ("connected", False)]


@pytest.mark.parametrize(
    "path", ["/", "", "/livez/", "/LIVEZ", "/livezz", "livez", "/../livez", "/healthz", "*"]
)
def test_other_paths(source: Source, path: str) -> None:
    """Any other path is 404, with a list of the paths."""
    found = answers(source).answer("GET", path)
    assert (found.status, sentence(found)) == (
        404,
        "nothing is here: there are /livez, /readyz and /metrics\n",
    )


@pytest.mark.parametrize("path", ["/livez", "/nothing"])
def test_other_methods(source: Source, path: str) -> None:
    """Only GET and HEAD are answered."""
    assert answers(source).answer("POST", path).status == 405
    assert answers(source).answer("HEAD", "/livez").status == 200


def test_a_connection_of_another_process(source: Source) -> None:
    """A connection that refuses to answer is neither live nor ready, and says why."""
    made = answers(source)
    source.refuses = "this is its child 7 after a fork"
    found = made.answer("GET", "/livez")
    assert (found.status, sentence(found)) == (503, "this is its child 7 after a fork\n")


@pytest.mark.parametrize("there", [True, False])
def test_no_metrics(source: Source, monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    """Without a metrics function `/metrics` says which one to give, and the extra if that is not installed."""
    monkeypatch.setattr(probes, "find_spec", lambda _: object() if there else None)
    found = answers(source).answer("GET", "/metrics")
    assert found.status == 404
    assert "metrics=redelivery.prometheus.text" in sentence(found)
    assert ("pip install 'redelivery[prometheus]'" in sentence(found)) is not there


def test_metrics(source: Source) -> None:
    """The body of `/metrics` is the result of the metrics function, in Prometheus' text format."""
    found = ProbeAnswers(source, lambda: b"redelivery_ready 1\n", "consuming").answer("GET", "/metrics")
    assert found == (200, "text/plain; version=0.0.4; charset=utf-8", b"redelivery_ready 1\n")


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_metrics_that_fail(
    source: Source, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """An error of the metrics function is logged, and its text is not in the answer."""

    def fail() -> bytes:
        raise error("hunter2")

    made = ProbeAnswers(source, fail, "consuming")
    for _ in range(2):
        found = made.answer("GET", "/metrics")
        assert (found.status, "hunter2" in sentence(found)) == (500, False)
    assert f"/metrics: the metrics function failed: {error.__name__}" in caplog.text


def test_metrics_that_hang(source: Source) -> None:
    """While one scrape hangs, another is refused at once, and probes are answered."""
    began, end = threading.Event(), threading.Event()

    def hang() -> bytes:
        began.set()
        end.wait()
        return b""

    made = ProbeAnswers(source, hang, "consuming")
    thread = threading.Thread(target=made.answer, args=("GET", "/metrics"))
    thread.start()
    began.wait()
    assert made.answer("GET", "/metrics").status == 503
    assert made.answer("GET", "/livez").status == 200
    end.set()
    thread.join()
    assert made.answer("GET", "/metrics").status == 200


def test_seconds_are_shown_to_the_millisecond() -> None:
    """Seconds have three digits: more are no information, and make each answer longer."""
    where = ConnectionHealth(connected=True, address="a:1", broker="b", since_s=1 / 3, reconnects=0)
    found = Health(True, True, (), where, (), Report()).as_dict()["connection"]
    assert (found["since_s"], found["reconnects"], found["connected"]) == (0.333, 0, True)
