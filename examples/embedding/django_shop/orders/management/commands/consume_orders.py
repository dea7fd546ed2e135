"""`python manage.py consume_orders`: consumes in a process of its own, next to the web workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import close_old_connections, connection

import redelivery

if TYPE_CHECKING:
    from redelivery import Message


def handle_order(message: Message) -> None:
    """Store one order."""
    # As Django does around a request: each worker's thread has a database connection, which may be broken.
    close_old_connections()
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders (item) VALUES (%s)", [message.text])
    finally:
        close_old_connections()


class Command(BaseCommand):
    """Consume orders until SIGTERM or Ctrl-C, then drain."""

    help = "Consumes orders until it is stopped."

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        """Consume until the connection ends."""
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT)")
        with redelivery.connect(settings.REDELIVERY_URL) as broker:
            broker.listen("orders", handle_order, workers=4)
            self.stdout.write(str(broker.run(drain_timeout=30)))
