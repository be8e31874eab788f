"""Tests of triplepoint.runs."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from triplepoint import runs
from triplepoint.errors import FolderInUseError, RunFolderError
from triplepoint.records import Record, read_jsonl, read_parquet
from triplepoint.runs import (
    RunFolder,
    atomic_path,
    default_folder,
    identity_of,
    in_use,
    locked,
    read_arrays,
    read_json,
    read_records,
    read_rows,
    usable_cores,
    write_arrays,
    write_json,
    write_rows,
)

ASKED = {"op": "dyt", "recipe": {"steps": 5, "lr": 0.1, "betas": (0.9, 0.95)}}
ROW = Record(metric="val_loss", value=2.5, step=1)


def open_folder(path, *, kind="train", writer=True, **changes):
    return RunFolder(path, asked={**ASKED, **changes}, kind=kind, writer=writer)


def message_of(call, *args, **options):
    with pytest.raises(RunFolderError) as caught:
        call(*args, **options)
    return str(caught.value).split("\n")


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names_in(folder):
    return sorted(p.name for p in folder.iterdir())


# --- identity


def test_identity_does_not_depend_on_the_order_of_keys():
    first = identity_of({"a": 1, "b": {"c": 2, "d": [3, None]}})
    assert first == identity_of({"b": {"d": [3, None], "c": 2}, "a": 1})
    assert len(first) == 16


@pytest.mark.parametrize("other", [{"a": 2}, {"a": "1"}, {"a": 1, "b": None}, {"a": [1]}, {}])
def test_identity_depends_on_every_value(other):
    assert identity_of(other) != identity_of({"a": 1})


def test_identity_is_the_same_in_another_process():
    code = "from triplepoint.runs import identity_of; print(identity_of({'b': 1.5, 'a': 'x'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == identity_of({"a": "x", "b": 1.5})


def test_the_kind_is_part_of_the_identity(tmp_path):
    with open_folder(tmp_path / "a") as train, open_folder(tmp_path / "b", kind="screen") as screen:
        assert train.identity != screen.identity


def test_default_folder_is_named_after_what_was_asked():
    first = default_folder("train", "gpt2-3m", 500)
    assert first == default_folder("train", "gpt2-3m", 500)
    assert first != default_folder("train", "gpt2-3m", 501)
    assert first.parent.name == "runs"
    assert first.name.startswith("train-")


def test_usable_cores_are_those_of_this_process():
    assert usable_cores() == len(os.sched_getaffinity(0))


# --- states of a folder


def test_a_folder_is_new_then_interrupted_then_finished(tmp_path):
    path = tmp_path / "deep" / "run"
    with open_folder(path) as folder:
        assert folder.state == "new"
    with open_folder(path) as folder:
        assert folder.state == "interrupted"
        folder.append([ROW])
        folder.finish({"outcome": "well"})
    with open_folder(path) as folder:
        assert folder.state == "finished"


def test_the_manifest_says_whose_the_folder_is(tmp_path):
    with open_folder(tmp_path) as folder:
        folder.write_manifest({"status": "running", "seed": 3})
        manifest = read_json(folder.manifest_path)
    assert manifest == {
        "schema": 1,
        "identity": folder.identity,
        "asked": {"kind": "train", "op": "dyt", "recipe": {"steps": 5, "lr": 0.1, "betas": [0.9, 0.95]}},
        "status": "running",
        "seed": 3,
    }  # fmt: skip


def test_another_runs_folder_is_refused_and_the_difference_told(tmp_path):
    open_folder(tmp_path).close()
    before = (tmp_path / "manifest.json").read_bytes()
    assert message_of(open_folder, tmp_path, op="derf") == [
        f"{tmp_path} belongs to another run: op was 'dyt', now 'derf'.",
        "Choose another folder with --out, or delete this one.",
    ]
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_a_difference_deep_inside_is_told_by_its_path_and_alone(tmp_path):
    open_folder(tmp_path).close()
    # betas is a tuple here and a list in the manifest: no difference
    problem, _ = message_of(open_folder, tmp_path, recipe={**ASKED["recipe"], "lr": 0.3})
    assert problem == f"{tmp_path} belongs to another run: recipe.lr was 0.1, now 0.3."


def test_at_most_three_differences_are_told(tmp_path):
    open_folder(tmp_path, a=1, b=1, c=1, d=1).close()
    problem, _ = message_of(open_folder, tmp_path, a=2, b=2, c=2, d=2)
    assert problem.endswith("another run: a was 1, now 2; b was 1, now 2; c was 1, now 2.")


def test_a_folder_of_an_older_identity_is_refused(tmp_path):
    open_folder(tmp_path).close()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    write_json(tmp_path / "manifest.json", {**manifest, "identity": "0" * 16})
    problem, _ = message_of(open_folder, tmp_path)
    assert problem == f"{tmp_path} belongs to another run: older version."


def test_a_folder_with_files_of_somebody_else_is_refused(tmp_path):
    for name in ("d.txt", "a.txt", "c.txt", "b.txt"):
        (tmp_path / name).touch()
    assert message_of(open_folder, tmp_path) == [
        f"{tmp_path} holds files that are not a run's: a.txt, b.txt, c.txt.",
        "Choose an empty or new folder with --out.",
    ]
    assert not (tmp_path / "manifest.json").exists()


def test_hidden_files_do_not_make_a_folder_foreign(tmp_path):
    (tmp_path / ".DS_Store").touch()
    with open_folder(tmp_path) as folder:
        assert folder.state == "new"


def test_a_folder_in_use_is_refused_until_it_is_closed(tmp_path):
    with open_folder(tmp_path):
        assert message_of(open_folder, tmp_path) == [
            f"{tmp_path} is in use by another process.",
            "Wait until it ends, or choose another folder with --out.",
        ]
    open_folder(tmp_path).close()


def test_a_folder_in_use_by_another_process_is_refused(tmp_path):
    with open_folder(tmp_path):
        code = (
            "import sys; from triplepoint.runs import RunFolder\n"
            "try: RunFolder(sys.argv[1], asked={}, kind='train')\n"
            "except OSError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
        )
    assert done.stdout.startswith(f"{tmp_path} is in use by another process.")


def test_a_refused_folder_is_not_left_locked(tmp_path):
    open_folder(tmp_path).close()
    message_of(open_folder, tmp_path, op="derf")
    open_folder(tmp_path).close()


@pytest.mark.parametrize(
    ("path", "why"), [("file", "File exists"), ("file/inside", "Not a directory")]
)
def test_a_path_through_a_file_cannot_be_a_folder(tmp_path, path, why):
    (tmp_path / "file").write_text("not a folder")
    assert message_of(open_folder, tmp_path / path) == [
        f"{tmp_path / path} cannot be a folder: {why}, something on the way is a file.",
        "Choose another folder with --out.",
    ]


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(runs.Path, "mkdir", no_space)
    assert message_of(open_folder, tmp_path / "run") == [
        f"{tmp_path / 'run'} cannot be written: No space left on device.",
        "Free some space or choose another folder with --out; run the same command again to resume.",
    ]


def test_a_folder_that_is_deleted_while_the_run_goes_on_is_told(tmp_path):
    with open_folder(tmp_path / "run") as folder:
        shutil.rmtree(tmp_path / "run")
        assert message_of(folder.write_manifest, {}) == [
            f"{tmp_path / 'run' / 'manifest.json'} cannot be written: its folder was deleted while "
            "the run was going on.",
            "Run the same command again; it starts anew.",
        ]


def test_other_processes_of_a_run_neither_lock_nor_write(tmp_path):
    with open_folder(tmp_path):
        before = names_in(tmp_path)
        second = open_folder(tmp_path, writer=False)
        assert second.state == "interrupted"
        assert names_in(tmp_path) == before
        second.close()


# --- records of a folder


def test_append_returns_the_size_and_what_it_wrote_reads_back(tmp_path):
    with open_folder(tmp_path) as folder:
        first = folder.append([ROW, ROW])
        second = folder.append([Record(metric="m", value=math.nan)])
        folder.sync()
        path = tmp_path / "records.jsonl"
        assert second == path.stat().st_size > first
        assert [r.metric for r in read_jsonl(path)] == ["val_loss", "val_loss", "m"]


def test_records_are_appended_to_those_of_an_interrupted_run(tmp_path):
    for _ in range(2):
        with open_folder(tmp_path) as folder:
            folder.append([ROW])
    assert read_jsonl(tmp_path / "records.jsonl") == [ROW, ROW]


def test_rewind_forgets_what_followed_a_size(tmp_path):
    with open_folder(tmp_path) as folder:
        size = folder.append([ROW])
        folder.append([ROW, ROW])
        folder.rewind(size)
        later = Record(metric="later", value=1.0)
        assert folder.append([later]) > size
    assert read_jsonl(tmp_path / "records.jsonl") == [ROW, later]


def test_rewind_to_nothing_makes_an_empty_file(tmp_path):
    with open_folder(tmp_path) as folder:
        folder.rewind(0)
    assert (tmp_path / "records.jsonl").read_bytes() == b""


def test_rewind_beyond_the_end_is_refused(tmp_path):
    with open_folder(tmp_path) as folder:
        size = folder.append([ROW])
        assert message_of(folder.rewind, size + 7) == [
            f"{tmp_path / 'records.jsonl'} is shorter than its checkpoint says ({size} < {size + 7} bytes).",
            "The file was changed by another program; start in a new folder.",
        ]


def test_finish_writes_all_records_as_parquet_and_then_the_status(tmp_path):
    with open_folder(tmp_path) as folder:
        folder.append([ROW, ROW])
        folder.finish({"outcome": "well", "status": "running"})
    assert read_parquet(tmp_path / "records.parquet") == [ROW, ROW]
    assert read_json(tmp_path / "manifest.json")["status"] == "finished"


def test_a_resumed_run_that_has_nothing_to_add_finishes_with_what_there_is(tmp_path):
    with open_folder(tmp_path) as folder:
        folder.append([ROW])
    with open_folder(tmp_path) as folder:
        folder.finish({})
    size = read_json(tmp_path / "manifest.json")["records_size"]
    assert read_records(tmp_path, size) == [ROW]


def test_a_run_without_records_can_finish(tmp_path):
    with open_folder(tmp_path) as folder:
        folder.finish({})
    assert read_parquet(tmp_path / "records.parquet") == []


def test_a_run_whose_records_are_damaged_does_not_finish_and_says_where(tmp_path):
    with open_folder(tmp_path) as folder:
        size = folder.append([ROW])
        (tmp_path / "records.jsonl").write_text("x" * (size - 1) + "\n")
        problem, _ = message_of(folder.finish, {})
    assert problem.startswith(f"{tmp_path / 'records.jsonl'}, line 1: not a record")
    assert read_json(tmp_path / "manifest.json")["status"] == "running"


@pytest.mark.parametrize("lost", ["some", "all"])
def test_a_run_that_lost_records_does_not_finish(tmp_path, lost):
    path = tmp_path / "records.jsonl"
    with open_folder(tmp_path) as folder:
        size = folder.append([ROW, ROW])
        path.write_bytes(path.read_bytes()[: size // 2])
        told = f"has {size // 2} of {size} bytes"
        if lost == "all":
            path.unlink()
            told = "is gone"
        assert message_of(folder.finish, {}) == [
            f"{path} {told}: it was changed by another program.",
            f"Delete the folder {tmp_path} and run the command again.",
        ]
    assert read_json(tmp_path / "manifest.json")["status"] == "running"


def test_a_finished_runs_records_are_read_at_the_size_its_manifest_says(tmp_path):
    with open_folder(tmp_path) as folder:
        folder.append([ROW, ROW])
        folder.finish({})
    size = read_json(tmp_path / "manifest.json")["records_size"]
    assert read_records(tmp_path, size) == [ROW, ROW]
    problem, _ = message_of(read_records, tmp_path, size + 1)
    assert problem.startswith(f"{tmp_path / 'records.jsonl'} has {size} of {size + 1} bytes: ")
    assert read_records(tmp_path / "none", 0) == []


# --- a full disk and a crash


def test_an_exception_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "value.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as beside:
        beside.write_text("half of the n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["value.json"]


def test_the_new_file_takes_its_place_whole(tmp_path):
    path = tmp_path / "value.json"
    path.write_text("old")
    with atomic_path(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
        assert beside.parent == tmp_path  # a rename across file systems is not atomic
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["value.json"]


@pytest.mark.parametrize("where", ["fsync", "write_text"])
def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path, monkeypatch, where):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    owner = os if where == "fsync" else runs.Path
    monkeypatch.setattr(owner, where, no_space)
    assert message_of(write_json, path, {"a": 2}) == [
        f"{path} cannot be written: No space left on device.",
        "Free some space or choose another folder with --out; run the same command again to resume.",
    ]
    assert read_json(path) == {"a": 1}
    assert names_in(tmp_path) == ["value.json"]


def test_a_kill_between_write_and_rename_leaves_the_old_file_and_a_usable_folder(tmp_path):
    open_folder(tmp_path).close()
    code = (
        "import os, pathlib, sys; from triplepoint.runs import atomic_path\n"
        "with atomic_path(pathlib.Path(sys.argv[1])) as beside:\n"
        "    beside.write_text('{}')\n"
        "    os._exit(9)"
    )
    manifest = tmp_path / "manifest.json"
    before = manifest.read_bytes()
    done = subprocess.run([sys.executable, "-c", code, manifest])
    assert done.returncode == 9
    assert manifest.read_bytes() == before
    with open_folder(tmp_path) as folder:
        assert folder.state == "interrupted"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_while_appending_is_told_also_through_the_closing_of_the_folder(tmp_path):
    with pytest.raises(RunFolderError) as caught, open_folder(tmp_path) as folder:
        (tmp_path / "records.jsonl").symlink_to("/dev/full")
        folder.append([ROW])
    problem, _ = str(caught.value).split("\n")
    assert problem == f"{tmp_path / 'records.jsonl'} cannot be written: No space left on device."
    (tmp_path / "records.jsonl").unlink()
    open_folder(tmp_path).close()  # and the lock was released


def test_records_that_cannot_be_rewound_are_told(tmp_path):
    with open_folder(tmp_path) as folder:
        (tmp_path / "records.jsonl").mkdir()
        problem, _ = message_of(folder.rewind, 0)
    assert problem == f"{tmp_path / 'records.jsonl'} cannot be written: Is a directory."


# --- JSON and arrays


def test_a_number_that_is_not_finite_is_an_error_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        write_json(tmp_path / "value.json", {"a": math.nan})
    assert names_in(tmp_path) == []


def test_a_missing_manifest_says_that_this_is_no_run_folder(tmp_path):
    assert message_of(read_json, tmp_path / "manifest.json") == [
        f"{tmp_path} is not a run folder: it has no manifest.json.",
        "Give the folder that --out named, or the folder of one of its arms.",
    ]


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"NaN?"])
def test_a_damaged_json_file_is_named(tmp_path, content):
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    problem, remedy = message_of(read_json, path)
    assert problem.startswith(f"{path} cannot be read: ")
    assert remedy == "The file is damaged; restore it, or start the run again in a new folder."


def test_json_that_is_no_object_is_refused(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text("[1]")
    assert message_of(read_json, path) == [
        f"{path} holds no JSON object.",
        "Restore it, or use a new folder.",
    ]


def test_arrays_read_back_with_dtype_and_shape(tmp_path):
    arrays = {
        "val_loss": np.array([[1.5, np.nan]], dtype=np.float32),
        "eval_steps": np.arange(3),
        "one": np.array(7),
    }
    write_arrays(tmp_path / "arrays.npz", arrays)
    back = read_arrays(tmp_path / "arrays.npz")
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array, strict=True)


def cut(content):
    return content[: len(content) // 2]


def with_a_flipped_byte(content):
    return content[:60] + bytes([content[60] ^ 255]) + content[61:]


@pytest.mark.parametrize(
    "damage", [cut, with_a_flipped_byte, lambda _: b"", lambda _: b"junk", lambda _: None],
    ids=["cut", "flipped", "empty", "junk", "missing"],
)  # fmt: skip
def test_damaged_arrays_are_named(tmp_path, damage):
    path = tmp_path / "arrays.npz"
    write_arrays(path, {"a": np.random.default_rng(0).random(100)})
    damaged = damage(path.read_bytes())
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    lines = message_of(read_arrays, path)
    assert lines[0].startswith(f"{path} cannot be read: ")
    assert lines[-1] == f"Delete the folder {tmp_path} and run the command again."


def test_pickled_objects_are_not_read(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.array([{"not": "numbers"}], dtype=object))
    problem, _ = message_of(read_arrays, path)
    assert "allow_pickle=False" in problem


# --- folders that other processes look at


def test_a_locked_folder_is_in_use_until_it_is_let_go(tmp_path):
    with locked(tmp_path):
        assert in_use(tmp_path)
        with pytest.raises(FolderInUseError, match="is in use by another process.\nWait"):
            RunFolder(tmp_path, asked={}, kind="train")
    assert not in_use(tmp_path)
    assert not in_use(tmp_path / "nowhere")


def test_rows_come_back_from_parquet_with_their_types(tmp_path):
    columns = {"name": str, "loss": float, "step": int, "stalled": bool}
    rows = [{"name": "a", "loss": 1.5, "step": 3, "stalled": True}, {"name": "b", "step": 4}]
    write_rows(tmp_path / "t.parquet", rows, columns)
    assert read_rows(tmp_path / "t.parquet") == [
        rows[0],
        {"name": "b", "loss": None, "step": 4, "stalled": None},
    ]


def test_a_damaged_table_says_how_to_get_it_back(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"no")
    with pytest.raises(RunFolderError, match="cannot be read.*\nRun the command that made it"):
        read_rows(tmp_path / "t.parquet")
