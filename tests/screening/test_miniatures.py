"""Tests of plans trained in miniature: triplepoint.screening.miniatures."""

import dataclasses
import json

import numpy as np
import pytest

from triplepoint.errors import PlanError
from triplepoint.recipes import Recipe
from triplepoint.runs import read_arrays, read_json
from triplepoint.screening import Plan
from triplepoint.screening.miniatures import miniatures_of, whole_recipe
from triplepoint.sweeps import DataSpec

PLAN = Plan(steps=8, unique_tokens=4000, lr=3e-3, warmup=2, batch=8)


@pytest.fixture
def text(tmp_path):
    """A text file that is soon learnt by heart."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{i} is {i * i % 97}. " for i in range(1500)))
    return DataSpec(path=str(path), context=16, windows=8)


def run(text, out, *, steps=None, **changes):
    watch = (lambda event, trials: steps.append(event.kind)) if steps is not None else (lambda e, t: None)  # fmt: skip
    settings = {"data": text, "candidates": ["dyt:paper"], "plan": PLAN, "watch": watch, **changes}
    return miniatures_of("gpt2-0.1m", out=out, **settings).train()


def test_the_whole_plan_is_trained_at_each_size_smallest_first(text, tmp_path):
    evidence = run(text, tmp_path / "out")
    assert [m.width for m in evidence.miniatures] == [16, 32]
    folders = sorted(p.relative_to(tmp_path / "out") for p in (tmp_path / "out").rglob("seed-0"))
    assert [str(f) for f in folders] == [
        f"miniatures/{k}/arms/{arm}/lr-0.003/seed-0"
        for k in ("k15.8", "k3.99")
        for arm in ("dyt-paper", "layernorm")
    ]
    for miniature, tokens_per_step in zip(evidence.miniatures, (8, 32), strict=True):
        folder = next((tmp_path / "out").glob(f"miniatures/k{miniature.k:.3g}/arms/layernorm/*/*"))
        facts = read_json(folder / "manifest.json")
        assert facts["last_step"] == 8
        assert facts["tokens_per_step"] == tokens_per_step
        assert facts["data"]["train_tokens"] == round(4000 / miniature.k)
        assert facts["model"]["params_non_embedding"] * miniature.k == pytest.approx(98_624)
        # the share of a full arm: two arms, P and tokens k times fewer; P here without positions
        assert miniature.share == pytest.approx(
            2 * facts["model"]["params_no_positions"] * tokens_per_step / (115_008 * 128)
        )


def test_the_differences_are_those_of_the_runs(text, tmp_path):
    evidence = run(text, tmp_path / "out", ks=(4,))
    (miniature,) = evidence.miniatures
    val = {
        arm: read_arrays(
            next((tmp_path / "out").glob(f"miniatures/k3.99/arms/{arm}/*/*/arrays.npz"))
        )["val_loss"]
        for arm in ("layernorm", "dyt-paper")
    }
    ours, theirs = (val[arm].mean(axis=1).astype(float) for arm in ("dyt-paper", "layernorm"))
    truth = miniature.candidates["dyt:paper"].truth
    assert truth["fixed_step"].delta_rel == pytest.approx(ours[-1] / theirs[-1] - 1, abs=1e-6)
    assert truth["best_checkpoint"].delta_rel == pytest.approx(
        ours.min() / theirs.min() - 1, abs=1e-6
    )
    assert miniature.val == pytest.approx(theirs)
    # warm-up to the peak in two steps, then the plan's cosine
    recipe = Recipe(steps=8, lr=3e-3, warmup=2)
    assert miniature.clock == pytest.approx([recipe.s1_at(s) / recipe.s1_at(8) for s in range(1, 9)])  # fmt: skip
    assert evidence.extrapolated("dyt:paper", "fixed_step") is None  # one size has no line


def test_a_configuration_of_transformers_is_shrunk_and_trained(text, tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.LlamaConfig(
        hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4, vocab_size=256,
        max_position_embeddings=32, tie_word_embeddings=True,
    ).save_pretrained(tmp_path / "llama")  # fmt: skip
    few = dataclasses.replace(PLAN, steps=2)
    evidence = miniatures_of(
        str(tmp_path / "llama"), data=text, candidates=["dyt"], plan=few, out=tmp_path / "out", ks=(4,)
    ).train()  # fmt: skip
    facts = read_json(next((tmp_path / "out").glob("miniatures/*/arms/rmsnorm/*/*/manifest.json")))
    assert facts["asked"]["changes"]["hidden_size"] == evidence.miniatures[0].width == 32
    # two blocks of four 32 x 32 and three 32 x 88 matrices, and five gains
    assert facts["model"]["params_non_embedding"] == 2 * (4 * 32 * 32 + 3 * 32 * 88) + 5 * 32
    assert set(evidence.miniatures[0].candidates) == {"dyt"}


def test_what_is_finished_is_read(text, tmp_path):
    first, steps = run(text, tmp_path / "out", ks=(16,)), []
    again = run(text, tmp_path / "out", ks=(16,), steps=steps)
    assert steps == ["done", "done"]
    assert np.array_equal(again.miniatures[0].val, first.miniatures[0].val)
    json.dumps(again.to_dict())
    assert again.miniatures[0].seconds > 0


def test_a_plan_is_evaluated_forty_times():
    recipe = whole_recipe(Plan(steps=2000, unique_tokens=1, warmup=100), seed=3)
    assert (recipe.evaluations[0], len(recipe.evaluations), recipe.seed) == (50, 40, 3)
    assert recipe.average_steps == ()
    assert (recipe.schedule, recipe.horizon, recipe.warmup) == ("cosine", None, 100)


def test_settings_out_of_range_are_refused_before_anything_is_trained(text, tmp_path):
    for wrong in ({"ks": ()}, {"seeds": 0}, {"workers": 0}):
        with pytest.raises(PlanError, match="need a size, a seed and a worker.*\nTry ks="):
            run(text, tmp_path / "out", **wrong)
    with pytest.raises(PlanError, match="cannot be had at 1/100 of its size"):
        run(text, tmp_path / "out", ks=(100, 4))
    assert not (tmp_path / "out").exists()
