"""Tests of swapped models on disk: triplepoint.blueprints.saving."""

import json
import os

import pytest
import torch

from triplepoint import runs
from triplepoint.blueprints import blueprint_of, load, save
from triplepoint.errors import CheckpointError, ModelError, RunFolderError
from triplepoint.ops import OPS
from triplepoint.surgery import swap_norms


def swapped(name="gpt2-0.1m", op="dyt"):
    torch.manual_seed(0)
    blueprint = blueprint_of(name)
    model = blueprint.build()
    return blueprint, model, swap_norms(model, op)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["gpt2-0.1m", "llama-0.1m"])
def test_every_op_survives_the_disk(tmp_path, name, op):
    blueprint, model, report = swapped(name, op)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    save(tmp_path / "out", model, blueprint, report)
    again, tokens = load(tmp_path / "out"), torch.arange(9)[None]
    assert not again.training
    assert torch.equal(again(tokens), model.eval()(tokens))
    assert {n: (p.dtype, p.shape) for n, p in again.named_parameters()} == {
        n: (p.dtype, p.shape) for n, p in model.named_parameters()
    }


def test_the_report_of_the_swap_is_kept(tmp_path):
    save(tmp_path / "out", *reversed(swapped()[:2]), swapped()[2])
    kept = json.loads((tmp_path / "out" / "triplepoint.json").read_text())
    assert len(kept["report"]["swapped"]) == 5
    assert kept["model"]["name"] == "gpt2-0.1m"


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    blueprint, model, _ = swapped()
    with pytest.raises(RunFolderError, match="is not empty.\nChoose another folder with --out"):
        save(tmp_path, model, blueprint)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    blueprint, model, _ = swapped()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        save(tmp_path / "out", model, blueprint)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda f: (f / "triplepoint.json").unlink(), RunFolderError, "has no triplepoint.json.*\nGive the folder that"),
        (lambda f: (f / "triplepoint.json").write_text("{"), RunFolderError, "cannot be read"),
        (lambda f: (f / "triplepoint.json").write_text("{}"), ModelError, "is of version None, this is version 1.\nRead it"),
        (lambda f: (f / "model.safetensors").unlink(), RunFolderError, "has no model.safetensors.*\nRestore it, or swap"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 40), CheckpointError, "as safetensors.*\nRestore it, or swap"),
    ],
    ids=["no sidecar", "half a sidecar", "empty sidecar", "no weights", "junk weights"],
)  # fmt: skip
def test_a_damaged_folder_is_named(tmp_path, damage, kind, message):
    blueprint, model, report = swapped()
    save(tmp_path / "out", model, blueprint, report)
    damage(tmp_path / "out")
    with pytest.raises(kind, match=message):
        load(tmp_path / "out")


def test_another_models_weights_are_refused(tmp_path):
    for name in ("gpt2-0.1m", "llama-0.1m"):
        blueprint, model, report = swapped(name)
        save(tmp_path / name, model, blueprint, report)
    os.replace(
        tmp_path / "llama-0.1m" / "model.safetensors", tmp_path / "gpt2-0.1m" / "model.safetensors"
    )
    with pytest.raises(CheckpointError, match="does not fit the model"):
        load(tmp_path / "gpt2-0.1m")


@pytest.mark.parametrize(
    "damage",
    [
        lambda told: told["swap"].pop("sites"),
        lambda told: told["swap"].update(sites="abc"),
        lambda told: told["swap"]["sites"][0].pop("op"),
        lambda told: told["swap"]["sites"][0].update(op="nope"),
        lambda told: told["swap"]["sites"][0].update(settings={"x": 1}),
        lambda told: told.update(model="abc"),
        lambda told: told.update(model={"kind": "size"}),
        lambda told: told.update(model={"kind": "callable"}),
        lambda told: told["model"]["shape"].update(x=1),
    ],
)
def test_a_sidecar_that_lost_or_gained_something_is_called_damaged(tmp_path, damage):
    blueprint, model, report = swapped()
    save(tmp_path / "out", model, blueprint, report)
    file = tmp_path / "out" / "triplepoint.json"
    told = json.loads(file.read_text())
    damage(told)
    file.write_text(json.dumps(told))
    with pytest.raises(ModelError, match="is damaged: .*\nRestore it, or swap the model again"):
        load(tmp_path / "out")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_dtype_survives_the_disk(tmp_path, dtype):
    blueprint, model, report = swapped()
    next(model.children()).to(dtype)
    save(tmp_path / "out", model, blueprint, report)
    again = load(tmp_path / "out")
    assert {n: t.dtype for n, t in again.state_dict().items()} == {
        n: t.dtype for n, t in model.state_dict().items()
    }


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(tmp_path, there):
    if there:
        (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    blueprint, model, _ = swapped()
    save(tmp_path / "link", model, blueprint)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "triplepoint.json").exists()


def test_names_that_no_file_can_have_are_refused():
    blueprint, model, _ = swapped()
    with pytest.raises(RunFolderError, match="File name too long.\nChoose another folder"):
        save("a" * 300, model, blueprint)
    with pytest.raises(RunFolderError, match="^/ is not empty.\nChoose another folder"):
        save("/", model, blueprint)
