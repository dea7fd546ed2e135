from typing import Any

connection: Any

def close_old_connections(**kwargs: Any) -> None: ...
