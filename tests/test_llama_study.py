"""Tests of the tables of studies.llama_collapse, on runs whose fate is made up."""

import numpy as np
import pytest
from studies.llama_collapse.answer import USUAL, Setting, predictors, rates
from studies.screening_benchmark.collapse_runs import Exit, Watched, exit_of

STEPS = list(range(50, 1501, 50))
PLATEAU = 3.0
GELU = Setting("dyt:paper", "ffn gelu", 1e-3)


def run(left, *, saturation=0.5, drift=0.1, kl=0.1):
    """A run that leaves the plateau at a step, or never (None), its signs standing still."""
    val = [2.5 if left is not None and s >= left else 3.0 for s in STEPS]
    signs = {"saturation@2": saturation, "alpha_drift_std": drift, "prediction_kl": kl}
    return Watched(
        name="", family="llama", group="a", planned=1500, steps=STEPS, val=val, plateau=PLATEAU, diverged_at=None,
        signs={k: dict.fromkeys(STEPS, v) for k, v in signs.items()}, exit=exit_of(STEPS, val, PLATEAU), baseline=Exit(100, 200),
    )  # fmt: skip


def test_rates_are_counted_and_compared_with_the_usual_setting(capsys):
    rows = {GELU: [run(300)] * 8, USUAL: [run(None)] * 4 + [run(s) for s in (150, 400, 450, 800)]}
    first, second = rates(rows)
    assert (first["op"], first["changes"], first["stuck"], first["n"]) == ("dyt:paper", "", 4, 8)
    assert first["fisher_p"] is None
    # 4 of 8 against 0 of 8: 2 C(8,4) C(8,0) / C(16,4) = 2 x 70 / 1820
    assert second["fisher_p"] == pytest.approx(140 / 1820)
    assert first["exits"] == [150, 400, 450, 800]
    out = capsys.readouterr().out
    assert "| dyt:paper | - | 0.001 | 4 of 8 (22-78 %) | - | 0 | 425 (150 to 800) | 100 |" in out
    assert "| dyt:paper | ffn gelu | 0.001 | 0 of 8 (0-32 %) | 0.077 | 0 | 300 (300 to 300) | 100 |" in out  # fmt: skip


def test_a_sign_that_tells_them_apart_has_an_area_of_one_and_one_that_does_not_a_half():
    runs = [run(None, saturation=0.9, drift=0.01)] * 3 + [run(s, saturation=0.4, drift=0.3) for s in (150, 400, 700, 800)]  # fmt: skip
    found = predictors(runs)
    assert found["500, all, saturation"]["auc"] == 1.0
    assert found["500, all, alpha drift, turned"]["auc"] == 1.0
    blind = found["500, all, prediction KL, turned"]
    assert (blind["auc"], blind["low"], blind["high"]) == (0.5, 0.5, 0.5)
    # the labels fall so in one of C(7, 3) ways
    assert found["500, all, saturation"]["p"] == pytest.approx(1 / 35, abs=0.015)
    there = predictors([run(None)] * 2 + [run(150)])
    assert there["500, on the plateau, saturation"] is None  # only those that never left are there
    assert there["500, all, saturation"]["auc"] == 0.5


def test_the_interval_of_an_area_holds_it():
    rng = np.random.default_rng(0)
    runs = [run(None, saturation=s) for s in rng.normal(1, 1, 6)]
    runs += [run(300, saturation=s) for s in rng.normal(0, 1, 20)]
    found = predictors(runs)["250, all, saturation"]
    assert 0.5 < found["low"] < found["auc"] < found["high"] <= 1
