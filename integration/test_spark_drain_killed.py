"""A drain whose task is killed, on real brokers, without a session: messages are in the log or on the broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.matrix import cover, named

from integration.need import need_spark

need_spark()

from integration.eventually import SLACK
from integration.killed_drain import drained
from integration.peers import PAIRS, fill
from integration.spark_session import address, credentials

if TYPE_CHECKING:
    from integration.conftest import Session

pytestmark = pytest.mark.ci("a drain that is killed")

ROOT = Path(__file__).parent.parent
MESSAGES = 5000  # three segments, if the broker sends as many at once


@pytest.mark.parametrize(("pair", "when"), cover(PAIRS, ["before", "after"]), ids=named)
def test_a_killed_drain_is_gone_on_with(
    session: Session, pair: tuple[str, str], unique_queue: str, tmp_path: Path, when: str
) -> None:
    """A drain that is killed before or after its second segment is published, and repeated, has every message once."""
    broker = session.broker(pair[0])
    sent = [b"%d" % number for number in range(MESSAGES)]
    fill(broker, pair[1], unique_queue, sent)
    # Artemis may stand still for 10 s after a killed STOMP connection, before it gives back what that connection had
    # (docs/measured/artemis-stomp-cuts.md).
    idle = 15.0 if pair == ("artemis", "stomp") else SLACK
    options = {
        "url": address(broker, pair[1], redelivery__connectTimeout=60_000),
        "credentialsfile": credentials(broker, tmp_path),
        "destination": unique_queue,
        "mode": "drain",
        "waldir": str(tmp_path / "wal"),
        # A busy broker takes more than a second to give back what the killed process had.
        "idle": f"{idle:.0f}s",
    }
    config = tmp_path / "options.json"
    config.write_text(json.dumps(options), encoding="utf-8")
    died = subprocess.run(
        [sys.executable, "-m", "integration.killed_drain", str(config), "1", when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        timeout=120,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert _amiss(drained(options), sent) == ([], [])
    assert _amiss(drained(options), sent) == ([], []), "a second action"


def _amiss(found: list[bytes], sent: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the missing messages, and the duplicated ones."""
    counted = Counter(found)
    return sorted(set(sent) - counted.keys()), sorted(body for body, often in counted.items() if often > 1)
