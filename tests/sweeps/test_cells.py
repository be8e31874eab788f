"""Tests of triplepoint.sweeps.cells."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from triplepoint.blueprints import Shape
from triplepoint.errors import PlanError
from triplepoint.models import GPT2, Llama, ViT
from triplepoint.ops import DyT
from triplepoint.recipes import Recipe
from triplepoint.runs import identity_of
from triplepoint.sweeps import Cell, DataSpec, ImageSpec, build_model, identity_of_cell, run_cell

SHAPE = Shape(vocab=256, context=16)


def tiny(path, **changes):
    cell = Cell(
        path=path, arm="dyt", op="dyt", size="gpt2-0.1m", data=DataSpec(train_tokens=2000, context=16, windows=4),
        recipe=Recipe(steps=4, batch=2, warmup=2, eval_steps=(2,), sample_every=0),
    )  # fmt: skip
    return dataclasses.replace(cell, **changes)


def test_the_identity_of_cells_before_the_new_axes_is_what_it_was():
    cell = tiny(Path("x"))
    asked = {
        "kind": "train", "op": "dyt", "size": "gpt2-0.1m", "dropout": 0.0, "data": "sum", "context": 16,
        "windows": 4, "arm": "dyt", "recipe": dataclasses.asdict(cell.recipe),
    }  # fmt: skip
    assert identity_of_cell(cell, "sum") == identity_of(asked)


@pytest.mark.parametrize(
    "changes",
    [{"alpha": 1.0}, {"changes": {"attention": "gated"}}, {"changes": {"attention": "diff_v1"}}],
)
def test_a_new_axis_makes_another_cell(changes):
    cells = [tiny(Path("x")), tiny(Path("x"), alpha=2.0), tiny(Path("x"), **changes)]
    assert len({identity_of_cell(cell, "sum") for cell in cells}) == 3


def test_the_manifest_has_the_identity_that_was_foretold(tmp_path):
    cell = tiny(tmp_path, alpha=0.7, changes={"attention": "gated"})
    run = run_cell(cell)
    assert run.facts["identity"] == identity_of_cell(cell, cell.data.load().sha256)


@pytest.mark.parametrize(
    ("size", "kind"), [("gpt2-0.1m", GPT2), ("llama-0.1m", Llama), ("vit-0.1m", ViT)]
)
def test_every_family_is_built_with_its_ops(size, kind):
    shape = SHAPE if kind is not ViT else Shape(image=(8, 1, 10))
    model = build_model(size, op="dyt:paper", alpha=0.7, shape=shape)
    assert isinstance(model, kind)
    ops = [module for module in model.modules() if isinstance(module, DyT)]
    assert len(ops) == 5
    assert [op.alpha.item() for op in ops] == [pytest.approx(0.7)] * 5


def test_changes_are_the_configuration_s():
    model = build_model("llama-0.1m", op=None, changes={"ffn": "gelu", "heads": 2}, shape=SHAPE)
    assert (model.config.ffn, model.config.heads) == ("gelu", 2)


@pytest.mark.parametrize(
    ("size", "op", "how", "message"),
    [
        ("gpt2-0.1m", None, {"alpha": 1.0}, "The model as it is has no alpha.*\nGive alpha with an op that has one, e.g. dyt"),
        ("gpt2-0.1m", "hardtanh", {"alpha": 1.0}, "hardtanh has no alpha"),
        ("gpt2-0.1m", "dyt", {"alpha": -1.0}, r"alpha must be positive and finite, got -1\.0\.\nTry"),
        ("gpt2-0.1m", None, {"changes": {"ffn": "gelu"}}, "gpt2-0.1m has no ffn to choose.\nLeave it out"),
        ("gpt2-0.1m", None, {"changes": {"heads": 5}}, "5"),
        ("vit-0.1m", None, {"shape": Shape(image=(32, 3, 10))}, "vit-0.1m reads images of 8 pixels in 1 channels, the data have 32 in 3.\nUse vit-4.8m"),
        ("gpt2-0.1m", None, {"shape": Shape(image=(8, 1, 10))}, "gpt2-0.1m reads tokens, the data are images.\nChoose a vit size"),
    ],
)  # fmt: skip
def test_an_impossible_model_says_why(size, op, how, message):
    with pytest.raises(PlanError, match=message):
        build_model(size, op=op, **{"shape": SHAPE, **how})


def small_cifar(folder):
    """Write a CIFAR-10 of twenty images in binary form, a label before each."""
    images = np.random.default_rng(0).integers(0, 256, (2, 3073), dtype=np.uint8)
    images[:, 0] = [3, 7]
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(images.tobytes() * 2)
    return str(folder)


def test_an_image_cell_runs(tmp_path):
    spec = ImageSpec(path=small_cifar(tmp_path), train_images=16, windows=2)
    shape = {"width": 16, "layers": 1, "heads": 2, "patch": 16}
    cell = tiny(tmp_path / "run", size="vit-4.8m", op="dyt:paper", data=spec, changes=shape)
    run = run_cell(cell)
    assert run.facts["data"]["train_images"] == 16
    assert run.facts["tokens_per_step"] == 2
    assert run.arrays["val_loss"].shape == (2, 2)
    # eight of each of two labels, one added to all ten: 9 of 26
    assert run.plateau["val"] == pytest.approx(np.log(26 / 9))
    assert run.plateau["uniform"] == pytest.approx(np.log(10))
    assert {r.unit for r in run.records if r.metric == "val_loss"} == {"nats/image"}


def test_alphas_are_born_before_the_probe_looks(tmp_path):
    run = run_cell(tiny(tmp_path, alpha=3.0))
    drift = [r.value for r in run.records if r.metric == "alpha_drift"]
    assert drift and max(abs(d) for d in drift) < 0.1
    assert torch.tensor(run.series("alpha_drift_std")[1]).max() < 0.1
