"""Tests of the fast-forward as a run."""

import pytest

from triplepoint.errors import RunFolderError
from triplepoint.experiments.folders import load_run
from triplepoint.experiments.forwarding import run_fast_forward
from triplepoint.experiments.specs import TaskSpec
from triplepoint.weights import load_tensors

SMALL = TaskSpec(p=11)


def test_it_keeps_the_network_and_a_record_of_every_gradient(tmp_path):
    found = run_fast_forward(SMALL, hidden=64, path=tmp_path / "run")
    run = load_run(tmp_path / "run")
    steps, C = run.series("complexity")
    assert steps[-1] <= found["gradients"]
    assert C[-1] < C[0]
    saved = load_tensors(next((tmp_path / "run").glob("checkpoints/*/model.safetensors")))
    product = saved["0.weight"].norm() * saved["2.weight"].norm()
    assert float(product) == pytest.approx(found["complexity"])
    assert {r.metric for r in run.records} <= set(run.facts["metrics"])


def test_nothing_is_written_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_fast_forward(SMALL, hidden=64)
    assert list(tmp_path.iterdir()) == []


def test_another_runs_folder_is_refused(tmp_path):
    run_fast_forward(SMALL, hidden=64, path=tmp_path / "run")
    with pytest.raises(RunFolderError, match="another run"):
        run_fast_forward(TaskSpec(p=13), hidden=64, path=tmp_path / "run")


def test_a_folder_is_looked_at_before_anything_is_computed(tmp_path):
    first = run_fast_forward(SMALL, hidden=64, path=tmp_path / "run")
    seen = []
    again = run_fast_forward(SMALL, hidden=64, path=tmp_path / "run", watch=seen.append)
    assert again == first
    with pytest.raises(RunFolderError):
        run_fast_forward(TaskSpec(p=13), hidden=64, path=tmp_path / "run", watch=seen.append)
    assert seen == []
