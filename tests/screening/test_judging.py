"""Tests of triplepoint.screening.judging on runs whose numbers are made up, so that the answer is known."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from triplepoint.evidence import ENDPOINTS, Truth
from triplepoint.phases import diverged_step
from triplepoint.records import Record
from triplepoint.screening import Miniature, MiniatureEvidence, reasons
from triplepoint.screening.arms import Arms
from triplepoint.screening.forecasting import EndpointForecast
from triplepoint.screening.judging import Judge
from triplepoint.screening.miniature_evidence import MiniaturePair
from triplepoint.screening.plans import Plan
from triplepoint.screening.rulebook import shipped
from triplepoint.sweeps import ArmRun

STEPS = np.arange(25, 501, 25)
WINDOWS = np.linspace(-0.2, 0.2, 64)
PLATEAU = 3.0
FALLING = 1.5 + 1.2 * (STEPS / 100) ** -0.5


def arm(
    name,
    *curves,
    train=None,
    op=None,
    preset=None,
    drift=0.1,
    kl=1.0,
    saturation=0.3,
    outcome="finished",
    size="gpt2-0.4m",
):
    runs = []
    for seed, curve in enumerate(curves):
        curve = np.broadcast_to(curve, STEPS.shape)
        losses = curve[:, None] + WINDOWS
        learnt = curve if train is None else np.broadcast_to(train, STEPS.shape)
        clock = [
            Record(metric="s1", value=1e-3 * (s - 50 if s > 100 else s / 2), step=int(s))
            for s in STEPS
        ]
        more = [
            Record(metric="alpha_drift_std", value=drift, step=500),
            Record(metric="prediction_kl", value=kl, step=500),
            Record(metric="saturation@2", value=saturation, step=500, site="a"),
            Record(metric="step_time", value=0.1, step=500),
            Record(metric="step_wall_time", value=0.1, step=500),
        ]
        runs.append(
            ArmRun(
                path=None, arm=name, seed=seed, outcome=outcome, last_step=500,
                diverged_at=diverged_step(STEPS.tolist(), learnt.tolist(), PLATEAU, warmup=100),
                plateau={"val": PLATEAU, "train": PLATEAU},
                facts={"asked": {"recipe": {"steps": 500, "warmup": 100, "schedule": "constant", "lr": 1e-3, "weight_decay": 0.1}, "size": size}},
                arrays={"eval_steps": STEPS, "val_loss": losses, "train_loss": learnt[:, None] + WINDOWS},
                records=clock + more,
            )
        )  # fmt: skip
    return Arms(name, tuple(runs), op or name, preset, 1e-3)


BASELINE = arm("layernorm", FALLING, FALLING)


def judge(
    *candidates,
    planned=500,
    baseline=BASELINE,
    unique=10_000_000,
    criterion="best_checkpoint",
    **changes,
):
    judged = Judge(
        plan=Plan(steps=planned, unique_tokens=unique), baseline=baseline, candidates=candidates, criterion=criterion,
        parameters={"params_no_positions": 400_000, "params_total": 410_000}, tokens_per_step=1024, **changes,
    )  # fmt: skip
    return judged.verdict(spent_s=10.0)


@pytest.mark.parametrize(
    ("shifts", "word"),
    [
        ((-0.10, -0.10), "replace"),  # -4.9 %, far below minus the margin
        ((-0.02, -0.02), "replace"),  # -1 % beats a tie margin of 0.5 %
        ((-0.005, -0.005), "keep"),  # -0.25 % is a tie
        ((0.0, 0.0), "keep"),
        ((0.1, 0.1), "keep"),
        ((-0.2, 0.1), "undecided"),  # the seeds disagree
        ((-0.011, -0.009), "undecided"),  # the interval holds minus the margin
    ],
)
def test_a_measured_plan_is_decided_by_the_interval_against_minus_the_margin(shifts, word):
    candidate = arm("dyt:paper", *(FALLING + s for s in shifts), op="dyt", preset="paper")
    assert judge(candidate).candidates[0].verdict == word


def test_the_margin_is_an_option():
    candidate = arm("dyt", FALLING - 0.02, FALLING - 0.02)
    assert judge(candidate, tie_margin=0.005).verdict == "replace"
    assert judge(candidate, tie_margin=0.02).verdict == "keep"


def test_the_endpoint_that_counts_decides():
    # the baseline over-fits: lower at its best step than the candidate ever gets, higher at the last
    over = np.where(STEPS < 250, FALLING, FALLING[9] + (STEPS - 250) / 250)
    slow = np.maximum(FALLING[9] + 0.1, FALLING + 0.1)
    candidate, baseline = arm("dyt", slow), arm("layernorm", over, train=FALLING)
    assert judge(candidate, baseline=baseline, criterion="fixed_step").verdict == "replace"
    kept = judge(candidate, baseline=baseline, criterion="best_checkpoint")
    assert kept.verdict == "keep"
    both = kept.candidates[0].endpoints
    assert both["fixed_step"].delta_rel < 0 < both["best_checkpoint"].delta_rel
    assert both["best_checkpoint"].baseline_step == 250


@pytest.mark.parametrize(
    ("words", "overall"),
    [
        (("replace", "unsafe", "undecided"), "replace"),
        (("undecided", "unsafe", "keep"), "undecided"),
        (("unsafe", "unsafe"), "unsafe"),
        (("unsafe", "keep"), "keep"),
        (("keep", "keep"), "keep"),
    ],
)
def test_the_overall_word(words, overall):
    made = {
        "replace": FALLING - 0.1,
        "keep": FALLING + 0.1,
        "undecided": None,
        "unsafe": np.full(20, 3.0),
    }
    arms = [
        arm(f"{word}{i}", FALLING - 0.2, FALLING + 0.1) if word == "undecided"
        else arm(f"{word}{i}", made[word], made[word], kl=0.001)
        for i, word in enumerate(words)
    ]  # fmt: skip
    verdict = judge(*arms)
    assert [c.verdict for c in verdict.candidates] == list(words)
    assert verdict.verdict == overall
    assert verdict.recommended == (arms[0].name if overall == "replace" else "layernorm")


def test_a_slower_candidate_of_a_one_epoch_plan_is_kept_out_by_forecast():
    # half as fast on the clock, no plateau, 5000 steps of 1024 tokens on 10M: half an epoch
    candidate = arm("dyt", 1.5 + 1.2 * (0.4 * STEPS / 100) ** -0.5 - 0.0)
    verdict = judge(candidate, planned=5000, baseline=arm("layernorm", FALLING))
    found = verdict.candidates[0]
    assert found.speed_ratio == pytest.approx(0.35, abs=0.1)
    assert found.verdict == "keep"
    assert found.forecast["delta_rel"] > 0.05
    assert found.forecast["probability"] < 0.25


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unique": None}, "unique tokens are unknown"),
        ({"planned": 50_000, "unique": 10**9}, "100 times as long as the look, the benchmark's at most"),
        ({"size": "vit-0.1m"}, "no cell of the benchmark has the architecture vit"),
        ({"op": "groupnorm"}, "no cell of the benchmark has the op groupnorm"),
    ],
)  # fmt: skip
def test_a_plan_that_is_unlike_the_benchmark_is_undecided_with_the_reason(changes, reason):
    size, op = changes.pop("size", "gpt2-0.4m"), changes.pop("op", "dyt")
    verdict = judge(
        arm("dyt", FALLING + 0.02, op=op, size=size), baseline=arm("layernorm", FALLING, size=size), planned=changes.pop("planned", 3000), **changes,
    )  # fmt: skip
    assert verdict.verdict == "undecided"
    assert reason in verdict.candidates[0].why
    assert verdict.candidates[0].next.steps == 1000


def test_outside_the_benchmark_arms_whose_own_intervals_do_not_meet_are_decided():
    far = judge(
        arm("dyt", FALLING + 1.2, size="own"), baseline=arm("layernorm", FALLING, size="own"), planned=1000
    ).candidates[0]  # fmt: skip
    assert far.forecast["where"] == "outside"
    ends = far.forecast
    assert ends["loss_interval"][0] > ends["baseline_interval"][1]
    assert far.verdict == "keep"
    assert "do not meet" in far.why


def test_an_over_fitting_baseline_makes_a_late_candidate_win_at_the_last_step_only():
    train = 2.4 - 0.9 * STEPS / 500
    over = np.where(train > 2.0, train + 0.3, 2.3 + 1.5 * (2.0 - train))
    late = 2.4 - 0.35 * STEPS / 500
    baseline, candidate = arm("layernorm", over, train=train), arm("dyt", late + 0.3, train=late)
    plan = {"planned": 3000, "unique": 20_000, "baseline": baseline}
    last = judge(candidate, criterion="fixed_step", **plan)
    best = judge(candidate, criterion="best_checkpoint", **plan)
    assert last.verdict == "replace"
    assert best.verdict in ("keep", "undecided")
    facts = last.candidates[0].forecast
    assert facts["probability"] > 0.5 > best.candidates[0].forecast["probability"] - 0.2
    assert facts["onset_epoch"] < 26  # by step 500 of 51 tokens a step and epoch
    assert any("over-fits from about epoch" in line for line in last.summary)
    assert any("stopping the baseline at its best checkpoint" in line for line in last.summary)
    assert any("answers were right" in line for line in last.summary)


def test_no_probability_exceeds_what_the_record_allows():
    found = judge(arm("dyt", FALLING + 0.8), planned=3000, baseline=arm("layernorm", FALLING))
    for criterion, end in found.candidates[0].forecast["endpoints"].items():
        cap = shipped().rules[500].caps[criterion]
        assert 1 - cap <= end["probability"] <= cap


@pytest.mark.parametrize("criterion", ["fixed_step", "best_checkpoint"])
def test_where_too_few_were_tested_to_say_as_much_nothing_is_answered(criterion):
    """The shipped rule's cap at a look is what its own answers allow; at step 100 it gave none."""
    rule = shipped().rules[500]
    blind = dataclasses.replace(rule, caps=dict.fromkeys(rule.caps, 0.5), thresholds=dict.fromkeys(rule.caps, 0.5))  # fmt: skip
    book = dataclasses.replace(shipped(), rules={**shipped().rules, 500: blind})
    plan = {"planned": 3000, "baseline": arm("layernorm", FALLING), "criterion": criterion}
    assert judge(arm("dyt", FALLING + 0.8), **plan).verdict == "keep"
    assert judge(arm("dyt", FALLING + 0.8), book=book, **plan).verdict == "undecided"


def test_a_difference_within_the_margin_is_no_reason_to_replace():
    train = 2.4 - 0.9 * STEPS / 500
    over = np.where(train > 2.0, train + 0.3, 2.3 + 1.5 * (2.0 - train))
    late = 2.4 - 0.35 * STEPS / 500
    plan = {"planned": 3000, "unique": 20_000, "baseline": arm("layernorm", over, train=train), "criterion": "fixed_step"}  # fmt: skip
    candidate = arm("dyt", late + 0.3, train=late)
    (won,) = judge(candidate, **plan).candidates
    assert won.verdict == "replace"
    (tied,) = judge(candidate, tie_margin=0.9, **plan).candidates
    assert tied.verdict != "replace"


def test_what_gained_nothing_at_either_endpoint_is_no_alternative():
    over = np.where(STEPS < 250, FALLING, FALLING[9] + (STEPS - 250) / 250)
    plan = {"planned": 3000, "unique": 20_000, "baseline": arm("layernorm", over, train=FALLING)}
    facts = judge(arm("dyt", FALLING + 0.3), **plan).candidates[0].forecast
    measured = facts["alternatives"][1:]
    assert measured
    assert all(min(a["fixed_step"], a["best_checkpoint"]) < 0 for a in measured)
    # with much data dropout and weight decay only lose
    rich = judge(arm("dyt", FALLING + 0.3), planned=1500, unique=1_500_000, baseline=arm("layernorm", FALLING))  # fmt: skip
    facts = rich.candidates[0].forecast
    assert facts["where"] != "outside"
    assert facts["alternatives"][1:] == []
    # stopping early gains something exactly where the baseline is said to over-fit
    assert (facts["onset_epoch"] is None) == (facts["alternatives"][0]["fixed_step"] == 0.0)
    plain = judge(arm("dyt", FALLING + 0.3), planned=3000, baseline=arm("layernorm", FALLING))
    assert plain.candidates[0].forecast["onset_epoch"] is None
    assert not any("stopping the baseline" in line for line in plain.summary)


def test_a_confidence_is_asked_of_every_answer():
    candidate = arm("dyt", FALLING + 0.8)
    plan = {"planned": 3000, "baseline": arm("layernorm", FALLING)}
    assert judge(candidate, **plan).verdict == "keep"
    assert judge(candidate, **plan, confidence=0.9999).verdict == "undecided"


def in_miniature(small, tiny, *, learned=True):
    """The plan in miniature: the candidate's difference at 1/4 and at 1/16, as a line to full size carries it on."""
    val = np.array([3.0, 2.0, 2.5])
    shrunk = SimpleNamespace(notes=("2000 windows are advised.",))
    return MiniatureEvidence(tuple(
        Miniature(
            k=k, width=8, shrunk=shrunk, clock=np.array([0.2, 0.6, 1.0]), train=val, val=val, onset_epoch=7.0, seconds=5.0, share=0.1,
            candidates={"dyt": MiniaturePair(
                truth=delta if delta is None else dict.fromkeys(ENDPOINTS, truth(delta)), speed_ratio=None, offset=None, learned=learned,
            )},
        )
        for k, delta in ((16.0, tiny), (4.0, small))
    ))  # fmt: skip


def truth(delta):
    return Truth(delta_rel=delta, interval=(delta - 1e-3, delta + 1e-3), by_seed=(delta,), intervals=((delta, delta),), margin=0.005)  # fmt: skip


# far from the benchmark, where the rule says nothing of arms that are this near
UNLIKE = {"planned": 50_000, "unique": 10**9, "baseline": arm("layernorm", FALLING)}


@pytest.mark.parametrize(
    ("small", "tiny", "word", "said"),
    [
        (-0.2, -0.15, "replace", "-15.0 % at 1/16, -20.0 % at 1/4, the same sign on the line to full size; such an answer was right"),
        (0.2, 0.15, "keep", "of GPT-2 style models up to 0.8M"),
        (-0.2, 0.15, "undecided", "do not tell the sign at full size"),
        (0.01, 0.01, "undecided", "do not tell the sign at full size"),  # within the slack of 2 %
        (None, 0.15, "undecided", "in miniature an arm diverged"),
    ],
)  # fmt: skip
def test_a_plan_in_miniature_decides_where_the_rule_does_not(small, tiny, word, said):
    candidate = arm("dyt", FALLING + 0.02)
    plan = {**UNLIKE, "criterion": "fixed_step"}
    verdict = judge(candidate, miniatures=in_miniature(small, tiny), **plan)
    found = verdict.candidates[0]
    assert judge(candidate, **plan).candidates[0].verdict == "undecided"
    assert found.verdict == word
    assert said in found.why
    assert [s["delta_rel"] for s in found.miniature["sizes"]] == [tiny, small]
    assert any("one seed" in note and "2000 windows are advised" in note for note in verdict.notes)


def test_an_answer_in_miniature_that_has_no_record_is_told_and_decides_nothing():
    candidate, wins = arm("dyt", FALLING + 0.02), in_miniature(-0.2, -0.15)
    # no candidate of the record wins at its best checkpoint
    found = judge(candidate, miniatures=wins, **UNLIKE).candidates[0]
    assert (found.verdict, found.miniature["decides"]) == ("undecided", False)
    assert "no plan of the benchmark gave this answer" in found.why
    # nor is there a Llama in it
    base = arm("layernorm", FALLING, size="llama-0.4m")
    plan = {**UNLIKE, "baseline": base, "criterion": "fixed_step"}
    found = judge(arm("dyt", FALLING + 0.02, size="llama-0.4m"), miniatures=wins, **plan).candidates[0]  # fmt: skip
    assert found.verdict == "undecided"
    assert "so it decides nothing here" in found.why


def test_arms_that_learned_nothing_in_miniature_have_nothing_to_compare():
    found = judge(arm("dyt", FALLING + 0.02), miniatures=in_miniature(0.2, 0.2, learned=False), **UNLIKE)  # fmt: skip
    assert found.verdict == "undecided"
    assert "has not left the unigram plateau: nothing to compare" in found.candidates[0].why


def test_a_sign_in_miniature_within_the_users_margin_decides_nothing():
    plan = {**UNLIKE, "miniatures": in_miniature(0.2, 0.2)}
    assert judge(arm("dyt", FALLING + 0.02), **plan).verdict == "keep"
    assert judge(arm("dyt", FALLING + 0.02), tie_margin=0.3, **plan).verdict == "undecided"


def test_a_plan_in_miniature_that_contradicts_the_rule_takes_its_answer_back():
    candidate = arm("dyt", FALLING + 0.8)
    plan = {"planned": 3000, "baseline": arm("layernorm", FALLING), "criterion": "fixed_step"}
    agrees = judge(candidate, miniatures=in_miniature(0.2, 0.2), **plan).candidates[0]
    against = judge(candidate, miniatures=in_miniature(-0.2, -0.2), **plan).candidates[0]
    assert (agrees.verdict, against.verdict) == ("keep", "undecided")
    assert "contradict each other" in against.why
    assert against.next is not None


@pytest.mark.parametrize(
    ("curve", "word"), [(np.full(20, 3.01), "undecided"), (np.where(STEPS < 300, FALLING, 9.0), "unsafe")]
)  # fmt: skip
def test_how_an_arm_starts_is_not_for_a_miniature_to_tell(curve, word):
    found = judge(arm("dyt", curve, kl=0.0), miniatures=in_miniature(-0.2, -0.2), **UNLIKE)
    assert found.candidates[0].verdict == word
    assert ("is not heeded" in found.candidates[0].why) == (word == "undecided")


def test_a_forecast_that_is_too_wide_is_said_to_say_nothing():
    end = EndpointForecast(
        delta_rel=0.08, interval=(-0.078, 4.439), probability=0.6, answered=False, loss=2.0, loss_interval=(1.8, 9.0),
        baseline_loss=1.9, baseline_interval=(1.8, 2.0),
    )  # fmt: skip
    found = SimpleNamespace(nearness=SimpleNamespace(where="outside"))
    assert reasons.forecast(end, found) == (
        "forecast too wide to be of use (95 %: -7.8 to +443.9 % at the planned end)"
    )
    narrow = dataclasses.replace(end, interval=(-0.078, 0.4))
    assert reasons.forecast(narrow, found).startswith("forecast +8.0 % at the planned end")


def test_a_finished_baseline_is_read_instead_of_forecast():
    late = np.arange(50, 3001, 50)
    ends = 1.5 + 1.2 * (late / 100) ** -0.5
    done = dataclasses.replace(
        BASELINE.runs[0], last_step=3000,
        records=[Record(metric="s1", value=1e-3 * (s - 50), step=int(s)) for s in late],
        arrays={"eval_steps": late, "val_loss": ends[:, None] + WINDOWS, "train_loss": ends[:, None] + WINDOWS},
    )  # fmt: skip
    verdict = judge(
        arm("dyt", FALLING + 0.3),
        planned=3000,
        baseline=arm("layernorm", FALLING),
        baseline_run=done,
    )
    found = verdict.candidates[0].forecast
    assert found["from_baseline_run"]
    assert found["baseline_loss"] == pytest.approx(ends[-1] + WINDOWS.mean(), abs=1e-6)
    assert found["baseline_interval"][0] == pytest.approx(found["baseline_interval"][1])


def test_a_sparse_run_of_the_baseline_goes_on_where_the_calibration_ends():
    """Its own first evaluations may be too late to say where the candidate is."""
    late = np.array([600, 1500, 3000, 6000])
    ends = 1.5 + 1.2 * (late / 100) ** -0.5
    done = dataclasses.replace(
        BASELINE.runs[0], last_step=6000,
        records=[Record(metric="s1", value=1e-3 * (s - 50), step=int(s)) for s in late],
        arrays={"eval_steps": late, "val_loss": ends[:, None] + WINDOWS, "train_loss": ends[:, None] + WINDOWS},
    )  # fmt: skip
    candidate, base = arm("dyt", FALLING + 0.3), arm("layernorm", FALLING)
    found = judge(candidate, planned=3000, baseline=base, baseline_run=done).candidates[0].forecast
    # and no farther than the plan
    assert found["baseline_loss"] == pytest.approx(ends[2] + WINDOWS.mean(), abs=1e-6)


def test_every_term_of_a_forecast_is_told():
    plain = judge(arm("dyt", FALLING + 0.3), planned=3000, baseline=arm("layernorm", FALLING))
    terms = plain.candidates[0].terms
    assert {t["label"] for t in terms} >= {"speed ratio", "slope", "acceleration", "relief"}
    assert all(t["meaning"] for t in terms)


def test_predictions_that_do_not_depend_on_the_input_make_a_plateau_a_stall():
    flat = np.full(20, 3.01)
    stalled = judge(
        arm("dyt", flat, kl=0.005), planned=5000, baseline=arm("layernorm", FALLING)
    ).candidates[0]
    slow = judge(
        arm("dyt", flat, kl=0.05), planned=5000, baseline=arm("layernorm", FALLING)
    ).candidates[0]
    assert (stalled.phase, stalled.stalled) == ("stalled", True)
    assert (slow.phase, slow.stalled) == ("fitting", False)
    # how surely it is behind at the end is the rule's to say, which saw such arms; that it is stuck is said beside
    assert "stalled: still on the unigram plateau" in stalled.why
    assert "fitting: still on the unigram plateau" in slow.why
    assert stalled.forecast == slow.forecast


def test_a_diverged_seed_makes_the_candidate_unsafe_and_enters_no_mean():
    up = np.where(STEPS < 300, FALLING, 9.0)
    found = judge(arm("dyt", FALLING, up)).candidates[0]
    assert (found.verdict, found.phase, found.delta_rel) == ("unsafe", "diverged", None)


def test_the_rules_see_this_plans_facts():
    candidate = arm("dyt", FALLING + 0.1, FALLING + 0.1, saturation=0.6)
    says = {r["name"]: r["says"] for r in judge(candidate, planned=5000, unique=1_000_000).rules}
    assert says["saturation"] == "replace"
    assert says["unique tokens"] == "replace"
    assert says["always keep"] == "keep"


def test_one_seed_is_said_to_say_nothing_about_another():
    verdict = judge(arm("dyt", FALLING), baseline=arm("layernorm", FALLING))
    assert any("One seed" in note for note in verdict.notes)
