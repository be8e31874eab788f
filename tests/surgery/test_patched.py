"""Models whose norms another library replaced before: by a class that is a functools.partial, or in the instance."""

import functools
import types

import pytest
import torch
from torch import nn

from triplepoint.ops import DyT
from triplepoint.surgery import swap_norms, unswap_norms

transformers = pytest.importorskip("transformers")

TOKENS = torch.tensor([[1, 2, 3]])


class FusedRMSNorm(nn.Module):
    """What a library of fused kernels puts in the place of a model's RMSNorm, with settings of its own."""

    def __init__(self, dim, eps=1e-6, *, in_place=True, row_mode=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.variance_epsilon, self.in_place, self.row_mode = eps, in_place, row_mode

    def forward(self, x):
        return (
            self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
        )

    def extra_repr(self):
        return f"eps={self.variance_epsilon}, in_place={self.in_place}, row_mode={self.row_mode}"


def llama():
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=11, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=TOKENS).logits


@pytest.fixture(params=["class", "instance"])
def patched(request, monkeypatch):
    """A Llama whose norms are fused ones: built so, or changed after it was built."""
    if request.param == "class":
        modeling = transformers.models.llama.modeling_llama
        fused = functools.partial(FusedRMSNorm, in_place=False)
        monkeypatch.setattr(modeling, "LlamaRMSNorm", fused)
        return llama()
    model = llama()
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            for name in ("forward", "extra_repr"):
                method = types.MethodType(getattr(FusedRMSNorm, name), module)
                setattr(module, name, method)
    return model


def test_all_norms_of_a_patched_model_are_swapped_and_come_back(patched):
    before = logits(patched)
    report = swap_norms(patched, "dyt:paper")
    assert (len(report.swapped), report.skipped) == (5, [])
    assert not torch.isclose(logits(patched), before).all()
    unswap_norms(patched)
    assert torch.equal(logits(patched), before)


def test_modules_stay_of_a_class_that_initialisation_can_ask_for(patched):
    swap_norms(patched, "dyt:paper")
    for module in patched.modules():
        assert isinstance(module, type(module))
        patched._init_weights(module)
    ops = [m for m in patched.modules() if isinstance(m, DyT)]
    assert [round(op.alpha.item(), 4) for op in ops] == [2.0] * 5


def test_repr_works_after_a_swap_also_where_a_patch_forgot_what_its_own_repr_reads(patched):
    for module in patched.modules():
        vars(module).pop("in_place", None)
    with pytest.raises(AttributeError, match="in_place"):
        repr(patched)
    swap_norms(patched, "dyt")
    assert repr(patched).count("DyT(16") == 3  # torch writes two equal layers as one
