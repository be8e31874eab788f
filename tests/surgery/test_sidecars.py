"""A swapped model is described, built anew and loaded."""

import copy
import json

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.models import GPT2, GPT2Config
from triplepoint.ops import OPS, NormOp
from triplepoint.surgery import (
    ScaledEmbedding,
    SwapPolicy,
    completed,
    rebuild,
    sidecar_of,
    swap_norms,
    unswap_norms,
)


def gpt2():
    return GPT2(GPT2Config(width=8, layers=2, heads=2, vocab=11, context=6))


def shaken(model):
    """Give every parameter another value, as training does."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.rand_like(parameter))
    return model


def through_json(sidecar):
    return json.loads(json.dumps(sidecar))


@pytest.mark.parametrize("name", OPS)
def test_a_model_built_anew_takes_the_state_dict_and_computes_alike(name):
    model, twin, seen = gpt2(), gpt2(), torch.randint(11, (2, 6))
    swap_norms(model, name)
    shaken(model)
    rebuild(twin, through_json(sidecar_of(model)))
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(seen), model(seen))
    assert sidecar_of(twin) == sidecar_of(model)


def test_what_is_described():
    model = gpt2()
    swap_norms(model, "dyt", where="h.0.ln_1")
    assert sidecar_of(model) == {
        "version": 1,
        "sites": [
            {
                "path": "h.0.ln_1",
                "aliases": [],
                "role": "pre_attn",
                "op": "dyt",
                "dim": 8,
                "axis": -1,
                "affine": True,
                "bias": False,
                "settings": {},
            }
        ],
        "scaled_embeddings": ["wte", "wpe"],
    }
    assert sidecar_of(gpt2()) == {"version": 1, "sites": [], "scaled_embeddings": []}


def test_different_ops_at_different_sites_and_constants_survive():
    model, twin, seen = gpt2(), gpt2(), torch.randint(11, (2, 6))
    swap_norms(model, "dyt", where="*.ln_1")
    swap_norms(model, "rmsnorm", where="*.ln_2")
    swap_norms(model, "bhyt", where="ln_f")
    model.ln_f.kappa, model.h[0].ln_2.eps = 3.0, 0.5
    shaken(model)
    rebuild(twin, through_json(sidecar_of(model)))
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(seen), model(seen))


def test_aliases_and_ties_survive():
    def build():
        model = nn.ModuleDict({"a": nn.LayerNorm(4), "c": nn.LayerNorm(4), "d": nn.LayerNorm(4)})
        model["b"] = model["a"]
        model["d"].weight = model["c"].weight
        return model

    model, twin = build(), build()
    swap_norms(model, "dyt")
    sidecar = sidecar_of(model)
    assert [site["aliases"] for site in sidecar["sites"]] == [["b"], [], []]
    rebuild(twin, sidecar)
    assert twin["b"] is twin["a"]
    assert twin["d"].weight is twin["c"].weight
    twin.load_state_dict(model.state_dict())


def test_a_rebuilt_model_can_be_undone():
    model, twin, seen = gpt2(), gpt2(), torch.randint(11, (2, 6))
    before = twin(seen)
    swap_norms(model, "dyt")
    rebuild(twin, sidecar_of(model))
    unswap_norms(twin)
    assert torch.equal(twin(seen), before)


def message_of(call):
    with pytest.raises(ModelError) as caught:
        call()
    return str(caught.value).split("\n")


REMEDY = "Build it from the same configuration, without swapping it."


def test_another_model_is_refused_and_left_as_it_was():
    model = gpt2()
    swap_norms(model, "dyt")
    sidecar = sidecar_of(model)
    wider = GPT2(GPT2Config(width=12, layers=2, heads=2, vocab=11, context=6))
    before = dict(wider.named_modules())
    assert message_of(lambda: rebuild(wider, sidecar)) == [
        "This is not the model that was swapped: at h.0.ln_1 dim is 12, not 8.",
        REMEDY,
    ]
    assert dict(wider.named_modules()) == before
    shallow = GPT2(GPT2Config(width=8, layers=1, heads=2, vocab=11, context=6))
    assert message_of(lambda: rebuild(shallow, sidecar))[0] == (
        "This is not the model that was swapped: at h.1.ln_1 there is no norm."
    )
    assert not any(isinstance(m, NormOp | ScaledEmbedding) for m in shallow.modules())


def test_a_missing_embedding_and_another_version_are_refused():
    sidecar = {"version": 1, "sites": [], "scaled_embeddings": ["wte", "table"]}
    assert message_of(lambda: rebuild(gpt2(), sidecar)) == [
        "This is not the model that was swapped: at table there is no plain embedding.",
        REMEDY,
    ]
    assert message_of(lambda: rebuild(gpt2(), {**sidecar, "version": 2})) == [
        "The description of the swap is of version 2; this is version 1.",
        "Read it with the version of triplepoint that wrote it.",
    ]


def test_an_op_of_ones_own_cannot_be_described():
    class Own(NormOp):
        @classmethod
        def from_facts(cls, facts, **born):
            return cls()

        def forward(self, x):
            return x

    model = nn.Sequential(nn.LayerNorm(4))
    swap_norms(model, Own)
    problem, remedy = message_of(lambda: sidecar_of(model))
    assert problem == "0 is a Own, which triplepoint can't build by name."
    assert remedy.endswith("Unswap that site, or save the whole model with torch.save.")


# --- Hugging Face


def tiny(**changes):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_embd=8, n_head=2, vocab_size=11, n_positions=8, bos_token_id=0, eos_token_id=0,
        **changes,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


def test_weights_that_hugging_face_saved_load_strictly_into_a_rebuilt_model(tmp_path):
    """The head is tied to the table, and safetensors stores no tensor twice."""
    from safetensors.torch import load_file

    model, seen = tiny(), torch.randint(11, (2, 6))
    swap_norms(model, "dyt")
    shaken(model)
    model.save_pretrained(tmp_path)
    twin = tiny()
    rebuild(twin, through_json(sidecar_of(model)))
    state = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in state
    twin.load_state_dict(completed(state, twin), strict=True)
    assert torch.equal(twin(seen).logits, model(seen).logits)
    assert twin.lm_head.weight is twin.transformer.wte.weight


def test_alpha_survives_from_pretrained_of_a_class_that_swaps_as_it_is_built(tmp_path):
    transformers = pytest.importorskip("transformers")
    model, seen = tiny(), torch.randint(11, (2, 6))
    swap_norms(model, "dyt")
    shaken(model)
    model.save_pretrained(tmp_path)
    sidecar = sidecar_of(model)

    class Swapped(transformers.GPT2LMHeadModel):
        def __init__(self, config):
            super().__init__(config)
            rebuild(self, sidecar)

    twin, info = Swapped.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert twin.transformer.h[0].ln_1.alpha.item() == model.transformer.h[0].ln_1.alpha.item()
    assert torch.equal(twin.eval()(seen).logits, model(seen).logits)


def test_a_state_dict_that_is_complete_is_returned_as_it_is():
    model = gpt2()
    state = model.state_dict()
    assert completed(state, model) == state


@pytest.mark.parametrize("policy", [None, SwapPolicy(embedding_scale=False)])
def test_a_copy_of_a_rebuilt_model_is_described_alike(policy):
    model = gpt2()
    swap_norms(model, "derf", policy=policy)
    assert sidecar_of(copy.deepcopy(model)) == sidecar_of(model)
