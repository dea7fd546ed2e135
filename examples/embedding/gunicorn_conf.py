"""Settings of gunicorn, which connect each worker after the fork: `gunicorn -c gunicorn_conf.py gunicorn_app:app`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import gunicorn_app

workers = 2
# Seconds after which gunicorn kills a worker that has not ended: more than drain_timeout and 5 s for closing.
graceful_timeout = 35
_open = ExitStack()


def post_worker_init(worker: Any) -> None:
    """Connect and consume, in the worker's process."""
    _open.enter_context(gunicorn_app.connect().running(drain_timeout=25))
    worker.log.info("consuming orders")


def worker_exit(server: Any, worker: Any) -> None:  # noqa: ARG001 - gunicorn's signature
    """Drain and close, in the worker's process."""
    _open.close()
