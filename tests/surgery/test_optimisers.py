"""An optimizer built before the swap is found out; what is decayed after it."""

import pytest
import torch
from torch import nn

from triplepoint.errors import ModelError
from triplepoint.optimisation import decay_filter, decay_groups, decay_names
from triplepoint.surgery import check_optimizer, orphans_of, swap_norms, unswap_norms


def block():
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))


def step(model, optimizer):
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()


MISSES = [
    "SGD does not hold 3 of the model's parameters, the first 1.weight: it would never change them.",
    "Build the optimizer after swap_norms or unswap_norms, from the model's parameters as they are then.",
]
STALE = [
    "SGD was built before a swap: 2 of its parameters have left their model, and those that came it does not hold.",
    MISSES[1],
]


def message_of(call):
    with pytest.raises(ModelError) as caught:
        call()
    return str(caught.value).split("\n")


def test_an_optimizer_from_before_the_swap_refuses_to_step():
    model = block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    swap_norms(model, "dyt")
    assert orphans_of(optimizer, model) == ["1.weight", "1.bias", "1.alpha"]
    assert message_of(lambda: check_optimizer(model, optimizer)) == MISSES
    assert message_of(lambda: step(model, optimizer)) == STALE


def test_an_optimizer_from_after_the_swap_trains_all_and_is_refused_after_undoing_it():
    model = block()
    swap_norms(model, "dyt")
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=0.1)
    check_optimizer(model, optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    step(model, optimizer)
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    unswap_norms(model)
    assert message_of(lambda: step(model, optimizer))[0].startswith("AdamW was built before a swap")


def test_the_optimizer_of_the_original_is_welcome_again_after_undoing():
    model = block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    swap_norms(model, "dyt")
    unswap_norms(model)
    check_optimizer(model, optimizer)
    step(model, optimizer)


def test_optimizers_of_other_models_and_of_frozen_parts_are_not_minded():
    other, model = block(), block()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    swap_norms(model, "dyt")
    step(other, optimizer)
    swap_norms(other, "dyt")
    other.requires_grad_(False)
    assert orphans_of(optimizer, other) == []


def test_what_is_decayed_goes_by_shape_and_not_by_name():
    model = nn.ModuleDict(
        {"wte": nn.Embedding(5, 4), "ln_1": nn.LayerNorm(4), "fc": nn.Linear(4, 4), "two": nn.LayerNorm((2, 4))}
    )  # fmt: skip
    swap_norms(model, "derf")
    assert decay_names(model) == ["wte.weight", "fc.weight"]
    decays = decay_filter(model)
    assert [decays(n) for n in ("ln_1.alpha", "ln_1.shift", "wte.scale", "two.weight")] == [
        False
    ] * 4


def test_tied_names_are_decayed_alike():
    model = nn.ModuleDict({"wte": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["wte"].weight
    decays = decay_filter(model)
    assert decays("head.weight")
    assert decays("wte.weight")
    (group,) = decay_groups(model, 0.1)
    assert len(group["params"]) == 1


def test_hugging_faces_trainer_decays_alpha_by_its_names_and_not_by_ours(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_embd=8, n_head=2, vocab_size=11, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    swap_norms(model, "dyt")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), weight_decay=0.1, report_to=[], use_cpu=True
    )
    trainer = transformers.Trainer(model=model, args=arguments)
    theirs = trainer.get_decay_parameter_names(model)
    assert {"transformer.h.0.ln_1.alpha", "transformer.h.0.ln_1.weight", "transformer.wte.scale"} <= set(theirs)  # fmt: skip

    trainer.get_decay_parameter_names = decay_names
    optimizer = trainer.create_optimizer()
    names = {id(p): n for n, p in model.named_parameters()}
    decayed, others = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]
    assert decayed == decay_names(model)
    assert {n for n in others if not n.endswith(("weight", "bias"))} == {
        "transformer.wte.scale", "transformer.h.0.ln_1.alpha", "transformer.h.0.ln_2.alpha",
        "transformer.ln_f.alpha",
    }  # fmt: skip
    assert not any("ln_" in n for n in decayed)
