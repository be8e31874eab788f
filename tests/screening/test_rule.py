"""Tests of triplepoint.screening.rule and rulebook: what is fitted, on what, and what ships."""

import dataclasses

import numpy as np
import pytest

from triplepoint.evidence import ENDPOINTS, benchmark, held_out
from triplepoint.screening.rule import LatenessRule, capped, s1_end, tempered
from triplepoint.screening.rulebook import MiniatureRecord, RuleBook, Track, shipped

CELLS = benchmark()
KNOWN = [cell for cell in CELLS if cell.truth is not None]
FEW = [cell for cell in KNOWN if cell.setting.scale == "0.1m"]


def poisoned(cell):
    """The same beginning with another end: what a rule must not see."""
    runs = {
        arm: tuple(
            dataclasses.replace(run, val=np.where(run.steps <= 500, run.val, 99.0), train=np.where(run.steps <= 500, run.train, 99.0))
            for run in getattr(cell, arm)
        )
        for arm in ("baseline_runs", "candidate_runs")
    }  # fmt: skip
    return dataclasses.replace(cell, truth=None, **runs)


def test_a_prediction_does_not_depend_on_the_end():
    rule = LatenessRule().fit(FEW, 500)
    cell = next(c for c in KNOWN if c.setting.scale == "0.4m")
    assert rule.predict(cell.seen(500)) == rule.predict(poisoned(cell).seen(500))


def test_a_fit_does_not_depend_on_cells_left_out():
    held = held_out(LatenessRule(), KNOWN, look=500, by="scale")
    one = next(h for h in held if h.fold == "0.4m")
    others = [c for c in KNOWN if c.setting.scale != "0.4m"]
    assert one.prediction == LatenessRule().fit(others, 500).predict(one.cell.seen(500))


def test_temperature_and_threshold_come_from_groups_left_out():
    # one group alone: its inner fold has no pair to fit on, so the laws there are the priors
    group = FEW[0].setting.group
    alone = [c for c in FEW if c.setting.group == group]
    rule = LatenessRule().fit(alone, 500)
    assert set(rule.temperatures) == set(ENDPOINTS)
    assert rule.laws != LatenessRule().fit([], 500).laws


def test_a_probability_is_capped_by_the_answers_that_back_it():
    rule = LatenessRule().fit(KNOWN, 500)
    for cell in KNOWN:
        p = rule.predict(cell.seen(500)).p
        for endpoint in ENDPOINTS:
            cap = rule.caps[endpoint]
            assert 1 - cap <= p[endpoint] <= cap
            assert cap <= (len(KNOWN) + 1) / (len(KNOWN) + 2)


def test_a_pair_that_cannot_be_read_is_not_answered():
    cell = KNOWN[0]
    found = LatenessRule().fit(FEW, 500).forecast(cell.seen(50))
    assert found.outlook is None
    assert not any(found.answered.values())
    assert set(found.p.values()) == {0.5}


def test_the_clock_at_the_end_is_the_schedules():
    cell = KNOWN[0]
    assert s1_end(cell.setting, cell.setting.lr) == pytest.approx(float(cell.baseline_runs[0].s1[-1]), rel=1e-6)  # fmt: skip


def test_tempering_and_capping():
    assert tempered(0.8, 1.0) == pytest.approx(0.8)
    assert tempered(0.2, 2.0) == pytest.approx(1 - tempered(0.8, 2.0))
    assert (capped(0.999, 0.9), capped(0.001, 0.9), capped(0.5, 0.9)) == (0.9, pytest.approx(0.1), 0.5)  # fmt: skip


def test_what_ships_is_what_the_benchmark_gives():
    book = shipped()
    assert [c.name for c in book.cells] == [c.name for c in KNOWN]
    for look in (500, 1000):
        fitted = LatenessRule().fit(KNOWN, look)
        for name, law in fitted.laws.items():
            assert book.rules[look].laws[name].coefficients == pytest.approx(law.coefficients)
        assert book.rules[look].temperatures == pytest.approx(fitted.temperatures)
        assert book.rules[look].thresholds == pytest.approx(fitted.thresholds)


def test_a_book_comes_back_from_its_file(tmp_path):
    book = shipped()
    book.write(tmp_path / "book.json")
    assert RuleBook.read(tmp_path / "book.json") == book


def test_the_record_counts_clear_answered_cells_of_the_family():
    book = shipped()
    for endpoint in ENDPOINTS:
        track = book.track(500, endpoint)
        assert 0 <= track.right <= track.answered <= track.cells
        assert track.cells == sum(c.truth[endpoint].clear for c in KNOWN)
        family = book.track(500, endpoint, architecture="gpt2")
        assert family.cells <= track.cells
    assert book.track(500, "fixed_step", architecture="none such") == book.track(500, "fixed_step")


@pytest.mark.parametrize(
    ("right", "answered", "architecture", "decides"),
    [(5, 5, "gpt2", True), (4, 4, "gpt2", False), (4, 6, "gpt2", False), (16, 16, "gpt2", True), (16, 16, "llama", False)],
)  # fmt: skip
def test_an_answer_in_miniature_needs_a_record_of_its_own(right, answered, architecture, decides):
    track = Track(right=right, answered=answered, cells=answered)
    record = MiniatureRecord(architectures=("gpt2",), said={"fixed_step": {"candidate": track}})
    assert record.decides("fixed_step", "candidate", architecture) == decides
    assert MiniatureRecord.of(dataclasses.asdict(record)) == record
