"""Monitors on two processes: states are added once, and each rank records the same."""

import pathlib
import subprocess
import sys

import pytest
import torch
from tests.monitoring.ranks import batch_of, build, watch

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two gloo processes recorded."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.monitoring.ranks"]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder)], cwd=ROOT, stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    told = [process.communicate(timeout=200)[1].decode() for process in processes]
    assert [p.returncode for p in processes] == [0, 0], "\n".join(told)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_ranks_record_what_one_process_does_with_both_batches(ranks, kind):
    together = watch(build(), [batch_of(0), batch_of(1)], branches=[False, True])
    expected = {(r["metric"], r["site"], r["step"]): r for r in together}
    found = {(r["metric"], r["site"], r["step"]): r for r in ranks[0][kind]}
    assert set(found) == set(expected)
    assert {step for _, _, step in found} == {1, 2}
    for key, row in found.items():
        assert row["n"] == expected[key]["n"], key
        assert row["value"] == pytest.approx(expected[key]["value"], rel=1e-4, abs=1e-6), key


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_each_rank_has_the_same_records_also_of_what_only_one_has_seen(ranks, kind):
    first, second = (of[kind] for of in ranks)
    assert first == second
    only_second = [r for r in first if r["site"] == "branch" and r["metric"] == "input_rms"]
    assert [r["n"] for r in only_second] == [12, 12]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_alpha_is_the_whole_parameter(ranks, kind):
    (first, second) = [r for r in ranks[1][kind] if r["metric"] == "alpha"]
    assert first["site"] == "body.1"
    assert first["value"] != second["value"]
