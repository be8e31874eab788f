"""The study of the tail's interval is rebuilt from its records, and they say what its README says."""

import json
import subprocess
import sys

import pytest
import torch
from studies.tail_coverage.cells import cells, matrix, sample


@pytest.fixture(scope="module")
def figures():
    done = subprocess.run(
        [sys.executable, "-m", "studies.tail_coverage", "--from-records"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["name"] == "tail_coverage"
    return found["figures"]


def test_the_interval_holds_the_truth_at_every_size(figures):
    sizes = {law: f["samples"] for law, f in figures["coverage"].items()}
    assert sizes == {
        "pareto-2.5_n128": 500, "pareto-2.5_n512": 500, "pareto-2.5_n4096": 200,
        "pareto-4_n512": 200, "body-2.5_n512": 200,
    }  # fmt: skip
    assert all(0.92 <= f["covered"] <= 0.98 for f in figures["coverage"].values())
    assert figures["coverage"]["pareto-2.5_n128"]["refused"] > 0


def test_noise_is_not_called_heavy_tailed_and_planted_tails_are(figures):
    claims = figures["claims"]
    assert claims["gaussian"]["matrices"] == 200
    assert claims["gaussian"]["heavy_tailed"] <= 10
    assert claims["planted"]["heavy_tailed"] == claims["planted"]["matrices"] == 40
    assert (claims["spiked"]["heavy_tailed"], claims["spiked"]["matrices"]) == (0, 40)


def test_the_body_of_a_law_is_below_its_tail():
    x, alpha = sample("body-2.5_n4000", torch.Generator().manual_seed(0))
    assert (alpha, len(x)) == (2.5, 4000)
    # 40 % below 1; of a tail with density exponent 2.5, 4^-1.5 = 1/8 lies above 4
    assert float((x < 1).double().mean()) == pytest.approx(0.4, abs=0.03)
    assert float((x[x >= 1] > 4).double().mean()) == pytest.approx(1 / 8, abs=0.03)


def test_planted_eigenvalues_are_the_matrix_s():
    w = matrix("planted", 60, 40, seed=1).double()
    evals = torch.linalg.svdvals(w).square()
    assert float(evals.min()) == pytest.approx(1, abs=0.2)


def test_a_cell_is_the_same_each_time():
    compute = cells()["gaussian_64x64"]
    first, second = compute(), compute()
    assert [next(first) for _ in range(2)] == [next(second) for _ in range(2)]
