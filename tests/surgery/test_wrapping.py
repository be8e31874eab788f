"""Models inside torch.compile, PEFT, DDP and FSDP; torch's own attention."""

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.ops import DyT, NormOp
from triplepoint.surgery import SwapPolicy, swap_norms, unswap_norms


def block():
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))


@pytest.fixture
def process_group(tmp_path):
    """A process group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


class Half(NormOp):
    """An op whose signature no test checks: compilation can't trace such a check."""

    @classmethod
    def from_facts(cls, facts, **born):
        return cls()

    def forward(self, x):
        return x / 2


def compiled(model):
    return torch.compile(model, backend="eager")


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch, on its own tracing
@pytest.mark.parametrize("compile_", [compiled, compiled_in_place])
def test_a_compiled_model_that_ran_already_runs_the_op_after_the_swap(compile_):
    plain, x = block(), torch.randn(2, 4)
    model = compile_(plain)
    before = model(x)
    report = swap_norms(model, Half)
    assert [item.path for item in report.swapped] == ["1"]
    assert torch.equal(model(x), plain._call_impl(x))
    assert not torch.isclose(model(x), before).all()
    unswap_norms(model)
    assert torch.equal(model(x), before)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch, on its own tracing
def test_scaled_embeddings_compile_in_one_graph():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(5, 4), nn.Embedding(5, 4)
            self.norm = nn.LayerNorm(4)

        def forward(self, tokens):
            return self.norm(self.words(tokens) + self.places(tokens))

    model, tokens = Two(), torch.tensor([1, 2])
    swap_norms(model, Half, policy=SwapPolicy(embedding_scale=True))
    whole = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(whole(tokens), model(tokens))


def test_data_parallel_is_looked_through():
    model = nn.DataParallel(block())
    assert [item.path for item in swap_norms(model, "dyt").swapped] == ["1"]
    assert isinstance(model.module[1], DyT)
    assert unswap_norms(model) == 1


REFUSED = "would not be synchronised across processes"


def refusal_of(call, *arguments):
    with pytest.raises(ModelError) as caught:
        call(*arguments)
    return str(caught.value).split("\n")


def test_a_model_under_ddp_is_refused_whatever_is_around_it(process_group):
    model = nn.parallel.DistributedDataParallel(block())
    assert refusal_of(swap_norms, model, "dyt") == [
        "DistributedDataParallel is distributed already (DistributedDataParallel): new parameters would "
        "not be synchronised across processes.",
        "Call swap_norms before wrapping or sharding the model.",
    ]
    assert REFUSED in refusal_of(swap_norms, nn.Sequential(model), "dyt")[0]
    assert REFUSED in refusal_of(unswap_norms, compiled(model))[0]
    assert isinstance(model.module[1], nn.LayerNorm)


def test_a_swapped_model_trains_under_ddp(process_group):
    inner = block()
    swap_norms(inner, "dyt")
    model = nn.parallel.DistributedDataParallel(inner)
    model(torch.randn(2, 4)).sum().backward()
    assert inner[1].alpha.grad is not None


def test_a_sharded_model_is_refused_and_a_swapped_one_can_be_sharded(process_group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    model = fully_shard(block(), mesh=mesh)
    problem, remedy = refusal_of(swap_norms, model, "dyt")
    assert problem.endswith(
        "is distributed already (its parameters are DTensors): new parameters would not be synchronised "
        "across processes."
    )
    assert remedy == "Call swap_norms before wrapping or sharding the model."

    swapped = block()
    swap_norms(swapped, "dyt")
    fully_shard(swapped, mesh=mesh)
    swapped(torch.randn(2, 4)).sum().backward()
    assert swapped[1].alpha.grad is not None


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name
def test_a_peft_model_is_looked_through_and_its_adapters_stay():
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=11, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = peft.get_peft_model(
        transformers.LlamaForCausalLM(config), peft.LoraConfig(target_modules=["q_proj"])
    )
    tokens = torch.tensor([[1, 2, 3]])
    before = model(input_ids=tokens).logits
    report = swap_norms(model, "dyt:paper")
    assert [item.path for item in report.swapped] == [
        "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm",
    ]  # fmt: skip
    assert not torch.isclose(model(input_ids=tokens).logits, before).all()
    model(input_ids=tokens).logits.sum().backward()
    assert any("lora" in n and p.grad is not None for n, p in model.named_parameters())
    unswap_norms(model)
    assert torch.equal(model(input_ids=tokens).logits, before)


def test_torchs_attention_is_left_alone():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    attention = layer.self_attn
    swap_norms(layer, "dyt")
    assert layer.self_attn is attention
    assert not any(isinstance(m, NormOp) for m in attention.modules())


def test_what_accelerate_dispatched_is_kept_with_the_reason():
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4))
    add_hook_to_module(model[0], AlignDevicesHook(execution_device="cpu"))
    report = swap_norms(model, "dyt")
    assert [(i.path, i.reason) for i in report.skipped] == [
        ("0", "accelerate hooked it to a device or to offloaded weights; swap before")
    ]
