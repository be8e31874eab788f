"""Tests of triplepoint.families.wrappers: models that are wrapped by other libraries."""

import pytest
import torch
from torch import nn

from triplepoint.families import find_norms, plain_path, unwrapped


def inner():
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))


class Shell(nn.Module):
    """A wrapper that keeps the model as one child of this name."""

    def __init__(self, model, name):
        super().__init__()
        self.add_module(name, model)


@pytest.mark.parametrize("name", ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"])  # fmt: skip
def test_a_shell_with_one_child_of_a_known_name_is_looked_through(name):
    model = inner()
    wrapped = Shell(Shell(model, name), "module")
    assert unwrapped(wrapped) is model
    assert [site.path for site in find_norms(wrapped)] == ["1"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_compiled_and_data_parallel_models_are_looked_through():
    model = inner()
    assert unwrapped(torch.compile(nn.DataParallel(model))) is model


def test_other_modules_are_not_taken_for_wrappers():
    model = Shell(inner(), "backbone")
    beside = Shell(inner(), "module")
    beside.head = nn.Linear(4, 4)
    assert unwrapped(model) is model
    assert unwrapped(beside) is beside
    assert [site.path for site in find_norms(beside)] == ["module.1"]


def test_wrappers_inside_a_model_stay_in_the_path_but_not_in_role_and_depth():
    model = nn.Module()
    model.layers = nn.ModuleList(
        [Shell(nn.TransformerEncoderLayer(4, 1, 4), "_orig_mod") for _ in "ab"]
    )
    found = [(s.path, s.role, s.depth) for s in find_norms(model)]
    assert found == [
        (f"layers.{i}._orig_mod.norm{k}", role, i)
        for i in (0, 1)
        for k, role in ((1, "post_attn"), (2, "post_mlp"))
    ]
    assert all(model.get_submodule(path) for path, _, _ in found)


def test_plain_paths_keep_names_of_ones_own():
    assert plain_path("a.module._orig_mod.b._fsdp_wrapped_module.c") == "a.module.b.c"


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        return self.q_proj(self.norm(x))


@pytest.mark.slow
def test_distributed_models_are_looked_through(tmp_path):
    model = inner()
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(model)
        assert unwrapped(parallel) is model
        assert [(s.path, s.facts.dim) for s in find_norms(parallel)] == [("1", 4)]
    finally:
        torch.distributed.destroy_process_group()


def peft_model(**config):
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(Attention(), peft.LoraConfig(target_modules=["q_proj"], **config))


# importing peft takes most of the time of this file
def test_a_lora_model_is_looked_through():
    model = peft_model()
    (site,) = find_norms(model)
    assert isinstance(unwrapped(model), Attention)
    assert (site.path, site.kind) == ("norm", "layernorm")


def test_a_norm_that_peft_keeps_in_two_versions_is_refused_once():
    (site,) = find_norms(peft_model(modules_to_save=["norm"]))
    assert (site.path, site.kind, site.reason) == (
        "norm",
        "look-alike",
        "a ModulesToSaveWrapper keeps it in two versions: swap before adding the adapter",
    )


@pytest.mark.filterwarnings("ignore:Unsupported layer type:UserWarning")
def test_a_norm_with_an_adapter_of_its_own_is_refused_once():
    peft = pytest.importorskip("peft")
    config = peft.LNTuningConfig(target_modules=["norm"])
    (site,) = find_norms(peft.get_peft_model(Attention(), config))
    assert (site.path, site.reason) == (
        "norm",
        "a LNTuningLayer keeps it in two versions: swap before adding the adapter",
    )
