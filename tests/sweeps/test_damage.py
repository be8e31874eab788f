"""Tests of triplepoint.sweeps.damage: what is set aside, and what is not."""

import json
import re
import shutil

import pytest
from tests.sweeps.test_cells import tiny

from triplepoint.runs import locked, read_json
from triplepoint.sweeps import identity_of_cell, run_cell
from triplepoint.sweeps.damage import damage_of, quarantine
from triplepoint.sweeps.executors import attempt


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "cell"
    run_cell(tiny(path))
    return path


@pytest.fixture
def cell(finished, tmp_path):
    """A finished cell of its own for each test."""
    return tiny(shutil.copytree(finished, tmp_path / "cell"))


def identity(cell):
    return identity_of_cell(cell, cell.data.load().sha256)


def interrupted(cell):
    facts = read_json(cell.path / "manifest.json")
    (cell.path / "manifest.json").write_text(json.dumps({**facts, "status": "running"}))


def test_whole_new_and_interrupted_folders_are_not_damaged(cell, tmp_path):
    assert damage_of(cell.path, identity(cell)) is None
    interrupted(cell)
    assert damage_of(cell.path, identity(cell)) is None
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".manifest.json.12.part").write_text("{")
    assert damage_of(tmp_path / "new", "any") is None
    assert quarantine(cell) is None


DAMAGES = {
    "manifest-cut": ("manifest.json", lambda p: p.write_bytes(p.read_bytes()[:50]), "cannot be read"),
    "manifest-mangled": ("manifest.json", lambda p: p.write_text('{"status": "finished"}'), "another run"),
    "manifest-gone": ("manifest.json", lambda p: p.unlink(), r"no manifest\.json but arrays\.npz"),
    "arrays-cut": ("arrays.npz", lambda p: p.write_bytes(p.read_bytes()[:200]), "cannot be read"),
    "records-cut": ("records.jsonl", lambda p: p.write_bytes(p.read_bytes()[:99]), "has 99 of"),
    "records-mangled": ("records.jsonl", lambda p: p.write_bytes(b"x" + p.read_bytes()[1:]), "not a record"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_cell_is_set_aside_and_runs_anew(cell, kind):
    name, damage, told = DAMAGES[kind]
    before = read_json(cell.path / "manifest.json")
    damage(cell.path / name)
    assert re.search(told, damage_of(cell.path, identity(cell)))
    events = []
    end = attempt(3, cell, events.append, mend=True)
    assert (end.index, end.kind) == (3, "done")
    assert [e.kind for e in events if e.kind != "step"] == ["quarantined"]
    assert "cell was damaged (" in next(e.text for e in events if e.kind == "quarantined")
    assert (cell.path.parent / "cell.damaged-1").is_dir()
    assert read_json(cell.path / "manifest.json")["identity"] == before["identity"]


@pytest.mark.parametrize("damage", ["weights", "records"])
def test_an_interrupted_cell_whose_checkpoint_is_damaged_runs_anew(cell, damage):
    interrupted(cell)
    if damage == "weights":
        model = next(cell.path.glob("checkpoints/step-*/model.safetensors"))
        model.write_bytes(model.read_bytes()[:100])
    else:
        (cell.path / "records.jsonl").write_bytes(b"")
    assert attempt(0, cell, lambda event: None, mend=True).kind == "done"
    assert (cell.path.parent / "cell.damaged-1").is_dir()


def test_a_second_damage_gets_another_name(cell):
    for number in (1, 2):
        (cell.path / "arrays.npz").write_bytes(b"")
        assert f"is now cell.damaged-{number}" in quarantine(cell)
        run_cell(cell)


def test_an_error_that_is_no_damage_is_an_error(cell):
    interrupted(cell)
    wrong = tiny(cell.path, size="gpt2-nope")
    end = attempt(0, wrong, lambda event: None, mend=True)
    assert end.kind == "error"
    assert "There is no model 'gpt2-nope'" in str(end.error)


def test_a_cell_in_use_is_busy_and_not_touched(cell):
    (cell.path / "arrays.npz").write_bytes(b"")
    with locked(cell.path):
        assert attempt(0, cell, lambda event: None, mend=True).kind == "busy"
        assert quarantine(cell) is None
    assert cell.path.is_dir()
