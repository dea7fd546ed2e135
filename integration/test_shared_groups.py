"""Message groups over two connections: each belongs to one of them where the table of brokers says so."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS
from redelivery.driver.port import ConnectionPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.conftest import Session

pytestmark = pytest.mark.ci("groups over several processes")

# No multiple of two: a broker that sends to each connection in turn must not seem to bind a group.
GROUPS, EACH = 7, 12


@pytest.mark.parametrize("pair", [one for one in PAIRS if one != ("activemq", "stomp")], ids="-".join)
def test_groups_belong_to_a_connection_where_the_broker_binds_them(
    session: Session, unique_queue: str, pair: tuple[str, str]
) -> None:
    """Each group is handled over one of two connections if the broker binds groups; otherwise some go to both."""
    broker = session.broker(pair[0])
    uri = broker.uri(protocol=pair[1], redelivery__ordering="per_group", redelivery__credit="4")
    seen: dict[str | None, set[str]] = defaultdict(set)
    both = threading.Barrier(2)

    def handler(name: str) -> Callable[[redelivery.Message], None]:
        def handle(message: redelivery.Message) -> None:
            if not any(name in names for names in seen.values()):
                # Neither connection may take all of the messages.
                both.wait(60)
            seen[message.group].add(name)

        return handle

    with redelivery.connect(uri) as one, redelivery.connect(uri) as other:
        for name, connection in (("one", one), ("other", other)):
            connection.listen(unique_queue, handler(name))
            connection.start()
        with redelivery.connect(broker.uri(protocol=pair[1])) as sender:
            for number in range(GROUPS * EACH):
                sender.send(unique_queue, str(number), group=f"g{number % GROUPS}")
        eventually(lambda: one.report().accepted + other.report().accepted == GROUPS * EACH)
    shared = {group for group, names in seen.items() if len(names) > 1}
    assert len(seen) == GROUPS
    with ConnectionPort(uri) as port:
        assert not shared if port.capabilities.binds_groups else shared
