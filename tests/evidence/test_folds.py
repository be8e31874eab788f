"""Tests of triplepoint.evidence.folds."""

import dataclasses

import pytest
from tests.evidence.synthetic import cell

from triplepoint.errors import StatisticsError
from triplepoint.evidence import ENDPOINTS, Prediction, held_out


@dataclasses.dataclass
class Spy:
    """Answers the same always, and keeps what it was shown."""

    name: str = "spy"
    trains: bool = False
    fitted_on: list = dataclasses.field(default_factory=list)
    asked: list = dataclasses.field(default_factory=list)

    def fit(self, cells, look):
        self.fitted_on.append([c.name for c in cells])
        return self

    def predict(self, seen):
        self.asked.append(seen)
        return Prediction(p=dict.fromkeys(ENDPOINTS, 0.3), answered=dict.fromkeys(ENDPOINTS, True))


CELLS = [
    cell(name="a", op="dyt:paper"),
    cell(name="b", op="dyt:recommended", unique_tokens=2000),
    cell(name="c", op="derf:paper", size="gpt2-0.4m"),
    cell(name="d", op="derf:paper", size="llama-0.4m", architecture="llama", corpus="plays"),
]


@pytest.mark.parametrize(
    ("by", "left"),
    [
        ("group", ["bcd", "abd", "acd", "abc"]),
        ("scale", ["cd", "ab"]),
        ("op", ["ab", "cd"]),
        ("corpus", ["abc", "d"]),
    ],
)
def test_each_cell_is_predicted_once_by_a_rule_fitted_without_its_fold(by, left):
    spy = Spy()
    held = held_out(spy, CELLS, look=500, by=by)
    assert sorted("".join(names) for names in spy.fitted_on) == sorted(left)
    assert sorted(one.cell.name for one in held) == list("abcd")
    folds = {one.cell.name: one.fold for one in held}
    for names, fold in zip(spy.fitted_on, dict.fromkeys(one.fold for one in held), strict=True):
        assert {name for name, of in folds.items() if of == fold} == set("abcd") - set(names)


def test_a_rule_that_cheats_finds_no_truth_and_no_later_step():
    spy = Spy()
    held = held_out(spy, CELLS, look=500, by="group")
    assert [seen.truth for seen in spy.asked] == [None] * 4
    runs = [run for seen in spy.asked for run in (*seen.baseline_runs, *seen.candidate_runs)]
    assert {run.steps.max() for run in runs} == {500}
    # what is scored has its truth still
    assert all(one.cell.truth for one in held)


class Cheat(Spy):
    def predict(self, seen):
        p = 0.9 if seen.truth["fixed_step"].winner == "candidate" else 0.1
        return Prediction(p=dict.fromkeys(ENDPOINTS, p), answered=dict.fromkeys(ENDPOINTS, True))


def test_a_rule_that_reads_the_truth_falls_over():
    with pytest.raises(TypeError, match="'NoneType' object is not subscriptable"):
        held_out(Cheat(), CELLS, look=500, by="group")


def test_a_cell_of_which_an_arm_diverged_takes_no_part():
    spy = Spy()
    held = held_out(spy, [*CELLS, cell(None, name="gone")], look=500, by="scale")
    assert "gone" not in {name for names in spy.fitted_on for name in names}
    assert [one.cell.name for one in held] == list("abcd")


def test_one_fold_leaves_nothing_to_fit_on():
    with pytest.raises(
        StatisticsError,
        match=r"Holding out by corpus needs two folds at least, got 1 of 3 cells \(stdlib\): none is left to fit on.\n"
        "Add cells of another corpus, or hold out by something else.",
    ):
        held_out(Spy(), CELLS[:3], look=500, by="corpus")
    with pytest.raises(StatisticsError, match="got 0 of 0 cells: none is left"):
        held_out(Spy(), [], look=500, by="group")


@pytest.mark.parametrize("p", [0.0, 1.0, float("nan")])
def test_a_certain_prediction_is_refused(p):
    with pytest.raises(
        StatisticsError,
        match=f"lies inside \\(0, 1\\), got {p} at fixed_step.\nCap it: see .*probability_cap",
    ):
        Prediction(p={"fixed_step": p}, answered={"fixed_step": True})


def test_the_answer_is_the_likelier_outcome_unless_a_rule_says_otherwise():
    plain = Prediction(p={"fixed_step": 0.3}, answered={"fixed_step": True})
    cut = Prediction(p={"fixed_step": 0.3}, answered={"fixed_step": True}, says={"fixed_step": True})  # fmt: skip
    assert (plain.candidate("fixed_step"), cut.candidate("fixed_step")) == (False, True)
