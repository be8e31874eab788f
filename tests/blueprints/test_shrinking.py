"""Tests of narrower forms of a model: triplepoint.blueprints.shrinking and .proportions."""

import dataclasses
import math
import sys

import pytest

from triplepoint.blueprints import AS_IT_IS, Shape, blueprint_of, shrink
from triplepoint.blueprints.proportions import Proportions
from triplepoint.errors import PlanError
from triplepoint.models import parameter_counts

OWN = """
from torch import nn

def own(vocab=16, d_model=64, n_heads=4, d_ff=256, layers=2):
    blocks = [nn.TransformerEncoderLayer(d_model, n_heads, d_ff) for _ in range(layers)]
    return nn.Sequential(nn.Embedding(vocab, d_model), *blocks, nn.LayerNorm(d_model))

def fixed(vocab=16, size=64):
    return nn.Embedding(vocab, size)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The name of a module of one's own, new in every test."""
    name = f"narrow_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("width", "heads", "head_size", "kv"),
    [
        (256, 4, 64, 1),  # half the heads of the same size, still four queries to a key
        (192, 3, 64, 1),  # 2/3 of a key/value head: one
        (96, 2, 48, 1),  # one of 96 is 1.5 times 64, two of 48 are 1.33 times less
        (72, 1, 72, 1),
    ],
)
def test_heads_are_fewer_rather_than_narrower(width, heads, head_size, kv):
    names = {role: role for role in ("width", "heads", "head_size", "kv_heads")}
    found = Proportions(
        width=512, heads=8, head_size=64, kv_heads=2, names=names, others={"hidden": 1365}
    ).at(width)
    assert found == {
        "width": width, "heads": heads, "head_size": head_size, "kv_heads": kv,
        "hidden": round(1365 * width / 512),
    }  # fmt: skip


def test_heads_wider_than_their_share_of_the_width_stay_so():
    # 4 heads of 256 in a width of 512, as in Gemma
    names = {role: role for role in ("width", "heads", "head_size")}
    found = Proportions(width=512, heads=4, head_size=256, names=names).at(128)
    assert found == {"width": 128, "heads": 1, "head_size": 256}


@pytest.mark.parametrize("size", ["gpt2-0.8m", "llama-0.8m", "vit-0.8m"])
@pytest.mark.parametrize(("k", "width"), [(4, 64), (16, 32)])
def test_half_the_width_is_a_quarter_of_the_weights(size, k, width):
    small = shrink(blueprint_of(size), k)
    assert small.width == width
    assert small.k == pytest.approx(k, rel=0.04)  # gains and patches go with the width itself
    model = small.blueprint.build()
    assert parameter_counts(model) == small.params
    assert parameter_counts(blueprint_of(size).build()) == small.original


@pytest.mark.parametrize("k", [2, 3, 4, 5.5, 9, 16, 30])
def test_no_other_width_comes_nearer(k):
    blueprint = blueprint_of("gpt2-0.4m")
    small = shrink(blueprint, k)
    assert small.width % 32 == 0 or small.width % 8 == 0
    reached = {
        w: small.original["params_non_embedding"]
        / parameter_counts(blueprint.changed(blueprint.proportions().at(w)).build())["params_non_embedding"]
        for w in range(16, 96, 8)
    }  # fmt: skip
    nearest = min(abs(math.log(one / k)) for one in reached.values())
    near_enough = small.width % 32 == 0 and abs(math.log(small.k / k)) <= math.log(1.15)
    assert near_enough or abs(math.log(small.k / k)) == pytest.approx(nearest)


def test_what_was_changed_before_stays_changed():
    blueprint = blueprint_of("llama-0.8m").changed({"ffn": "gelu", "hidden": 400})
    small = shrink(blueprint, 4, Shape(vocab=100))
    assert small.changes == {
        "ffn": "gelu", "hidden": 200, "width": 64, "heads": 2, "kv_heads": 1,
    }  # fmt: skip
    assert small.blueprint.build(Shape(vocab=100)).embed_tokens.num_embeddings == 100


def test_widths_that_the_model_refuses_are_passed_over():
    # differential attention takes heads in pairs: one head of 16 will not do
    small = shrink(blueprint_of("gpt2-0.1m").changed({"attention": "diff_v1"}), 4)
    assert small.changes["heads"] == 2
    with pytest.raises(PlanError, match="cannot be had at 1/16 of its size"):
        shrink(blueprint_of("gpt2-0.1m").changed({"attention": "diff_v1"}), 16)


def test_a_configuration_of_transformers_keeps_its_depth_and_heads_size(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.LlamaConfig(
        hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=256, max_position_embeddings=32, tie_word_embeddings=True,
    ).save_pretrained(tmp_path)  # fmt: skip
    blueprint = blueprint_of(tmp_path)
    small = shrink(blueprint, 4)
    assert small.changes == {
        "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "num_key_value_heads": 2,
        "intermediate_size": 176,
    }  # fmt: skip
    assert small.k == pytest.approx(4, rel=0.01)
    model = small.blueprint.build(Shape(vocab=256, context=32))
    assert (len(model.model.layers), model.config.hidden_size) == (3, 64)
    assert small.blueprint.identity != blueprint.identity
    assert small.blueprint.trained() is None
    with pytest.raises(PlanError, match="has no depth to choose.\nLeave it out"):
        blueprint.changed({"depth": 2}).build()


def test_names_of_older_configurations_are_understood(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=256).save_pretrained(
        tmp_path
    )
    small = shrink(blueprint_of(tmp_path), 4)
    assert small.changes == {"hidden_size": 32, "num_attention_heads": 2}
    assert small.blueprint.build().transformer.wte.embedding_dim == 32


def test_a_configuration_without_a_width_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.MambaConfig(num_hidden_layers=1, hidden_size=32, vocab_size=256).save_pretrained(
        tmp_path
    )
    with pytest.raises(
        PlanError, match="does not say hidden_size and num_attention_heads.*\nGive the config.json"
    ):
        shrink(blueprint_of(tmp_path), 4)


def test_a_function_is_called_with_a_smaller_width(own):
    small = shrink(blueprint_of(f"{own}:own"), 4)
    assert small.changes == {"d_model": 32, "n_heads": 2, "d_ff": 128}
    model = small.blueprint.build(Shape(vocab=20))
    assert (model[0].num_embeddings, model[0].embedding_dim, len(model)) == (20, 32, 4)


def test_a_function_without_a_width_is_told_to_take_one(own):
    with pytest.raises(
        PlanError, match="takes no keyword for its width.*\nLet it take one of width, d_model"
    ):
        shrink(blueprint_of(f"{own}:fixed"), 4)
    with pytest.raises(PlanError, match="takes no keyword depth.\nLeave it out"):
        blueprint_of(f"{own}:fixed").changed({"depth": 3})


@pytest.mark.parametrize("k", [1, 0.5, math.inf])
def test_a_miniature_is_smaller(k):
    with pytest.raises(PlanError, match="k must be above 1, got .*\nTry 4 or 16"):
        shrink(blueprint_of("gpt2-0.1m"), k)


def test_what_is_narrower_than_sixteen_features_is_refused():
    with pytest.raises(
        PlanError,
        match=r"at 1/64 of its size: of widths from 16 the nearest is 16, at 1/15.8.\nTry a k between 1.31 and 15.8",
    ):
        shrink(blueprint_of("gpt2-0.1m"), 64)
    narrow = blueprint_of("gpt2-0.1m").changed({"width": 16})
    with pytest.raises(PlanError, match="no narrower form of at least 16 features.\nLeave"):
        shrink(narrow, 2)


def test_other_models_say_what_to_give_instead():
    @dataclasses.dataclass(frozen=True)
    class Other(type(blueprint_of("gpt2-0.1m")).__mro__[1]):
        name: str = "other"
        identity = None

        def build(self, shape=AS_IT_IS): ...

        def told(self): ...

    with pytest.raises(PlanError, match="The width of other cannot be chosen.*\nGive a named size"):
        shrink(Other(), 4)
    with pytest.raises(PlanError, match="it has no width to choose.\nChange its own"):
        Other().changed({"width": 8})
