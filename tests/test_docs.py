"""What docs/ says of the tests is true: those that it names exist."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
CASES = (ROOT / "docs" / "cases.md").read_text()
ROWS = [
    line.strip("| ").split(" | ") for line in CASES.splitlines() if re.match(r"\| [ABC]\d", line)
]
NOT_BUILT = {"B6", "B27", "C42", "C45"}


def defined_in(file):
    """Names of the test functions of a file."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_case_names_tests_that_exist(row):
    number, _, _, ours = row
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", ours)
    for file, name in named:
        assert name.startswith("test_")
        assert name in defined_in(file), f"{file}::{name}"
    assert ours.startswith("not built: ") == (number in NOT_BUILT)
    assert named or number in NOT_BUILT


def test_cases_are_there_once_each_and_in_plain_letters():
    numbers = [row[0] for row in ROWS]
    assert len(numbers) == len(set(numbers)) == 12 + 23 + 14
    assert CASES.count("::test_") == sum(ours.count("::test_") for *_, ours in ROWS)
    assert CASES.isascii()
