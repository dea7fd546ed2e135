"""Time of `import redelivery`, and the modules that it loads.

    python -m benchmarks.imports [--rounds 15]

Each round starts a bare interpreter and one that imports. Prints the median difference, and the third-party modules
that were imported (there must be none).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

LIST = """
import sys; before = set(sys.modules)
import redelivery
names = {m.partition('.')[0] for m in set(sys.modules) - before} - {'redelivery'}
print(' '.join(sorted(n for n in names if n not in sys.stdlib_module_names and not n.startswith('_'))))
"""
STATEMENTS = {
    "import redelivery": "import redelivery",
    "connect('memory://x')": "import redelivery; redelivery.connect('memory://x')",
    "connect('stomp://x')": "import redelivery; redelivery.connect('stomp://x')",
}


def took(statement: str) -> float:
    """Return the seconds that an interpreter takes for a statement."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    took(STATEMENTS["import redelivery"])
    for name, statement in STATEMENTS.items():
        found = [took(statement) - took("pass") for _ in range(rounds)]
        print(f"{name:24} {statistics.median(found) * 1000:6.1f} ms above a bare interpreter")
    listed = subprocess.run([sys.executable, "-c", LIST], check=True, capture_output=True, text=True)
    print(f"third-party modules: {listed.stdout.strip() or 'none'}")


if __name__ == "__main__":
    main()
