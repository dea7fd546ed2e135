# What the adapter uses of python-qpid-proton 0.40. Its own annotations say Optional where nothing is optional.
from collections.abc import Callable
from typing import Any, ClassVar

class symbol(str): ...
class ulong(int): ...
class uint(int): ...
class byte(int): ...
class timestamp(int): ...
class ProtonException(Exception): ...

class Described:
    descriptor: Any
    value: Any
    def __init__(self, descriptor: Any, value: Any) -> None: ...

class Condition:
    name: str
    description: str | None

class Data:
    def put_object(self, value: Any) -> None: ...

class Terminus:
    COORDINATOR: ClassVar[int]
    DELIVERIES: ClassVar[int]
    DIST_MODE_COPY: ClassVar[int]
    EXPIRE_NEVER: ClassVar[int]
    type: int
    address: str | None
    distribution_mode: int
    durability: int
    expiry_policy: int
    @property
    def capabilities(self) -> Data: ...
    @property
    def filter(self) -> Data: ...

class Disposition:
    data: Any
    condition: Condition | None
    failed: bool
    undeliverable: bool
    annotations: Any

class Delivery:
    ACCEPTED: ClassVar[int]
    REJECTED: ClassVar[int]
    RELEASED: ClassVar[int]
    MODIFIED: ClassVar[int]
    _impl: Any
    local: Disposition
    def __init__(self, impl: Any) -> None: ...
    @property
    def remote(self) -> Disposition: ...
    @property
    def remote_state(self) -> int: ...
    @property
    def settled(self) -> bool: ...
    @property
    def tag(self) -> str: ...
    def update(self, state: int) -> None: ...
    def settle(self) -> None: ...

class Endpoint:
    _impl: Any
    @property
    def remote_condition(self) -> Condition | None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def free(self) -> None: ...

class Link(Endpoint):
    SND_SETTLED: ClassVar[int]
    properties: object
    snd_settle_mode: int
    @property
    def name(self) -> str: ...
    @property
    def is_receiver(self) -> bool: ...
    @property
    def source(self) -> Terminus: ...
    @property
    def target(self) -> Terminus: ...
    @property
    def remote_source(self) -> Terminus: ...
    @property
    def remote_target(self) -> Terminus: ...
    @property
    def credit(self) -> int: ...
    def detach(self) -> None: ...
    def advance(self) -> bool: ...

class Sender(Link):
    @property
    def remote_max_message_size(self) -> int: ...
    def delivery(self, tag: str) -> Delivery: ...
    def stream(self, data: bytes) -> int: ...

class Receiver(Link): ...

class Session(Endpoint):
    def sender(self, name: str) -> Sender: ...
    def receiver(self, name: str) -> Receiver: ...

class Connection(Endpoint):
    container: str
    hostname: str
    user: str
    password: str
    properties: dict[Any, Any]
    @property
    def remote_properties(self) -> dict[Any, Any] | None: ...
    def collect(self, collector: Collector) -> None: ...
    def session(self) -> Session: ...

class SASL:
    OK: ClassVar[int]
    allow_insecure_mechs: bool
    @property
    def outcome(self) -> int | None: ...
    def allowed_mechs(self, mechs: str) -> None: ...

class Transport:
    _impl: Any
    TRACE_FRM: ClassVar[int]
    idle_timeout: float
    remote_idle_timeout: float
    tracer: Callable[[Transport, str], None] | None
    def trace(self, n: int) -> None: ...
    @property
    def condition(self) -> Condition | None: ...
    def bind(self, connection: Connection) -> None: ...
    def sasl(self) -> SASL: ...

class EventType: ...

class Event:
    CONNECTION_REMOTE_OPEN: ClassVar[EventType]
    CONNECTION_REMOTE_CLOSE: ClassVar[EventType]
    TRANSPORT_ERROR: ClassVar[EventType]
    TRANSPORT_CLOSED: ClassVar[EventType]
    SESSION_REMOTE_CLOSE: ClassVar[EventType]
    LINK_REMOTE_OPEN: ClassVar[EventType]
    LINK_REMOTE_CLOSE: ClassVar[EventType]
    LINK_REMOTE_DETACH: ClassVar[EventType]
    LINK_FLOW: ClassVar[EventType]
    DELIVERY: ClassVar[EventType]
    @property
    def type(self) -> EventType: ...
    # Each is None on events of other kinds, which are not looked at.
    @property
    def connection(self) -> Connection: ...
    @property
    def transport(self) -> Transport: ...
    @property
    def session(self) -> Session: ...
    @property
    def link(self) -> Link: ...
    @property
    def delivery(self) -> Delivery: ...

class Collector:
    _impl: Any
    def peek(self) -> Event | None: ...

class Message:
    durable: bool
    priority: int
    ttl: float
    first_acquirer: bool
    delivery_count: int
    id: Any
    user_id: bytes
    address: str | None
    subject: str | None
    reply_to: str | None
    correlation_id: Any
    content_type: str | None
    content_encoding: str | None
    expiry_time: float
    creation_time: float
    group_id: str | None
    group_sequence: int
    reply_to_group_id: str | None
    inferred: bool
    annotations: dict[Any, Any] | None
    properties: dict[Any, Any] | None
    body: Any
    def __init__(self, body: Any = None, **fields: Any) -> None: ...
    def encode(self) -> bytes: ...
    def decode(self, data: bytes) -> None: ...
