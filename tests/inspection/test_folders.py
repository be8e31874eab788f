"""An inspection and its run folder."""

import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from triplepoint.errors import CheckpointError, RunFolderError
from triplepoint.inspection import WEIGHT_METRICS, inspect_weights
from triplepoint.inspection.folders import Subject, inspect_in_folder, subjects_of
from triplepoint.records import Record, read_parquet
from triplepoint.runs import read_arrays

FAST = {"bootstrap": 0, "metrics": ["stable_rank", "spikes"]}


def saved(path, *, seed=0, **shapes):
    generator = torch.Generator().manual_seed(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {
        name.replace("__", "."): shape for name, shape in (shapes or {"a__weight": (6, 4)}).items()
    }
    save_file({n: torch.randn(s, generator=generator) for n, s in names.items()}, path)
    return path


@pytest.fixture
def checkpoint(tmp_path):
    return saved(tmp_path / "w.safetensors", a__weight=(60, 60), a__bias=(60,))


def test_the_folder_holds_what_was_measured_in_every_form(tmp_path, checkpoint):
    run = inspect_in_folder(tmp_path / "run", subjects_of(checkpoint), bootstrap=0)
    direct = inspect_weights(checkpoint, bootstrap=0)
    assert run.records == direct.records == read_parquet(tmp_path / "run" / "records.parquet")
    (told,) = run.facts["inspections"]
    assert [m["name"] for m in told["matrices"]] == ["a"]
    assert told["matrices"][0]["reasons"] == direct.measured[0].reasons
    assert told["skipped"] == [
        {"name": "a.bias", "shape": [60], "reason": "a vector: it has no spectrum"}
    ]
    arrays = read_arrays(tmp_path / "run" / "arrays.npz")
    np.testing.assert_array_equal(arrays["0|density|a|counts"], direct.measured[0].density.counts)
    assert set(run.facts["metrics"]) == {r.metric for r in run.records} <= set(WEIGHT_METRICS)


def test_a_finished_folder_is_read_and_an_interrupted_one_starts_again(
    tmp_path, checkpoint, monkeypatch
):
    def cut():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspect_in_folder(tmp_path / "run", subjects_of(checkpoint), activations=cut, **FAST)
    seen = []
    again = inspect_in_folder(
        tmp_path / "run",
        subjects_of(checkpoint),
        progress=lambda share, name: seen.append((share, name)),
        **FAST,
    )
    assert sorted(r.metric for r in again.records) == ["spikes", "stable_rank"]
    assert seen == [(1.0, "a")]
    monkeypatch.setattr("triplepoint.inspection.folders.inspect_weights", cut)
    assert inspect_in_folder(tmp_path / "run", subjects_of(checkpoint), **FAST) == again


def test_a_changed_file_is_another_run(tmp_path, checkpoint):
    inspect_in_folder(tmp_path / "run", subjects_of(checkpoint), **FAST)
    os.utime(checkpoint, (1, 1))
    with pytest.raises(
        RunFolderError,
        match=r"only\.files\..*w\.safetensors was '14784 bytes.*now '14784 bytes, changed 1970",
    ):
        inspect_in_folder(tmp_path / "run", subjects_of(checkpoint), **FAST)


def test_every_checkpoint_of_a_run_is_inspected_in_order(tmp_path):
    for step in (20, 100):
        saved(tmp_path / "checkpoints" / f"step-{step:06d}" / "model.safetensors", seed=step)
    seen = []
    run = inspect_in_folder(
        tmp_path / "out",
        subjects_of(tmp_path),
        progress=lambda share, _: seen.append(share),
        **FAST,
    )
    assert [t["step"] for t in run.facts["inspections"]] == [20, 100]
    assert [r.step for r in run.records] == [20, 20, 100, 100]
    assert seen == [0.5, 1.0]


def test_two_are_told_apart_by_their_arm(tmp_path):
    before, after = (
        saved(tmp_path / "a"),
        saved(tmp_path / "b", seed=1, a__weight=(6, 4), c__weight=(5, 5)),
    )
    run = inspect_in_folder(tmp_path / "out", subjects_of(before, after), **FAST)
    assert {(r.arm, r.site) for r in run.records} == {
        ("before", "a"),
        ("after", "a"),
        ("after", "c"),
    }
    assert set(run.facts["asked"]["checkpoints"]) == {"before", "after"}


def test_two_without_a_common_matrix_are_refused(tmp_path):
    before, after = saved(tmp_path / "a"), saved(tmp_path / "b", a__weight=(6, 5))
    with pytest.raises(
        CheckpointError, match="a and .*b have no matrix of the same name and shape.\nCompare two"
    ):
        subjects_of(before, after)


def test_what_data_show_joins_the_records(tmp_path):
    model = torch.nn.Linear(4, 6)
    shown = Record(metric="noise_stability@0.1", value=2.0, unit="1")
    run = inspect_in_folder(
        tmp_path / "out",
        [Subject(given=model, name="small")],
        data={"sha256": "0"},
        activations=lambda: [shown],
        **FAST,
    )
    assert run.records[-1] == shown
    assert run.facts["metrics"]["noise_stability@0.1"]["definition"].startswith(
        "change of the logits"
    )
    assert run.facts["asked"]["checkpoints"] == {"only": {"model": "small"}}
