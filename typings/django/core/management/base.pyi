from typing import Any, TextIO

class BaseCommand:
    help: str
    stdout: TextIO
    def handle(self, *args: Any, **options: Any) -> str | None: ...
