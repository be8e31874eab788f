"""A screen may go on: later, to more steps, or until it is sure. What was trained is not trained again."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from tests.tiny import CONTEXT, TIMINGS, build, corpus
from torch import nn

import triplepoint as tp
from triplepoint.errors import DataError, PlanError, RunFolderError
from triplepoint.runs import read_arrays
from triplepoint.screening import calibrating, looks, plans
from triplepoint.screening.judging import Judge
from triplepoint.screening.looks import Look, Looks, taken_in
from triplepoint.screening.plans import Plan, calibration_recipe
from triplepoint.sweeps import load_arm
from triplepoint.weights import load_tensors

TEXT = corpus()
VALIDATION = TEXT.windows("validation", context=CONTEXT, count=8)


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


class Batches:
    """The batches of a seed; counts those that were trained on, and may be interrupted at one."""

    def __init__(self, interrupt_at=None):
        self.drawn, self._interrupt_at = 0, interrupt_at

    def __call__(self, seed):
        for batch in TEXT.batches(seed, batch=4, context=CONTEXT):
            self.drawn += 1
            if self.drawn == self._interrupt_at:
                raise Interrupted
            yield batch


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Looks at 4, 8, 16 steps, and one recipe for all calibrations of 4 steps and more."""
    monkeypatch.setattr(looks, "FIRST", (4, 8))
    monkeypatch.setattr(plans, "SHARED_FROM", 4)


@pytest.fixture
def saying(monkeypatch):
    """Let the judge say given words, one for each step; returns the judges that were asked."""
    asked = []

    def say(words):
        class Said(Judge):
            def verdict(self, **how):
                asked.append(self)
                found, word = super().verdict(**how), words[self.steps]
                said = [dataclasses.replace(c, verdict=word) for c in found.candidates]
                return dataclasses.replace(found, verdict=word, candidates=said)

        monkeypatch.setattr(calibrating, "Judge", Said)
        return asked

    return say


def tokens(seed):
    return build(None, dropout=0.2)(seed)


def screen(out, *, batches=None, model=tokens, planned=400, **changes):
    return tp.screen(
        model, batches or Batches(), validation=VALIDATION, candidates=["dyt"], seeds=1, out=out,
        plan=Plan(steps=planned, lr=3e-3, warmup=2, unique_tokens=10_000), **changes,
    )  # fmt: skip


def assert_same_trials(ours, theirs):
    """Records, losses per window, weights, moments and averages of all calibrations are bit-equal."""
    folders = sorted(p.parent.relative_to(theirs) for p in theirs.glob("arms/**/manifest.json"))
    assert len(folders) == 2
    for folder in folders:
        a, b = load_arm(ours / folder), load_arm(theirs / folder)
        assert [r for r in a.records if r.metric not in TIMINGS] == [
            r for r in b.records if r.metric not in TIMINGS
        ]
        for name, values in b.arrays.items():
            np.testing.assert_array_equal(a.arrays[name], values)
        last = f"checkpoints/step-{b.last_step:06d}"
        for part in ("checkpoints/best/model", f"{last}/model", f"{last}/optimizer"):
            file = f"{part}.safetensors"
            one, two = (load_tensors(root / folder / file) for root in (ours, theirs))
            assert all(torch.equal(one[name], value) for name, value in two.items())


class Classifier(nn.Module):
    """A module that is no language model."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.body = nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 32))

    def forward(self, tokens):
        return self.body(self.embed(tokens))


@pytest.mark.parametrize("model", [tokens, lambda seed: Classifier()], ids=["gpt2", "module"])
def test_a_longer_screen_goes_on_where_a_shorter_one_stopped(tmp_path, model):
    whole = screen(tmp_path / "whole", steps=13, model=model)
    first = screen(tmp_path / "parts", steps=6, model=model)
    assert first.plan["calibration_steps"] == 6
    again = screen(tmp_path / "parts", steps=13, model=model)
    assert_same_trials(tmp_path / "parts", tmp_path / "whole")
    assert again.plan["calibration_steps"] == whole.plan["calibration_steps"] == 13
    assert [c.endpoints for c in again.candidates] == [c.endpoints for c in whole.candidates]
    arrays = [read_arrays(tmp_path / name / "arrays.npz") for name in ("parts", "whole")]
    assert all(np.array_equal(arrays[0][k], v) for k, v in arrays[1].items())


def test_a_longer_screen_that_is_killed_leaves_the_shorter_ones_answer_and_is_resumed(tmp_path):
    screen(tmp_path / "parts", steps=6)
    before = (tmp_path / "parts" / "verdict.json").read_bytes()
    with pytest.raises(Interrupted):
        screen(tmp_path / "parts", steps=13, batches=Batches(interrupt_at=29))
    assert (tmp_path / "parts" / "verdict.json").read_bytes() == before
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text())
    assert (manifest["status"], manifest["plan"]["calibration_steps"]) == ("finished", 6)
    screen(tmp_path / "parts", steps=13)
    screen(tmp_path / "whole", steps=13)
    assert_same_trials(tmp_path / "parts", tmp_path / "whole")


def test_a_shorter_screen_after_a_longer_one_is_refused(tmp_path):
    screen(tmp_path, steps=8)
    with pytest.raises(RunFolderError, match=r"has come to step 8 already, past the 6 asked for"):
        screen(tmp_path, steps=6)


def test_a_screen_stops_at_the_look_at_which_it_is_sure(tmp_path, saying):
    asked = saying({4: "undecided", 8: "keep"})
    verdict = screen(tmp_path, until_confident=0.9, max_steps=30)
    assert [judge.steps for judge in asked] == [4, 8]
    assert {judge.confidence for judge in asked} == {0.9}
    assert verdict.verdict == "keep"
    assert verdict.cost["looks"] == [
        {"steps": 4, "verdict": "undecided"},
        {"steps": 8, "verdict": "keep"},
    ]
    assert (verdict.cost["steps"], verdict.cost["max_steps"]) == (8, 30)
    assert verdict.cost["saved_share"] == 1 - 8 / 400  # of 400 steps of both arms
    kept = json.loads((tmp_path / "verdict.json").read_text())
    assert kept["cost"]["looks"] == verdict.cost["looks"]
    assert {p.name for p in tmp_path.iterdir()} >= {"records.parquet", "arrays.npz", "manifest.json"}  # fmt: skip
    assert load_arm(next(tmp_path.glob("arms/dyt/*/seed-0"))).last_step == 8


def test_a_screen_that_is_never_sure_goes_to_its_last_step_and_later_on(tmp_path, saying):
    asked = saying(dict.fromkeys((4, 8, 13, 16, 20), "undecided"))
    verdict = screen(tmp_path / "parts", until_confident=0.9, max_steps=13)
    assert [judge.steps for judge in asked] == [4, 8, 13]
    assert (verdict.verdict, verdict.cost["steps"]) == ("undecided", 13)
    screen(tmp_path / "parts", until_confident=0.9, max_steps=13)  # judged again, no more
    assert [judge.steps for judge in asked] == [4, 8, 13, 13]
    screen(tmp_path / "parts", until_confident=0.9, max_steps=20)
    assert [judge.steps for judge in asked[4:]] == [16, 20]
    screen(tmp_path / "whole", steps=20)
    assert_same_trials(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize("interrupt_at", [29, 45])
def test_a_screen_that_is_interrupted_between_or_in_looks_goes_on_from_there(
    tmp_path, saying, interrupt_at
):
    asked = saying({4: "undecided", 8: "undecided", 16: "keep"})
    with pytest.raises(Interrupted):
        screen(tmp_path / "cut", until_confident=0.9, max_steps=30, batches=Batches(interrupt_at))
    looked = [look.steps for look in taken_in(tmp_path / "cut")]
    verdict = screen(tmp_path / "cut", until_confident=0.9, max_steps=30)
    assert [judge.steps for judge in asked] == [4, 8, 16]  # no look twice
    assert looked == [4, 8, 16][: len(looked)]
    assert [look["steps"] for look in verdict.cost["looks"]] == [4, 8, 16]
    screen(tmp_path / "whole", steps=16)
    assert_same_trials(tmp_path / "cut", tmp_path / "whole")


def test_where_the_last_look_is_the_plans_end_its_result_is_measured(tmp_path, saying):
    saying({4: "undecided", 8: "undecided", 12: "undecided"})
    verdict = screen(tmp_path, planned=12, until_confident=0.8, max_steps=12)
    assert verdict.plan["measured"]
    assert verdict.plan["calibration_schedule"] == "cosine"
    assert verdict.cost["saved_share"] == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"until_confident": 0.9, "steps": 500}, r"--steps 500 asks for one look\.\nGive --max-steps 500"),
        ({"max_steps": 500}, r"until it is sure\.\nGive --until-confident 0.9 as well, or --steps 500"),
        ({"until_confident": 0.5}, r"above 0.5 and below 1, got 0.5\.\nTry --until-confident 0.9"),
        ({"until_confident": 1.0}, r"above 0.5 and below 1, got 1.0\.\n"),
        ({"until_confident": 0.9, "max_steps": 401}, r"plan of 400 steps, got 401\.\nGive --max-steps 400 or fewer"),
        ({"until_confident": 0.9, "max_steps": 0}, r"plan of 400 steps, got 0\.\n"),
        ({"until_confident": 0.9, "max_steps": 5.0}, r"max_steps must be a whole number, got 5.0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_looks_that_make_no_sense_are_refused(asked, message):
    with pytest.raises(PlanError, match=message):
        Looks.of(400, **asked)


def test_looks_have_defaults():
    assert Looks.of(400) == Looks(steps=(500,))
    assert Looks.of(400, until_confident=0.9).steps == (4, 8, 16, 32, 64, 128, 256, 400)
    assert Looks.of(10**6, until_confident=0.9).last == 2000


def test_calibrations_of_one_plan_share_one_recipe_from_500_steps_on(monkeypatch):
    monkeypatch.setattr(plans, "SHARED_FROM", 500)
    monkeypatch.setattr(looks, "FIRST", (100, 250, 500, 1000))
    plan = Plan(steps=10_000)
    default = calibration_recipe(plan, Looks(steps=(500,)))
    assert [s for s in default.evaluations if s <= 500] == list(range(25, 501, 25))
    assert [s for s in default.average_steps if s <= 500] == [25, 50, 100, 175, 250, 375, 500]
    assert (default.steps, default.schedule, default.warmup) == (10_000, "constant", 100)
    longer = Looks.of(plan.steps, until_confident=0.9, max_steps=4000)
    assert calibration_recipe(plan, longer) == calibration_recipe(plan, Looks(steps=(700,)))
    assert calibration_recipe(plan, longer) == default
    assert set(longer.steps) <= set(default.evaluations)
    assert calibration_recipe(plan, Looks(steps=(100,))).warmup == 20
    measured = calibration_recipe(plan, Looks(steps=(10_000,)))
    assert measured.evaluations[:8] == (25, 50, 100, 175, 250, 375, 500, 700)
    assert (measured.schedule, measured.eval_steps[0]) == ("cosine", 500)


def test_a_look_is_kept_as_it_was(tmp_path):
    taken = [
        Look(steps=4, verdict="undecided", candidates={"a": "keep", "b": "undecided"}),
        Look(steps=8, verdict="replace", candidates={"a": "keep", "b": "replace"}),
    ]
    looks.keep_looks(tmp_path, taken)
    assert taken_in(tmp_path) == taken
    assert [look.sure for look in taken] == [False, True]


@pytest.mark.parametrize("text", ["{}", '{"looks": [{"steps": 1}]}', '{"looks": 3}'])
def test_damaged_looks_are_refused(tmp_path, text):
    (tmp_path / "looks.json").write_text(text)
    with pytest.raises(RunFolderError, match="looks.json is damaged.*\nDelete it"):
        taken_in(tmp_path)


def test_a_folder_with_nothing_to_learn_from_is_refused_before_anything_is_trained(tmp_path):
    batches = Batches()
    with pytest.raises(DataError, match="does not exist.\nGive the folder"):
        screen(tmp_path / "run", steps=4, learned=tmp_path / "nothing", batches=batches)
    assert not list((tmp_path / "run").glob("arms/*"))
    screen(tmp_path / "short", steps=4)  # its runs stopped before their plan's end
    with pytest.raises(DataError, match="has 0 finished runs"):
        screen(tmp_path / "run", steps=4, learned=tmp_path / "short", batches=batches)
