"""Tests of the Llama style model, and of its named sizes."""

import dataclasses
import math

import pytest
import torch
from tests.reference import llama as twin
from torch import nn

from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.families import find_norms
from triplepoint.models import SIZES, Llama, LlamaConfig, config_of, model_of, parameter_counts
from triplepoint.models._shapes import hidden_width
from triplepoint.ops import OPS
from triplepoint.surgery import roles, swap_norms, unswap_norms

SMALL = {"width": 8, "layers": 2, "heads": 2, "vocab": 11, "context": 6}
LLAMA_SIZES = [size for size in SIZES if size.startswith("llama-")]
ABLATIONS = [
    {},
    {"kv_heads": 1},
    {"ffn": "gelu"},
    {"positions": "learned"},
    {"tied": False},
    {"attention": "diff_v2", "kv_heads": 1},
]


def built(**changes):
    return Llama(LlamaConfig(**{**SMALL, **changes}))


def spread_out(model):
    """Larger weights than at birth, so that nothing is nearly linear."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def on_meta(config):
    with torch.device("meta"):
        return model_of(config)


def message_of(error=PlanError, **changes):
    with pytest.raises(error) as caught:
        LlamaConfig(**{**SMALL, **changes})
    return str(caught.value).split("\n")


# --- what it computes


@pytest.mark.parametrize("changes", ABLATIONS, ids=str)
def test_agrees_with_its_twin(changes):
    model = spread_out(built(**changes))
    tokens = torch.randint(11, (2, 6))
    for sequence, found in zip(tokens.tolist(), model(tokens), strict=True):
        expected = torch.tensor(twin.logits(model.state_dict(), sequence, model.config))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_agrees_with_transformers_on_the_same_weights(kv_heads, tied):
    transformers = pytest.importorskip("transformers")
    config = LlamaConfig(
        width=32, layers=2, heads=4, kv_heads=kv_heads, vocab=19, context=16, tied=tied
    )
    ours = spread_out(Llama(config))
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=kv_heads,
            vocab_size=19, intermediate_size=config.ffn_width, max_position_embeddings=16,
            rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=tied,
        )
    ).eval()  # fmt: skip
    weights = {
        n if n.startswith("lm_head") else f"model.{n}": p for n, p in ours.state_dict().items()
    }
    theirs.load_state_dict(weights)
    tokens = torch.randint(19, (2, 9))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-4)


def test_rotary_positions_know_no_longest_sequence_and_learned_ones_do():
    tokens = torch.zeros(1, 7, dtype=torch.long)
    assert built()(tokens).shape == (1, 7, 11)
    with pytest.raises(PlanError) as caught:
        built(positions="learned")(tokens)
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


def test_the_head_is_tied_unless_asked_otherwise():
    model, free = built(), built(tied=False)
    assert model.lm_head.weight is model.embed_tokens.weight
    assert free.lm_head.weight is not free.embed_tokens.weight
    difference = parameter_counts(free)["params_total"] - parameter_counts(model)["params_total"]
    assert difference == 11 * 8


def test_weights_are_drawn_with_the_stated_deviations():
    for name, parameter in built(width=128, layers=8, heads=4, vocab=256).named_parameters():
        if parameter.ndim < 2:
            assert set(parameter.tolist()) == {1.0}, name
            continue
        # residual projections: 0.02 / sqrt(2 L) = 0.02 / 4
        expected = 0.005 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        assert parameter.std().item() == pytest.approx(expected, rel=0.03), name


# --- sizes and ablations


@pytest.mark.parametrize("size", LLAMA_SIZES)
def test_a_size_has_the_shape_and_the_weights_of_its_gpt2_namesake(size):
    config, other = config_of(size), config_of(size.replace("llama", "gpt2"))
    for name in ("width", "layers", "heads", "vocab", "context"):
        assert getattr(config, name) == getattr(other, name), name
    counts, others = (parameter_counts(on_meta(c)) for c in (config, other))
    # half a hidden unit of 3 width weights per block, where widths do not divide
    rounding = 1.5 * config.width * config.layers
    assert abs(counts["params_no_positions"] - others["params_no_positions"]) <= rounding
    assert counts["params_total"] == counts["params_no_positions"]  # rotary positions have none


def test_the_published_64m_size_exactly():
    # 12 * 12 * 512^2 + 50304 * 512 + 25 * 512: with half the key heads SwiGLU is 3 * 512 wide
    assert parameter_counts(on_meta(config_of("llama-64m")))["params_no_positions"] == 63_517_184
    assert config_of("llama-64m").ffn_width == 1536


@pytest.mark.parametrize(
    ("size", "kv_heads"),
    [("0.1m", 2), ("0.4m", 1), ("0.8m", 2), ("3m", 1), ("10m", 3), ("64m", 4), ("124m", 6)],
)
def test_sizes_group_their_queries(size, kv_heads):
    assert config_of(f"llama-{size}").kv_heads == kv_heads


@pytest.mark.parametrize(
    "changes",
    [{"ffn": "gelu"}, {"kv_heads": 4}, {"positions": "learned"}, {"attention": "gated"}],
    ids=str,
)
def test_ablations_keep_the_weights_of_a_block(changes):
    base = config_of("llama-0.8m")
    config = dataclasses.replace(base, **changes)
    found, expected = (parameter_counts(on_meta(c))["params_no_positions"] for c in (config, base))
    assert abs(found - expected) <= 1.5 * base.width * base.layers
    if config.positions == "learned":
        assert (
            parameter_counts(on_meta(config))["params_total"] == found + base.context * base.width
        )


def test_feed_forward_widths_by_hand():
    shape = {"width": 96, "layers": 1, "heads": 3}
    widths = [
        LlamaConfig(**shape).ffn_width,  # 8 * 96^2 / (3 * 96)
        LlamaConfig(**shape, ffn="gelu").ffn_width,  # 8 * 96^2 / (2 * 96)
        LlamaConfig(**shape, kv_heads=1).ffn_width,  # (12 - 8/3) * 96 / 3, rounded
        LlamaConfig(**shape, hidden=100).ffn_width,
    ]
    assert widths == [256, 384, 299, 100]


# --- norms


def test_every_norm_is_found_with_role_and_depth():
    found = [(s.path, s.kind, s.role, s.depth) for s in find_norms(built())]
    assert found == [
        ("layers.0.input_layernorm", "rmsnorm", "pre_attn", 0),
        ("layers.0.post_attention_layernorm", "rmsnorm", "pre_mlp", 0),
        ("layers.1.input_layernorm", "rmsnorm", "pre_attn", 1),
        ("layers.1.post_attention_layernorm", "rmsnorm", "pre_mlp", 1),
        ("norm", "rmsnorm", "final", None),
    ]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("where", [None, roles("pre_attn"), roles("pre_mlp"), roles("final")])
def test_any_op_stands_at_every_site_and_can_be_taken_back(op, where):
    model, tokens = spread_out(built()), torch.randint(11, (2, 6))
    before = model(tokens)
    report = swap_norms(model, op, where=where)
    assert len(report.swapped) == (
        5 if where is None else 1 if report.swapped[0].role == "final" else 2
    )
    model(tokens).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    unswap_norms(model)
    assert torch.equal(model(tokens), before)


# --- shapes that make no sense


def test_odd_heads_cannot_be_rotated():
    assert message_of(width=6) == [
        "Rotary positions need heads of even width, got 3.",
        "Choose a width that is an even multiple of the number of heads.",
    ]
    assert LlamaConfig(**{**SMALL, "width": 6, "positions": "learned"}).width == 6


@pytest.mark.parametrize(
    ("field", "given", "said"),
    [
        ("ffn", "swigl", "There is no feed-forward layer 'swigl'."),
        ("positions", "rop", "There is no kind of positions 'rop'."),
        ("attention", "dif_v1", "There is no attention 'dif_v1'."),
    ],
)
def test_unknown_parts_are_refused_with_the_nearest(field, given, said):
    first, second = message_of(UnknownNameError, **{field: given})
    assert first == said
    assert second.startswith("Did you mean")


def test_numbers_out_of_range_are_refused():
    assert message_of(hidden=0)[0] == "hidden must be at least 1, got 0."
    assert message_of(kv_heads=3)[0] == "3 key/value heads do not divide 2 heads."
    assert message_of(layers=0)[0] == "layers must be at least 1, got 0."
    assert message_of(heads=3)[0] == "3 heads do not divide the width 8."
    assert message_of(dropout=1.0)[0] == "dropout must lie in [0, 1), got 1.0."


def test_an_attention_that_leaves_nothing_for_the_feed_forward_layer_is_refused():
    with pytest.raises(PlanError) as caught:
        hidden_width(1, attention_weights=12, matrices=2)
    assert str(caught.value).split("\n") == [
        "An attention of 12 weights leaves nothing of the 12 of a block.",
        "Choose a larger width, or fewer heads.",
    ]


def test_gate_scale_multiplies_the_gates_initial_weights_alone():
    shape = {"width": 8, "layers": 2, "heads": 2}
    torch.manual_seed(0)
    plain = Llama(LlamaConfig(**shape)).state_dict()
    torch.manual_seed(0)
    scaled = Llama(LlamaConfig(**shape, gate_scale=4.0)).state_dict()
    for name, weight in plain.items():
        factor = 4.0 if name.endswith("gate_proj.weight") else 1.0
        assert torch.equal(scaled[name], factor * weight), name


@pytest.mark.parametrize(
    ("ffn", "scale"),
    [("gelu", 2.0), ("swiglu", 0.0), ("swiglu", -1.0), ("swiglu", math.nan), ("swiglu", math.inf)],
)
def test_a_gate_scale_without_a_gate_or_out_of_range_is_refused(ffn, scale):
    with pytest.raises(
        PlanError, match=r"gate_scale is .* with ffn=.*\nGive a positive number, with swiglu only"
    ):
        LlamaConfig(width=8, layers=1, heads=2, ffn=ffn, gate_scale=scale)
