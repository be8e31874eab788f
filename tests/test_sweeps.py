"""Tests of triplepoint.sweeps: cells in processes, killed at any moment."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tests.tiny import comparable

from triplepoint.errors import RunFolderError
from triplepoint.recipes import Recipe
from triplepoint.sweeps import Cell, DataSpec, load_arm, run_cell, run_cells


def cell(path, *, arm="dyt", seed=0, steps=30, lr=1e-3):
    return Cell(
        path=path, arm=arm, op=None if arm == "layernorm" else arm, size="gpt2-0.1m",
        data=DataSpec(train_tokens=5000, context=16, windows=8),
        recipe=Recipe(steps=steps, batch=2, warmup=5, seed=seed, lr=lr, eval_steps=tuple(range(5, steps, 5)), checkpoint_every=7),
    )  # fmt: skip


def test_processes_give_the_numbers_of_one_process(tmp_path):
    cells = [cell(tmp_path / "many" / arm, arm=arm) for arm in ("layernorm", "dyt", "derf")]
    many = run_cells(cells, workers=2)
    alone = run_cell(cell(tmp_path / "alone", arm="derf"))
    assert [run.arm for run in many] == ["layernorm", "dyt", "derf"]
    assert comparable(many[2]) == comparable(alone)


def test_an_error_in_a_worker_arrives_as_it_was_and_keeps_what_is_finished(tmp_path):
    cells = [cell(tmp_path / "a"), cell(tmp_path / "b")]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(
        RunFolderError, match=r"holds files that are not a run's: notes\.txt\.\nChoose"
    ):
        run_cells(cells, workers=2)
    assert (tmp_path / "b" / "notes.txt").read_text() == "mine"


COMMAND = [
    sys.executable, "-m", "triplepoint.cli.main", "train", "--model", "gpt2-0.1m", "--op", "dyt", "--train-tokens", "5000",
    "--context", "16", "--batch", "2", "--steps", "200", "--eval-every", "10", "--checkpoint-every", "15",
]  # fmt: skip


def test_killed_at_any_moment_a_run_ends_as_if_nothing_had_happened(tmp_path):
    random.seed(5)
    subprocess.run([*COMMAND, "--out", tmp_path / "whole"], check=True, capture_output=True)
    kills = 0
    for _ in range(12):
        process = subprocess.Popen(
            [*COMMAND, "--out", tmp_path / "cut"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        records = tmp_path / "cut" / "records.jsonl"
        before = records.stat().st_size if records.exists() else 0
        while process.poll() is None and time.monotonic() < until:
            # let it write something new first, so that the kills land in the training and not in imports
            if records.exists() and records.stat().st_size != before:
                time.sleep(random.random() * 0.3)
                break
            time.sleep(0.01)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        if kills == 3:
            break
    assert kills >= 1
    subprocess.run([*COMMAND, "--out", tmp_path / "cut"], check=True, capture_output=True)
    assert comparable(load_arm(tmp_path / "cut")) == comparable(load_arm(tmp_path / "whole"))


def test_workers_end_with_their_parent(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.test_sweeps import cell; from triplepoint.sweeps import run_cells\n"
        "if __name__ == '__main__':\n"
        "    p = Path(sys.argv[1]); run_cells([cell(p / str(i), steps=100000) for i in range(2)], workers=2)\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    driver = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs")], env={**os.environ, "PYTHONPATH": os.getcwd()}, stderr=subprocess.DEVNULL
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until and len(list((tmp_path / "runs").glob("*/records.jsonl"))) < 2:
        time.sleep(0.1)
    driver.kill()
    driver.wait()
    time.sleep(2)
    sizes = [p.stat().st_size for p in (tmp_path / "runs").glob("*/records.jsonl")]
    time.sleep(1)
    assert [p.stat().st_size for p in (tmp_path / "runs").glob("*/records.jsonl")] == sizes
    assert len(sizes) == 2


@pytest.mark.slow
def test_accelerate_launch_on_two_processes_trains_and_writes_once(tmp_path):
    launch = [
        sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "-m", *COMMAND[2:],
    ]  # fmt: skip
    subprocess.run(
        [*launch, "--out", tmp_path / "two"], check=True, capture_output=True, timeout=280
    )
    subprocess.run([*COMMAND, "--out", tmp_path / "one"], check=True, capture_output=True)
    two, one = load_arm(tmp_path / "two"), load_arm(tmp_path / "one")
    assert [(r.metric, r.step, r.site) for r in two.records] == [
        (r.metric, r.step, r.site) for r in one.records
    ]
    # the same batches, summed in another order
    assert two.last("val_loss") == pytest.approx(one.last("val_loss"), rel=1e-3)


@pytest.mark.parametrize("damage", ["deleted", "cut", "lengthened"])
def test_a_finished_run_whose_records_were_changed_is_not_taken_for_whole(tmp_path, damage):
    run_cell(cell(tmp_path))
    records = tmp_path / "records.jsonl"
    text = records.read_bytes()
    if damage == "deleted":
        records.unlink()
    else:
        records.write_bytes(text[:500] if damage == "cut" else text + b"x\n")
    with pytest.raises(
        RunFolderError, match=r"records\.jsonl (is gone|has \d+ of \d+ bytes).*\nDelete the folder"
    ):
        run_cell(cell(tmp_path))


def test_a_finished_run_without_its_arrays_says_which_folder_to_delete(tmp_path):
    run_cell(cell(tmp_path))
    (tmp_path / "arrays.npz").unlink()
    with pytest.raises(
        RunFolderError,
        match=r"arrays\.npz cannot be read.*\nDelete the folder .* run the command again",
    ):
        run_cell(cell(tmp_path))


def test_a_folder_deleted_while_its_run_goes_on_is_an_error_and_not_a_finished_run(tmp_path):
    import shutil

    def progress(step, loss):
        if step == 20:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(RunFolderError):
        run_cell(cell(tmp_path / "run"), progress)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_run_that_blew_up_without_a_nan_is_recorded_as_diverged(tmp_path):
    run = run_cell(cell(tmp_path, lr=100.0))
    assert run.outcome == "diverged"
    assert run.diverged_at <= run.last_step
