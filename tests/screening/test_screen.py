"""Tests of triplepoint.screening.screen: the verdicts that it must give."""

import json
import math

import pytest
import torch
from tests.tiny import CONTEXT, build, corpus
from torch import nn

import triplepoint as tp
from triplepoint.errors import (
    DataError,
    ModelError,
    NonFiniteLossError,
    PlanError,
    RunFolderError,
)
from triplepoint.surgery import SwapPolicy, swap_norms

TEXT = corpus()
VALIDATION = TEXT.windows("validation", context=CONTEXT, count=32)


def batches(seed):
    return TEXT.batches(seed, batch=8, context=CONTEXT)


def plan(steps, **changes):
    return tp.Plan(**{"steps": steps, "lr": 3e-3, "warmup": 10, "unique_tokens": 10_000, **changes})


def screen(candidates, *, steps=60, planned=None, model=None, **changes):
    return tp.screen(
        model or build(None), batches, validation=VALIDATION, candidates=candidates,
        plan=changes.pop("plan", None) or plan(planned or steps), steps=steps, **changes,
    )  # fmt: skip


class Broken(nn.Module):
    """A model whose weights are multiplied by 1e4 before its ``at``-th training step."""

    def __init__(self, inner, at):
        super().__init__()
        self.inner, self.at, self.calls = inner, at, 0

    def forward(self, tokens):
        self.calls += self.training
        if self.training and self.calls == self.at:
            with torch.no_grad():
                for parameter in self.inner.parameters():
                    parameter.mul_(1e4)
        return self.inner(tokens)


def broken(at=50, op=None):
    return lambda seed: Broken(build(op)(seed), at)


class Blind(nn.Module):
    """A model that does not see its input: it can learn frequencies and nothing more."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, tokens):
        return self.inner(torch.zeros_like(tokens[:, :1])).expand(-1, tokens.shape[1], -1)


def test_rmsnorm_against_layernorm_is_a_tie_and_a_tie_is_no_reason_to_change():
    verdict = screen(["rmsnorm"], steps=150, criterion="fixed_step")
    assert verdict.verdict == "keep"
    assert verdict.recommended == "layernorm"
    assert verdict.candidates[0].interval[0] > -0.005


def test_a_candidate_whose_weights_explode_is_unsafe():
    verdict = screen({"broken": tp.Arm(build=broken())}, steps=120)
    assert verdict.verdict == "unsafe"
    assert verdict.candidates[0].phase == "diverged"
    assert "diverged" in verdict.candidates[0].why
    assert verdict.candidates[0].delta_rel is None  # it never enters a mean


def test_where_both_arms_diverge_the_reason_is_the_plan():
    verdict = screen({"broken": tp.Arm(build=broken(50))}, steps=120, model=broken(50))
    assert verdict.verdict == "unsafe"
    assert "the plan itself is unstable" in verdict.candidates[0].why


def test_a_baseline_handicapped_by_dropout_is_replaced():
    verdict = screen(
        {"plain": tp.Arm(build=build(None))},
        steps=100,
        model=build(None, dropout=0.9),
        criterion="fixed_step",
    )
    assert verdict.verdict == "replace"
    assert verdict.recommended == "plain"
    assert verdict.candidates[0].delta_rel < -0.005


def test_a_plan_a_hundred_times_longer_is_undecided_with_the_next_step_and_its_cost():
    verdict = screen(["rmsnorm"], steps=60, planned=6000)
    assert verdict.verdict == "undecided"
    assert verdict.recommended == "layernorm"
    look = verdict.candidates[0].next
    assert look.steps == 120
    assert look.cost_s > 0


@pytest.mark.parametrize(
    ("planned", "word", "phase"), [(2000, "undecided", "stalled"), (60, "unsafe", "collapsed")]
)
def test_an_arm_on_the_plateau_is_undecided_until_the_plan_ends(planned, word, phase):
    blind = tp.Arm(build=lambda seed: Blind(build(None)(seed)))
    verdict = screen({"blind": blind}, steps=60, planned=planned)
    assert (verdict.verdict, verdict.candidates[0].phase) == (word, phase)
    assert "prediction KL 0.0000" in verdict.candidates[0].phase_reason


def test_the_candidate_with_the_lowest_loss_is_recommended():
    handicapped = build(None, dropout=0.9)
    arms = {"half": tp.Arm(build=build(None, dropout=0.5)), "plain": tp.Arm(build=build(None))}
    verdict = screen(arms, steps=100, model=handicapped, criterion="fixed_step")
    assert [c.verdict for c in verdict.candidates] == ["replace", "replace"]
    assert verdict.recommended == "plain"


def test_each_arm_runs_at_its_own_best_rate_of_the_grid(tmp_path):
    verdict = screen(["dyt"], steps=30, plan=plan(600, lr=0.3), lr_grid=True, out=tmp_path)
    rates = {c.lr for c in verdict.candidates} | {verdict.baseline["lr"]}
    assert {round(rate, 6) for rate in rates} <= {0.1, 0.3, 0.9}
    tried = [p for p in (tmp_path / "arms" / "layernorm").iterdir()]
    assert len(tried) == 3


def test_the_same_call_on_the_same_folder_trains_nothing_again(tmp_path):
    first = screen(["dyt"], steps=20, planned=400, out=tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("records.jsonl") if "arms" in p.parts}
    again = screen(["dyt"], steps=20, planned=400, out=tmp_path)
    after = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("records.jsonl") if "arms" in p.parts}
    assert before == after
    assert again.candidates[0].delta_rel == first.candidates[0].delta_rel


def test_verdict_json_has_the_promised_fields_and_no_bare_nan(tmp_path):
    screen(
        {"dyt:paper": "dyt:paper", "broken": tp.Arm(build=broken(5))},
        steps=20,
        planned=400,
        out=tmp_path,
    )
    text = (tmp_path / "verdict.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert {"verdict", "recommended", "criterion", "plan", "candidates", "rules"} <= set(found)
    promised = {
        "op", "preset", "verdict", "delta_rel", "interval", "speed_ratio", "offset", "saturation_2", "stalled",
        "collapsed", "step_time_ratio", "forecast",
    }  # fmt: skip
    assert all(promised <= set(c) for c in found["candidates"])
    assert all({"name", "says", "record"} <= set(r) for r in found["rules"])
    assert (found["candidates"][0]["op"], found["candidates"][0]["preset"]) == ("dyt", "paper")


class OwnLoss(nn.Module):
    """A classifier in a user's own style: keywords in, an object with a loss out."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x, labels):
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def mappings(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(16, 4, generator=generator)
        yield {"x": x, "labels": x[:, :3].argmax(dim=1)}


def test_any_module_with_mappings_and_its_own_loss_can_be_screened():
    verdict = tp.screen(
        lambda seed: OwnLoss(), mappings, validation=next(mappings(99)), candidates=["dyt", "hardtanh"],
        plan=tp.Plan(steps=40, lr=1e-2, warmup=5), steps=40, criterion="fixed_step",
    )  # fmt: skip
    assert {c.arm for c in verdict.candidates} == {"dyt", "hardtanh"}
    assert all(math.isfinite(c.delta_rel) for c in verdict.candidates)
    assert any("no token windows" in note for note in verdict.notes)


def test_pairs_with_a_loss_function_can_be_screened():
    def pairs(seed):
        for batch in mappings(seed):
            yield batch["x"], batch["labels"]

    verdict = tp.screen(
        lambda seed: nn.Sequential(nn.Linear(4, 8), nn.RMSNorm(8), nn.ReLU(), nn.Linear(8, 3)), pairs,
        validation=next(pairs(99)), candidates=["derf"], plan=tp.Plan(steps=20, warmup=2), steps=20,
        loss_fn=lambda output, batch: nn.functional.cross_entropy(output, batch[1]),
    )  # fmt: skip
    assert verdict.baseline["arm"] == "rmsnorm"


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (["layernorm"], r"candidate 'layernorm'|is the baseline"),
        ([], r"no candidate\.\nName at least one op"),
        (["dyt", "dyt"], r"Named twice: dyt\.\n"),
    ],
)
def test_candidates_that_make_no_sense_are_refused(candidates, message):
    with pytest.raises(PlanError, match=message):
        screen(candidates)


def test_a_plan_shorter_than_the_calibration_is_refused():
    with pytest.raises(
        PlanError,
        match=r"plan of 30 steps is shorter than the calibration of 60\.\nGive --steps 30",
    ):
        screen(["dyt"], steps=60, planned=30)


def test_batches_that_end_too_early_are_named():
    with pytest.raises(PlanError, match=r"ended before the calibration's 20 steps\.\nLet batches"):
        tp.screen(
            build(None), lambda seed: [next(batches(0))] * 5, validation=VALIDATION, candidates=["dyt"],
            plan=plan(20), steps=20,
        )  # fmt: skip


def test_a_model_without_norms_is_refused():
    with pytest.raises(ModelError, match=r"has no norm to swap"):
        tp.screen(
            lambda seed: nn.Sequential(nn.Embedding(32, 8), nn.Linear(8, 32)), batches, validation=VALIDATION,
            candidates=["dyt"], plan=plan(20), steps=20,
        )  # fmt: skip


def test_a_baseline_that_is_nan_from_the_first_step_is_an_error_and_a_candidate_is_unsafe():
    with pytest.raises(NonFiniteLossError, match="not finite at the first step"):
        screen(["dyt"], steps=20, model=lambda seed: _nan(build(None)(seed)))
    verdict = screen({"nan": tp.Arm(build=lambda seed: _nan(build("dyt")(seed)))}, steps=20)
    assert verdict.verdict == "unsafe"


def _nan(model):
    with torch.no_grad():
        model.wte.weight.fill_(math.nan)
    return model


def test_a_build_that_returns_the_same_model_each_time_is_refused():
    model = build(None)(0)
    with pytest.raises(
        PlanError, match=r"the same parameters, each time.*\nBuild the model inside build"
    ):
        screen(["dyt"], steps=20, model=lambda seed: model)


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    screen(["dyt"], steps=4, seeds=1)
    assert torch.equal(torch.rand(3), expected)


def test_a_run_that_blew_up_from_the_start_is_unsafe_not_a_win_over_a_baseline_that_did_too():
    verdict = screen(["dyt"], steps=40, plan=plan(40, lr=100.0, warmup=2), criterion="fixed_step")
    assert verdict.verdict == "unsafe"
    assert verdict.baseline["phase"] == "diverged"


def test_a_loss_that_is_nan_in_evaluation_only_is_a_divergence_for_a_task_without_a_plateau():
    class NanInEval(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = OwnLoss(), 0

        def forward(self, x, labels):
            self.calls += self.training
            out = self.inner(x, labels)
            late = not self.training and self.calls >= 7
            return {"loss": out["loss"] * math.nan if late else out["loss"]}

    verdict = tp.screen(
        lambda seed: OwnLoss(), mappings, validation=next(mappings(99)),
        candidates={"nan": tp.Arm(build=lambda seed: NanInEval())}, plan=tp.Plan(steps=20, warmup=2), steps=20,
    )  # fmt: skip
    assert verdict.candidates[0].verdict == "unsafe"


def test_batches_that_are_not_the_same_each_time_are_refused():
    stream = batches(0)
    with pytest.raises(PlanError, match=r"would not be paired\.\nMake a new iterator"):
        tp.screen(
            build(None),
            lambda seed: stream,
            validation=VALIDATION,
            candidates=["dyt"],
            plan=plan(20),
            steps=20,
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"model": build(None, width=32)},
        {"validation": VALIDATION[:16]},
        {"loss_fn": lambda output, batch: output.square().mean()},
        {"batches": lambda seed: TEXT.batches(seed + 50, batch=8, context=CONTEXT)},
    ],
    ids=["model", "validation", "loss", "batches"],
)
def test_a_folder_is_refused_to_a_screen_of_another(tmp_path, changes):
    def call(**changes):
        return tp.screen(
            changes.pop("model", build(None)), changes.pop("batches", batches),
            validation=changes.pop("validation", VALIDATION), candidates=["dyt"], plan=plan(80), steps=4, seeds=1,
            out=tmp_path, **changes,
        )  # fmt: skip

    call()
    with pytest.raises(RunFolderError, match=r"belongs to another run: source was"):
        call(**changes)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (["dyt", "dyt:recommended"], r"dyt and dyt:recommended are the same candidate"),
        ({"a": "dyt", "b": "dyt"}, r"a and b are the same candidate"),
        ({"x": tp.Arm()}, r"'x' is the baseline itself: it changes nothing"),
        ({"": "dyt"}, r"has no name\.\nName each one"),
        ([nn.LayerNorm], r"Candidates are op names.*\nTry candidates="),
    ],
)
def test_candidates_that_are_the_same_or_none_at_all_are_refused(candidates, message):
    with pytest.raises(PlanError, match=message):
        screen(candidates, steps=4)


def test_candidates_may_be_one_string():
    assert [c.arm for c in screen("dyt, derf", steps=4, seeds=1).candidates] == ["dyt", "derf"]


def test_names_that_differ_in_odd_characters_only_get_folders_of_their_own(tmp_path):
    arms = {"a b": "dyt", "a-b": "derf", "..": "hardtanh", "α": "rmsnorm"}
    verdict = screen(arms, steps=4, seeds=1, out=tmp_path)
    assert [c.arm for c in verdict.candidates] == list(arms)
    assert len(list((tmp_path / "arms").iterdir())) == 5


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"validation": []}, DataError, r"at least one window, got a list without tensors"),
        ({"validation": VALIDATION[:0]}, DataError, r"got an empty tensor"),
        ({"validation": [VALIDATION, VALIDATION[:, :5]]}, DataError, r"must have one shape.*\nPad them"),
        ({"build": lambda seed: None}, ModelError, r"must return an nn.Module, got NoneType"),
        ({"build": lambda seed: build(None)(seed).requires_grad_(False)}, ModelError, r"no parameter that requires"),
        ({"batches": lambda seed: None}, PlanError, r"would not be paired|empty"),
        ({"loss_fn": lambda output, batch: output.mean(dim=(1, 2))}, ModelError, r"0-dimensional tensor, got shape"),
        ({"steps": 20.0}, PlanError, r"steps must be a whole number, got 20.0"),
    ],
    ids=["no windows", "empty", "lengths", "no model", "frozen", "no batches", "loss vector", "float steps"],
)  # fmt: skip
def test_bad_arguments_are_refused_with_advice(changes, error, message):
    given = {
        "build": build(None),
        "batches": batches,
        "validation": VALIDATION,
        "steps": 20,
        **changes,
    }
    with pytest.raises(error, match=message):
        tp.screen(
            given.pop("build"), given.pop("batches"), candidates=["dyt"], plan=plan(20), seeds=1, **given
        )  # fmt: skip


def test_the_record_names_the_optimizer_that_a_verdict_is_from(tmp_path):
    screen(["derf"], steps=4, seeds=1, out=tmp_path)
    manifests = [tmp_path / "manifest.json", *tmp_path.glob("arms/*/*/*/manifest.json")]
    assert [json.loads(m.read_text())["optimizer"] for m in manifests] == ["AdamW"] * 3


def qwen(seed):
    """A Qwen 2 of two layers: RMSNorms, biases on queries, keys and values, a tied head."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen2Config(
        vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config)


def qwen_without_a_scale(seed):
    """DyT with the paper's alpha for images, and embeddings as small as they are born."""
    model = qwen(seed)
    swap_norms(model, "dyt", policy=SwapPolicy(alpha=0.5, embedding_scale=False))
    return model


def test_a_language_model_whose_loss_does_not_move_is_said_to_have_stalled():
    arms = {"bare": tp.Arm(build=qwen_without_a_scale)}
    verdict = screen(arms, steps=80, seeds=1, model=qwen, plan=plan(2000, lr=1e-3))
    (found,) = verdict.candidates
    assert (verdict.verdict, found.phase, found.stalled) == ("undecided", "stalled", True)
    assert "stalled: still on the unigram plateau" in found.why
    assert "the baseline left it at step" in found.why
    assert "prediction KL" in found.why
    assert "frozen" in found.why
