"""Tests of triplepoint.surgery.policies: where alpha starts and which norms stay."""

import copy

import pytest
import torch
from torch import nn

from triplepoint.errors import PlanError, UnknownNameError
from triplepoint.ops import DyT
from triplepoint.surgery import ALPHA_BY_FAMILY, SwapPolicy, swap_norms


def model_of():
    return nn.ModuleDict({name: nn.LayerNorm(4096) for name in ("ln_1", "ln_2", "ln_f")})


def alphas(model):
    return {path: round(op.alpha.item(), 4) for path, op in model.items()}


@pytest.mark.parametrize(
    ("alpha", "expected", "said"),
    [
        (None, [0.8, 0.2, 0.2], None),
        (1.5, [1.5, 1.5, 1.5], "alpha: 1.5 at every site"),
        (3, [3.0, 3.0, 3.0], "alpha: 3 at every site"),
        (
            "llama-13b",
            [0.6, 0.15, 0.15],
            "alpha: 0.6 before attention, 0.15 elsewhere, as llama-13b (arXiv 2503.10622 and its repository)",
        ),
        ({"pre_attn": 0.7}, [0.7, 0.2, 0.2], "alpha: pre_attn 0.7"),
        ({"pre_mlp": 0.3, "ln_2": 0.4, "final": 0.1}, [0.8, 0.4, 0.1], "alpha: pre_mlp 0.3, ln_2 0.4, final 0.1"),
    ],
    ids=["preset", "number", "integer", "family", "role", "path-over-role"],
)  # fmt: skip
def test_alpha_is_born_as_the_policy_says_and_the_report_says_so(alpha, expected, said):
    model = model_of()
    report = swap_norms(model, "dyt", policy=SwapPolicy(alpha=alpha, embedding_scale=False))
    assert list(alphas(model).values()) == expected
    assert report.policies == ([] if said is None else [said])


def test_every_family_names_its_source_and_lies_within_the_published_span():
    for name, rule in ALPHA_BY_FAMILY.items():
        assert rule.source, name
        assert 0.05 <= rule.other <= rule.pre_attn <= 4.0, name


def test_the_table_says_what_the_repositories_say():
    found = {name: (rule.pre_attn, rule.other) for name, rule in ALPHA_BY_FAMILY.items()}
    assert found["llama-7b"] == (0.8, 0.2)
    assert found["llama-70b"] == found["llama-34b"] == (0.2, 0.05)
    assert found["vit"] == found["wav2vec2"] == (0.5, 0.5)


def test_the_final_norm_may_be_kept():
    model = model_of()
    report = swap_norms(
        model, "dyt", policy=SwapPolicy(final_norm="keep", embedding_scale=False), strict=True
    )
    assert isinstance(model["ln_f"], nn.LayerNorm)
    assert isinstance(model["ln_1"], DyT)
    assert [(i.path, i.reason) for i in report.skipped] == [
        ("ln_f", "the final norm, kept by policy")
    ]
    assert report.policies == ["final norm: kept"]


def message_of(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).split("\n")


def test_policies_that_make_no_sense_are_refused():
    assert message_of(PlanError, lambda: SwapPolicy(alpha=0.0)) == [
        "An initial alpha is a positive number, got 0.0.",
        "At 0 an op passes no gradient; the published values lie between 0.05 and 4.",
    ]
    assert message_of(PlanError, lambda: SwapPolicy(final_norm=False)) == [
        "final_norm is 'swap' or 'keep', got False.",
        "To keep other norms as well, use where=.",
    ]
    assert message_of(UnknownNameError, lambda: SwapPolicy(alpha="lama-7b"))[1].startswith(
        "Did you mean 'llama-7b'? Known: vit, "
    )


def test_an_alpha_for_an_op_without_one_is_refused():
    model = model_of()
    problem, remedy = message_of(
        PlanError, lambda: swap_norms(model, "rmsnorm", policy=SwapPolicy(alpha=1.0))
    )
    assert problem == "RMSNorm has no alpha, and the policy sets one."
    assert remedy.startswith("Leave SwapPolicy.alpha at None")
    assert all(isinstance(m, nn.LayerNorm) for m in model.values())


def test_an_alpha_for_a_site_that_there_is_not_is_refused():
    policy = SwapPolicy(alpha={"pre_atn": 1.0, "ln_1": 1.0})
    problem, remedy = message_of(PlanError, lambda: swap_norms(model_of(), "dyt", policy=policy))
    assert problem == "The policy sets alpha at 'pre_atn': no role, and no norm of this model."
    assert remedy.startswith("Roles: pre_attn, ")


def test_the_scale_is_for_embeddings_as_wide_as_the_first():
    """T5 keeps its relative positions, one number per head, in an nn.Embedding."""
    model = nn.Sequential(nn.Embedding(9, 16), nn.Embedding(32, 4), nn.LayerNorm(16))
    report = swap_norms(model, "dyt")
    assert report.policies == [
        "embedding scale: one learnable scalar on 1 embeddings, born as sqrt(16) = 4"
    ]
    assert type(model[1]) is nn.Embedding


def test_the_scale_is_saved_once_and_weights_of_earlier_versions_load():
    model = nn.Sequential(nn.Embedding(9, 16), nn.Embedding(7, 16), nn.LayerNorm(16))
    swap_norms(model, "dyt")
    state = model.state_dict()
    assert [n for n in state if n.endswith("scale")] == ["0.scale"]
    model.load_state_dict({**state, "1.scale": state["0.scale"]})
    assert model[1].scale is model[0].scale


def test_a_copied_scale_is_shared_among_the_copies_embeddings():
    model = nn.Sequential(nn.Embedding(9, 16), nn.Embedding(7, 16), nn.LayerNorm(16))
    swap_norms(model, "dyt")
    twin = copy.deepcopy(model)
    assert twin[1].scale is twin[0].scale
    assert twin[0].scale is not model[0].scale
    twin.bfloat16()
    assert twin[1](torch.tensor([1])).dtype == torch.bfloat16


def test_a_parametrised_embedding_is_not_scaled():
    model = nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4))
    nn.utils.parametrize.register_parametrization(model[0], "weight", nn.Tanh())
    before = model[0](torch.tensor([1]))
    assert swap_norms(model, "dyt").policies[0].startswith("embedding scale: not applied")
    assert torch.equal(model[0](torch.tensor([1])), before)
