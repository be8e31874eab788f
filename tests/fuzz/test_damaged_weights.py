"""Damaged and hostile files of weights: refused in words, nothing run, no memory beyond twice the file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def outcome(count, seed, folder):
    """Open ``count`` damaged files in a process of their own: a crash there is its exit status."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.fuzz.damaged", str(count), str(seed), str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(told, count):
    # raw: anything but a CheckpointError; unclear: not "what is wrong" and "what to try" on two lines
    assert {k: told[k][:5] for k in ("raw", "code", "memory", "unclear")} == {
        "raw": [], "code": [], "memory": [], "unclear": [],
    }  # fmt: skip
    assert told["opened"] + told["refused"] == count
    assert told["refused"] > count / 2
    assert told["opened"] > count / 50, "a flipped number is still a number: some must open"


def test_three_hundred_damaged_files(tmp_path):
    check(outcome(300, 0, tmp_path), 300)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(1, 5))
def test_ten_thousand_damaged_files(seed, tmp_path):
    check(outcome(2500, seed, tmp_path), 2500)
