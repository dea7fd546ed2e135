"""The page of claims: each has a result, an explanation, and tests that exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from docs._generate.claims import CLAIMS, DOCUMENTS, Claim

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

ROOT = Path(__file__).parents[2]
ROWS = [claim for claims in CLAIMS.values() for claim in claims]


@cache
def functions_of(path: str) -> frozenset[str]:
    """Return the names of the test functions of a file, which is read and not imported: it may need a broker."""
    code = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(code) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_all_claims_are_there() -> None:
    """No claim is left out, and each document has some."""
    assert len(ROWS) == len({claim.text for claim in ROWS}) == 56
    assert {letter for claim in ROWS for letter in claim.documents} == set(DOCUMENTS)


@pytest.mark.parametrize("claim", ROWS, ids=[str(number) for number in range(1, len(ROWS) + 1)])
def test_each_claim_is_shown_by_tests_that_exist(claim: Claim) -> None:
    """A claim names a test or more, each a function of a file of tests; a difference is explained."""
    assert claim.text
    assert claim.how
    assert "\n" not in claim.how
    assert claim.tests
    for test in claim.tests:
        path, _, name = test.partition("::")
        assert path.startswith(("tests/", "integration/", "client/redelivery/testing/conformance/")), test
        assert name in functions_of(path), test
    if claim.result == "differs":
        said = "](" in claim.how or any(word in claim.how for word in ("note", "imported", "import"))
        assert said, "a difference is documented on a page, or is a note of the importer"
