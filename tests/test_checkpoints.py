"""Tests of triplepoint.checkpoints."""

import errno
import os

import numpy as np
import pytest
import torch

from triplepoint import checkpoints
from triplepoint.checkpoints import Checkpoints, Snapshot, best_weights_path
from triplepoint.errors import CheckpointError, RunFolderError


def snapshot(step, **changes):
    return Snapshot(
        **{
            "step": step,
            "model": {"weight": torch.full((2, 2), float(step))},
            "optimizer": {"weight|exp_avg": torch.full((2, 2), 0.5)},
            "rest": {"probe|site|n": torch.tensor(7)},
            "counts": {"s1": 0.125, "recent": [1.5, 2.5]},
            "history": {"val_loss": np.array([[3.0, 2.0]], dtype=np.float32)},
            **changes,
        }
    )


def names_in(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def kept(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


def test_a_run_without_checkpoints_has_no_latest(kept):
    assert kept.latest() is None


def test_a_snapshot_reads_back_as_it_was(kept):
    kept.save(snapshot(100))
    back, asked = kept.latest(), snapshot(100)
    assert back.step == 100
    assert {**asked.counts, "step": 100} == back.counts
    assert torch.equal(back.model["weight"], asked.model["weight"])
    assert torch.equal(back.optimizer["weight|exp_avg"], asked.optimizer["weight|exp_avg"])
    assert torch.equal(back.rest["probe|site|n"], asked.rest["probe|site|n"])
    np.testing.assert_array_equal(back.history["val_loss"], asked.history["val_loss"], strict=True)


def test_the_newest_two_are_kept_and_the_newest_is_read(kept):
    for step in (50, 200, 900, 1000):
        kept.save(snapshot(step))
    assert names_in(kept.path) == ["step-000900", "step-001000"]
    assert kept.latest().step == 1000


def test_newest_means_the_highest_step_also_beyond_six_digits(kept):
    for step in (900_000, 1_000_000):
        kept.save(snapshot(step))
    assert kept.latest().step == 1_000_000


def test_saving_a_step_again_replaces_it(kept):
    kept.save(snapshot(100))
    kept.save(snapshot(100, counts={"s1": 9.0}))
    assert kept.latest().counts["s1"] == 9.0
    assert names_in(kept.path) == ["step-000100"]


def test_what_a_crash_left_half_written_is_ignored(kept):
    kept.save(snapshot(50))
    (kept.path / ".step-000100.part").mkdir()
    (kept.path / ".step-000100.part" / "model.safetensors").write_bytes(b"half")
    assert kept.latest().step == 50
    kept.save(snapshot(100))
    assert kept.latest().step == 100
    assert names_in(kept.path) == ["step-000050", "step-000100"]


def test_the_weights_of_the_best_step_are_no_checkpoint(kept):
    best = best_weights_path(kept.path.parent)
    assert best == kept.path / "best" / "model.safetensors"
    assert best.parent.is_dir()
    assert kept.latest() is None


def test_reading_restores_the_random_numbers_that_followed(kept):
    kept.save(snapshot(100))
    expected = torch.rand(3)
    torch.manual_seed(123)
    kept.latest()
    assert torch.equal(torch.rand(3), expected)


def test_an_interrupt_while_saving_keeps_the_checkpoint_before(kept, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    kept.save(snapshot(50))
    monkeypatch.setattr(checkpoints, "write_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        kept.save(snapshot(100))
    assert kept.latest().step == 50


def test_a_full_disk_while_saving_keeps_the_checkpoint_before_and_says_so(kept, monkeypatch):
    def no_space(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept.save(snapshot(50))
    monkeypatch.setattr(checkpoints.Path, "rename", no_space)
    with pytest.raises(RunFolderError) as caught:
        kept.save(snapshot(100))
    assert str(caught.value).split("\n") == [
        f"{kept.path / 'step-000100'} cannot be written: No space left on device.",
        "Free some space and run the same command again; it resumes from the checkpoint before.",
    ]
    assert names_in(kept.path) == ["step-000050"]
    assert kept.latest().step == 50


def test_a_full_disk_within_a_file_leaves_nothing_half_written(kept, monkeypatch):
    def no_space(*_):
        raise RunFolderError("history.npz cannot be written.\nFree some space.")

    monkeypatch.setattr(checkpoints, "write_arrays", no_space)
    with pytest.raises(RunFolderError, match="^history.npz cannot be written.\nFree some space.$"):
        kept.save(snapshot(100))
    assert names_in(kept.path) == []


@pytest.mark.parametrize("name", ["state.json", "history.npz"])
def test_a_damaged_checkpoint_is_named_with_the_folder_to_delete(kept, name):
    kept.save(snapshot(100))
    folder = kept.path / "step-000100"
    (folder / name).write_bytes(b"{")
    with pytest.raises(CheckpointError) as caught:
        kept.latest()
    problem, remedy = str(caught.value).split("\n")
    assert problem.startswith(f"{folder} is damaged: {folder / name} cannot be read")
    assert remedy == (
        "Delete that folder and run the same command again; it resumes from the checkpoint before."
    )


@pytest.mark.parametrize("name", ["state.json", "history.npz", "model.safetensors"])
def test_a_checkpoint_that_lacks_a_file_is_damaged(kept, name):
    kept.save(snapshot(100))
    (kept.path / "step-000100" / name).unlink()
    with pytest.raises(CheckpointError, match=r"step-000100[^\n]*\n.*[Dd]elete (that|the) folder"):
        kept.latest()


@pytest.mark.parametrize("name", ["model", "optimizer", "state"])
def test_cut_tensors_are_a_damaged_checkpoint(kept, name):
    kept.save(snapshot(50))
    kept.save(snapshot(100))
    path = kept.path / "step-000100" / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with pytest.raises(CheckpointError) as caught:
        kept.latest()
    assert f"delete the folder {path.parent}" in str(caught.value)
    assert torch.equal(torch.get_rng_state(), before)
