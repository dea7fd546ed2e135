from typing import Any

from fsspec import AbstractFileSystem

class MemoryFileSystem(AbstractFileSystem):
    protocol: str
    store: dict[str, Any]
    pseudo_dirs: list[str]
    def exists(self, path: str) -> bool: ...
    def pipe_file(self, path: str, value: bytes, mode: str = ..., **kwargs: Any) -> None: ...
