"""A small broker in this process, behind `memory://name`: for tests, demos and documentation.

`MemoryAdapter` serves the scheme; `MemoryBroker` is the same broker as a test sees it: what it holds, and
what it should do wrong. `memory://name` makes the broker on demand, and it lives until `MemoryBroker.close`
or the end of the process: its messages wait while nobody is connected.

Like real brokers it counts a delivery when its connection or consumer goes away with the message unsettled
(a release is not counted), gives a consumer no more than its credit, lets consumers of a queue take turns,
and moves what is poisoned, or expired, to `queue://DLQ`. Wildcards in subscriptions are those of the policy
map. It has no selectors, and hands out messages in the order in which they came, whatever their priority;
groups are passed through.
"""

from redelivery_memory.adapter import CAPABILITIES, MemoryAdapter
from redelivery_memory.broker import MemoryBroker
from redelivery_memory.messages import HeldMessage, Step

__all__ = ["CAPABILITIES", "HeldMessage", "MemoryAdapter", "MemoryBroker", "Step"]
