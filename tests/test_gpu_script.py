"""Tests of benchmarks.gpu: it runs small on a CPU, resumes, and says so where there is no GPU."""

import json
import subprocess
import sys

import pytest
import torch
from benchmarks import gpu
from benchmarks._op_speed import contenders, ratios, seconds

from triplepoint.records import Record, read_parquet

CPU = torch.device("cpu")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the script small on the CPU, and return its last line."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the script sets it: put back afterwards

    def run():
        assert gpu.main(["--device", "cpu", "--tiny", "--out", str(tmp_path)]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_tiny_on_a_cpu_writes_records_and_resumes(run, tmp_path):
    figures = run()["figures"]
    cells = {
        f"{a}_{t}" for a in ("layernorm", "dyt-recommended", "dyt-paper") for t in (5000, 20_000)
    }
    stored = sorted((tmp_path / "training").glob("*.parquet"))
    assert {path.stem for path in stored} == set(figures["training"]) == cells
    assert set(figures["ops"]) == {"16x64_bf16", "16x64_fp32"}
    steps = [r.step for r in read_parquet(stored[0]) if r.metric == "val_loss" and not r.endpoint]
    assert steps == [25, 30]
    # no gigabytes of checkpoints stay behind
    assert not list(tmp_path.glob("runs/*/checkpoints"))

    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert run()["figures"] == figures
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == written

    baseline, candidate = (figures["training"][f"{arm}_5000"] for arm in ("layernorm", "dyt-paper"))
    expected = candidate["fixed_step"] / baseline["fixed_step"] - 1
    assert candidate["delta_rel_fixed_step"] == pytest.approx(expected, abs=1e-5)
    # one cell gone is one cell trained again, from its run folder
    stored[0].unlink()
    assert run()["figures"]["training"] == figures["training"]


def test_without_a_gpu_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "There is no CUDA device.",
        "Run it on a machine that has one, or try --device cpu --tiny.",
    ]
    assert not (tmp_path / "out").exists()


def test_the_planned_runs():
    cells = gpu.FULL.cells(gpu.Path("runs"))
    assert [(c.arm, c.data.train_tokens) for c in cells.values()] == [
        (arm, tokens)
        for tokens in (1_000_000, 9_000_000)
        for arm in ("layernorm", "dyt:recommended", "dyt:paper")
    ]
    recipe = cells["layernorm_1000000"].recipe
    assert (recipe.steps, recipe.batch, recipe.precision, recipe.seed) == (1500, 64, "bf16", 0)
    assert set(gpu.LOOKS) < set(recipe.evaluations)
    assert set(range(50, 1501, 50)) < set(recipe.evaluations)


def test_parameters_by_convention(capsys):
    counts = gpu.print_sizes(gpu.FULL)
    linear, norms = 12 * 12 * 512**2, 25 * 512
    assert counts["params_non_embedding"] == linear + norms
    assert counts["params_no_positions"] == linear + norms + 256 * 512
    assert counts["params_total"] == linear + norms + 256 * 512 + 512 * 512
    assert "params_total 38,154,752; T/P 0.0262 at 1,000,000 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["official DyT", "F.layer_norm"])
def test_the_others_compute_the_same(name):
    ops, x = contenders(8, CPU), torch.randn(4, 8)
    ours = {"official DyT": "dyt", "F.layer_norm": "layernorm"}[name]
    torch.testing.assert_close(ops[name](x), ops[ours](x))


def test_ratios_worked_by_hand():
    rows = [
        Record(metric="clone_time", arm="clone", value=0.002),
        Record(metric="forward_backward_time", arm="F.layer_norm", value=0.01),
        Record(metric="forward_backward_time", arm="dyt", value=0.02),
    ]
    # 2.5 copies take 5 ms
    assert ratios(rows)["dyt"] == {"ms": 20.0, "over_copy_limit": 4.0, "over_layer_norm": 2.0}


def test_what_comes_before_a_run_is_called_each_time():
    calls = []
    times = seconds(
        lambda: calls.append("work"), device=CPU, runs=2, before=lambda: calls.append("before")
    )
    assert calls == ["before", "work"] * 5  # three of them to warm up
    assert len(times) == 2 and min(times) >= 0


@pytest.mark.gpu
def test_tiny_on_a_gpu(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--tiny", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["machine"]["device"] != "CPU"
