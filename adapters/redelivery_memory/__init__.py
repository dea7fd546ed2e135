"""Small broker in this process, behind `memory://name`: for tests, demos and documentation.

`MemoryAdapter` connects to it. `MemoryBroker` is its interface for tests: they read its messages and inject faults.
`memory://name` creates the broker on demand. It exists until `MemoryBroker.close` or the end of the process, and keeps
its messages while no connection is open.

Like real brokers, it raises a message's delivery count when the connection or consumer ends with the message unsettled
(a release is not counted). A consumer gets no more messages than its credit, the consumers of a queue take turns, and
poison and expired messages go to `queue://DLQ`. Wildcards in subscriptions are those of the policy map. It has no
selectors, delivers messages in the order of their arrival whatever their priority, and passes groups through.
"""

from redelivery_memory.adapter import CAPABILITIES, MemoryAdapter
from redelivery_memory.broker import MemoryBroker
from redelivery_memory.messages import HeldMessage, Step

__all__ = ["CAPABILITIES", "HeldMessage", "MemoryAdapter", "MemoryBroker", "Step"]
