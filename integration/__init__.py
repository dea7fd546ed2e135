"""Tests with real brokers, and their tools: brokers, a Java client, a proxy that cuts connections."""

from importlib.util import find_spec

if find_spec("pytest") is None:
    raise SystemExit("the brokers of the tests need the extra test: pip install -e '.[test]'")
