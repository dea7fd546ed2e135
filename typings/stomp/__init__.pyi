# What this project uses of stomp.py 9, which has no type hints.
from typing import Any

def Connection12(  # noqa: N802 - its name
    host_and_ports: list[tuple[str, int]],
    *,
    heartbeats: tuple[int, int] = ...,
    auto_decode: bool = ...,
    vhost: str = ...,
) -> Any: ...
