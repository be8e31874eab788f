"""Tests of what MODEL means: triplepoint.blueprints."""

import dataclasses
import sys

import pytest
import torch
from torch import nn

from triplepoint.blueprints import Shape, blueprint_of
from triplepoint.blueprints.sizes import config_for
from triplepoint.errors import ModelError, PlanError, UnknownNameError
from triplepoint.models import GPT2
from triplepoint.ops import DyT
from triplepoint.recipes import Recipe
from triplepoint.sweeps import Cell, DataSpec, build_model, identity_of_cell, run_cell

OWN = """
from torch import nn

class Own(nn.Module):
    def __init__(self, vocab=256, dropout=0.0):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(vocab, 8), nn.LayerNorm(8), nn.Linear(8, vocab)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens):
        return self.head(self.drop(self.norm(self.embed(tokens))))

def plain():
    return Own(11)

def anything(**given):
    model = Own(given["vocab"], given["dropout"])
    model.given = given
    return model

def broken():
    raise ValueError("no such layer")

def number():
    return 7

def leaves():
    raise SystemExit(0)

def talks():
    raise ValueError("one line\\nanother")

def unborn():
    import torch
    with torch.device("meta"):
        return Own()

built = Own()

def same():
    return built
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module of one's own, from which commands are given; its name is new in every test."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield name
    sys.modules.pop(name, None)


def test_a_callable_gets_the_keywords_that_it_takes(own):
    model = blueprint_of(f"{own}:Own").build(Shape(vocab=5, context=3, dropout=0.25))
    assert (model.embed.num_embeddings, model.drop.p) == (5, 0.25)
    assert blueprint_of(f"{own}:plain").build(Shape(vocab=5, context=3)).embed.num_embeddings == 11
    given = blueprint_of(f"{own}:anything").build(Shape(vocab=5, context=3)).given
    assert given == {"vocab": 5, "context": 3, "dropout": 0.0}


def test_a_callable_is_another_model_once_its_source_changes(own, tmp_path):
    cell = Cell(
        path=tmp_path / "x",
        arm="dyt",
        op="dyt",
        size=f"{own}:Own",
        data=DataSpec(),
        recipe=Recipe(steps=1),
    )
    before = identity_of_cell(cell, "sum")
    assert identity_of_cell(cell, "sum") == before
    with (tmp_path / f"{own}.py").open("a") as file:
        file.write("# another\n")
    assert identity_of_cell(cell, "sum") != before


def test_a_model_of_ones_own_is_trained_in_a_cell(own, tmp_path):
    spec = DataSpec(train_tokens=2000, context=16, windows=4)
    recipe = Recipe(steps=2, batch=2, warmup=1, eval_steps=(2,), sample_every=0)
    cell = Cell(
        path=tmp_path / "run",
        arm="dyt",
        op="dyt:paper",
        size=f"{own}:Own",
        data=spec,
        recipe=recipe,
    )
    run = run_cell(cell)
    assert run.outcome == "finished"
    assert run.arrays["val_loss"].shape == (1, 4)
    model = blueprint_of(tmp_path / "run").trained()
    assert isinstance(model.norm, DyT) and not model.training
    assert blueprint_of(tmp_path / "run").architecture.name == f"{own}:Own"


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("own:Nope", "cannot be imported: AttributeError", "MODEL is module:callable"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError", "that Python finds from this folder"),
        ("own:broken", "failed: ValueError: no such layer", "no other arguments than vocab, context and dropout"),
        ("own:leaves", "failed: SystemExit: 0", "no other arguments than vocab, context and dropout"),
        ("own:talks", "failed: ValueError: one line", "no other arguments than vocab, context and dropout"),
        ("own:unborn", "returned a model on the meta device, where it has no values", "Build it on the CPU"),
        ("own:number", "returned a int, not an nn.Module", "Return the model"),
        ("own:built", "is a Own, nothing that builds a model", "returns a new nn.Module each time"),
    ],
)  # fmt: skip
def test_a_callable_that_builds_no_model_says_why(own, name, problem, remedy):
    with pytest.raises(ModelError) as raised:
        blueprint_of(name.replace("own:", f"{own}:")).build()
    first, second = str(raised.value).split("\n", 1)
    assert problem in first and remedy in second


def test_a_module_that_ends_the_program_cannot_be_imported(own, tmp_path):
    (tmp_path / f"{own}.py").write_text("raise SystemExit(0)")
    with pytest.raises(ModelError, match="cannot be imported: SystemExit: 0\nMODEL is module"):
        blueprint_of(f"{own}:Own").build()


def test_one_model_cannot_be_built_twice(own):
    """Both arms of a comparison would train it, one after the other."""
    blueprint_of(f"{own}:same").build()
    with pytest.raises(ModelError, match="returned the same model again.\nReturn a new one"):
        blueprint_of(f"{own}:same").build()


def test_a_dropout_that_the_model_does_not_take_is_refused(own):
    with pytest.raises(
        PlanError, match="dropout 0.1 cannot be set in .*:plain, which has its own.\nLet it take"
    ):
        blueprint_of(f"{own}:plain").build(Shape(dropout=0.1))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("gpt2-0.5m", UnknownNameError, "There is no model 'gpt2-0.5m'.\nDid you mean 'gpt2-"),
        ("", UnknownNameError, "There is no model ''"),
        ("nowhere/model", ModelError, "There is no folder nowhere/model.\nMODEL is a named size"),
        ("weights.bin", ModelError, "weights.bin is a file, and nothing in it says of which model"),
        ("empty", ModelError, "holds no model: neither config.json, nor triplepoint.json, nor a run's manifest.json"),
    ],
)  # fmt: skip
def test_what_is_no_model_says_what_a_model_is(tmp_path, monkeypatch, name, kind, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights.bin").write_bytes(b"\0")
    with pytest.raises(kind) as raised:
        blueprint_of(name)
    assert message in str(raised.value)
    assert "module:callable" in str(raised.value)


def test_a_run_s_architecture_has_its_changes_vocabulary_and_context(tmp_path):
    spec = DataSpec(train_tokens=2000, context=16, windows=4)
    recipe = Recipe(steps=1, batch=2, warmup=1, eval_steps=(1,), sample_every=0)
    cell = Cell(
        path=tmp_path,
        arm="dyt",
        op="dyt:paper",
        size="gpt2-0.1m",
        data=spec,
        recipe=recipe,
        changes={"attention": "gated"},
    )
    run_cell(cell)
    blueprint = blueprint_of(tmp_path)
    model = blueprint.build()
    assert (model.config.attention, model.config.context, model.config.vocab) == ("gated", 16, 256)
    assert blueprint.context == 16
    assert not any(isinstance(m, DyT) for m in model.modules())
    best = blueprint.trained()
    assert sum(isinstance(m, DyT) for m in best.modules()) == 5


def test_the_folder_of_a_screen_of_an_object_cannot_be_built(tmp_path):
    (tmp_path / "manifest.json").write_text('{"model": {"name": "module"}}')
    with pytest.raises(
        ModelError,
        match="made from a model object, which a folder cannot build again.\nGive the model as module:callable",
    ):
        blueprint_of(tmp_path).build()


def test_a_size_takes_the_shape_of_its_data_and_changes():
    config = config_for("llama-0.1m", Shape(vocab=11, context=9, dropout=0.5), {"ffn": "gelu"})
    assert (config.vocab, config.context, config.dropout, config.ffn) == (11, 9, 0.5, "gelu")
    size = dataclasses.replace(blueprint_of("gpt2-0.1m"), changes={"heads": 2})
    model = size.build()
    assert isinstance(model, GPT2) and model.config.heads == 2


def test_a_function_is_changed_by_the_keywords_that_it_takes(own):
    assert build_model(f"{own}:Own", op=None, changes={"vocab": 7}).embed.num_embeddings == 7
    with pytest.raises(PlanError, match="takes no keyword heads.\nLeave it out"):
        build_model(f"{own}:Own", op=None, changes={"heads": 2})


def test_building_depends_on_the_random_state_alone():
    built = []
    for _ in range(2):
        torch.manual_seed(3)
        built.append(blueprint_of("llama-0.1m").build().state_dict())
    assert all(torch.equal(built[0][k], v) for k, v in built[1].items())
    assert isinstance(blueprint_of("vit-0.1m").build(Shape(image=(8, 1, 10))), nn.Module)
