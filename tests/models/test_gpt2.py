"""Tests of triplepoint.models: the GPT-2 style model, its sizes and how parameters are counted."""

import math

import pytest
import torch
from tests.reference import gpt2 as twin
from torch import nn

from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.models import GPT2, SIZES, GPT2Config, config_of, parameter_counts

GPT2_SIZES = [size for size in SIZES if size.startswith("gpt2-")]

SMALL = {"width": 8, "layers": 2, "heads": 2, "vocab": 11, "context": 6}


def built(**changes):
    return GPT2(GPT2Config(**{**SMALL, **changes}))


def spread_out(model):
    """Larger weights than at birth, so that nothing is nearly linear."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def on_meta(size):
    with torch.device("meta"):
        return GPT2(config_of(size))


def message_of(**changes):
    with pytest.raises(PlanError) as caught:
        GPT2Config(**{**SMALL, **changes})
    return str(caught.value).split("\n")


# --- what it computes


def test_agrees_with_its_twin():
    model = spread_out(built())
    tokens = torch.randint(11, (3, 6))
    for sequence, found in zip(tokens.tolist(), model(tokens).tolist(), strict=True):
        expected = twin.logits(model.state_dict(), sequence, layers=2, heads=2)
        for position, values in zip(expected, found, strict=True):
            assert values == pytest.approx(position, rel=1e-4, abs=1e-4)


def test_changing_the_suffix_leaves_the_prefixs_logits_exactly_equal():
    model = spread_out(built(context=32))
    first = torch.randint(11, (4, 32))
    second = torch.cat([first[:, :20], (first[:, 20:] + 1) % 11], dim=1)
    a, b = model(first), model(second)
    assert torch.equal(a[:, :20], b[:, :20])
    assert not torch.isclose(a[:, 20:], b[:, 20:]).all(dim=-1).any()


def test_sequences_of_a_batch_do_not_see_each_other():
    model, tokens = spread_out(built()), torch.randint(11, (3, 5))
    torch.testing.assert_close(model(tokens)[1:2], model(tokens[1:2]))


def test_the_same_token_is_told_apart_by_its_position():
    logits = spread_out(built(layers=1))(torch.zeros(1, 4, dtype=torch.long))
    assert not torch.isclose(logits[0, 0], logits[0, 3]).all()


def test_more_tokens_than_the_context_are_refused():
    model = built()
    assert model(torch.zeros(1, 6, dtype=torch.long)).shape == (1, 6, 11)
    with pytest.raises(PlanError) as caught:
        model(torch.zeros(1, 7, dtype=torch.long))
    assert str(caught.value).split("\n") == [
        "7 tokens do not fit the model's context of 6.",
        "Give shorter sequences, or build the model with a longer context.",
    ]


def test_dropout_is_random_in_training_and_absent_in_eval():
    model, tokens = spread_out(built(dropout=0.3)), torch.randint(11, (2, 6))
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    without = built()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model(tokens), without(tokens))


# --- how it is born


def test_the_head_shares_the_tokens_table():
    model = built()
    assert model.lm_head.weight is model.wte.weight
    assert "lm_head.weight" not in dict(model.named_parameters())


def test_weights_are_drawn_with_the_stated_deviations():
    model = built(width=128, layers=8, heads=4, vocab=256, context=64)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            residual = name.endswith("c_proj.weight")
            # residual projections: 0.02 / sqrt(2 L) = 0.02 / 4
            expected = 0.005 if residual else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.03), name
            assert abs(parameter.mean().item()) < 4 * expected / math.sqrt(parameter.numel()), name
        else:
            assert set(parameter.tolist()) == {1.0}, name


def test_there_are_no_biases_unless_asked_for_and_then_they_are_zero():
    assert not any("bias" in name for name, _ in built().named_parameters())
    biases = [p for name, p in built(bias=True).named_parameters() if name.endswith("bias")]
    # two norms and four linear layers in each of two blocks, and the last norm
    assert len(biases) == 2 * (2 + 4) + 1
    assert not any(p.any() for p in biases)


def test_the_seed_decides_the_weights():
    torch.manual_seed(5)
    first = built().state_dict()
    torch.manual_seed(5)
    assert all(torch.equal(first[name], tensor) for name, tensor in built().state_dict().items())


# --- sizes


@pytest.mark.parametrize("size", GPT2_SIZES)
def test_parameters_without_positions_follow_the_formula(size):
    config = config_of(size)
    n_layers, d, vocab = config.layers, config.width, config.vocab
    expected = 12 * n_layers * d**2 + vocab * d + (2 * n_layers + 1) * d
    counts = parameter_counts(on_meta(size))
    assert counts == {
        "params_total": expected + config.context * d,
        "params_no_positions": expected,
        "params_non_embedding": expected - vocab * d,
    }


@pytest.mark.parametrize(
    ("size", "millions"),
    # as the paper prints them; positions would add 0.4 % to the smallest
    [("64m", 63.5), ("124m", 123.6), ("354m", 353.6), ("1.3b", 1311.0), ("3.8b", 3778.6)],
)
def test_the_papers_five_sizes_have_the_papers_parameter_counts(size, millions):
    counts = parameter_counts(on_meta(f"gpt2-{size}"))
    assert counts["params_no_positions"] / 1e6 == pytest.approx(millions, rel=3e-4)


def test_the_smallest_of_the_papers_sizes_exactly():
    # 12 * 12 * 512^2 + 50304 * 512 + 25 * 512, worked by hand
    assert parameter_counts(on_meta("gpt2-64m"))["params_no_positions"] == 63_517_184


def test_sizes_ascend():
    totals = [parameter_counts(on_meta(size))["params_total"] for size in GPT2_SIZES]
    assert totals == sorted(totals)


def test_vocabulary_and_context_of_a_size_may_be_changed():
    config = config_of("gpt2-3m", vocab=300, context=64, dropout=0.1)
    assert (config.vocab, config.context, config.dropout) == (300, 64, 0.1)
    assert (config.width, config.layers, config.heads) == (224, 5, 7)
    assert (config_of("gpt2-3m").vocab, config_of("gpt2-3m").context) == (256, 128)
    assert (config_of("gpt2-64m").vocab, config_of("gpt2-64m").context) == (50304, 512)


def test_an_unknown_size_suggests_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        config_of("gpt2-3M!")
    assert str(caught.value).split("\n") == [
        "There is no size 'gpt2-3M!'.",
        f"Did you mean 'gpt2-3m'? Known: {', '.join(SIZES)}.",
    ]


def test_parameters_of_another_model_are_counted_by_the_same_conventions():
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(10, 4),
            "position_embeddings": nn.Embedding(6, 4),
            "dense": nn.Linear(4, 3),
        }
    )
    assert parameter_counts(model) == {
        "params_total": 40 + 24 + 15,
        "params_no_positions": 40 + 15,
        "params_non_embedding": 15,
    }


# --- shapes that make no sense


def test_heads_that_do_not_divide_the_width_are_refused():
    assert message_of(heads=3) == [
        "3 heads do not divide the width 8.",
        "Choose a width that is a multiple of the number of heads.",
    ]


@pytest.mark.parametrize("name", ["width", "layers", "heads", "vocab", "context"])
def test_shapes_below_one_are_refused(name):
    assert message_of(**{name: 0}) == [
        f"{name} must be at least 1, got 0.",
        f"Give a positive {name}, or choose a named size.",
    ]


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_a_dropout_outside_its_range_is_refused(dropout):
    assert message_of(dropout=dropout) == [
        f"dropout must lie in [0, 1), got {dropout}.",
        "Try 0.1.",
    ]
