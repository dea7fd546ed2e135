class Frame:
    cmd: str
    headers: dict[str, str]
    body: bytes | None
    def __init__(self, cmd: str, headers: dict[str, str] | None = ..., body: bytes | None = ...) -> None: ...
