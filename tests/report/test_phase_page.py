"""Tests of triplepoint.report.phase_page: the picture of a log's phases."""

import math
import re

import pytest
from tests.report.test_page import CHROMIUM, check_balance, chromium, figures

from triplepoint.report import render
from triplepoint.report.phase_page import drawn


def manifest(**more):
    spans = [
        {"from_step": 0, "to_step": 20, "phase": "fitting", "reason": "it falls"},
        {"from_step": 30, "to_step": 50, "phase": None, "reason": "both rose"},
        {"from_step": 60, "to_step": 60, "phase": "memorised", "reason": "by heart"},
    ]
    curve = [[0, 30, 60], [3.0, None, 1.0]]
    return {
        "asked": {"kind": "phase"}, "log": "a <log>.csv", "kind": "CSV", "rows": 7, "columns": {"val_loss": "val/loss"},
        "phase": "memorised", "reason": "by heart", "phases": spans, "best": {"step": 60, "val_loss": 1.0},
        "overfitting": None, "times": {"T_mem": {"step": 30, "censored_at": None}}, "plateau": 2.5, "next": "Train on.",
        "lines": ["Best step: 60."], "curves": {"val_loss": curve, "train_accuracy": curve, "lr": curve}, **more,
    }  # fmt: skip


def test_bands_reach_to_the_next_phase_and_an_untold_one_has_none():
    figure = figures(render(manifest(), [], None))["curves"]
    bands = [(s["x0"], s["x1"]) for s in figure["layout"]["shapes"] if s["type"] == "rect"]
    assert bands == [(0, 30), (60, 60)]


def test_each_panel_has_its_axis_and_what_is_known_is_marked():
    figure = figures(render(manifest(), [], None))["curves"]
    assert [line["yaxis"] for line in figure["data"]] == ["y", "y2", "y3"]
    titles = [figure["layout"][f"yaxis{n}"]["title"]["text"] for n in ("", "2", "3")]
    assert titles == ["loss", "accuracy", "learning rate"]
    texts = [note["text"] for note in figure["layout"]["annotations"]]
    assert texts == ["best 60", "T<sub>mem</sub> 30", "plateau"]
    # no mark is under the grid, whose line at the same step would hide it
    marks = [s for s in figure["layout"]["shapes"] if s["type"] == "line"]
    assert len(marks) == 3 and {s["layer"] for s in marks} == {"above"}


def test_a_run_without_losses_has_no_plateau_to_mark():
    page = render(manifest(curves={"val_accuracy": [[1, 2], [0.1, 0.2]]}, best=None), [], None)
    texts = [note["text"] for note in figures(page)["curves"]["layout"]["annotations"]]
    assert texts == ["T<sub>mem</sub> 30"]


def test_a_long_curve_is_thinned_and_keeps_its_lowest_point():
    points = [(step, 2.0) for step in range(5000)]
    points[1234] = (1234, 1.0)
    steps, values = drawn(points)
    assert len(steps) <= 401
    assert (steps[0], steps[-1]) == (0, 4999)
    assert values[steps.index(1234)] == 1.0
    assert drawn([(1, math.nan), (2, math.inf)]) == [[1, 2], [None, None]]


def test_names_from_a_log_are_no_markup():
    page = render(manifest(), [], None)
    check_balance(page)
    assert "a &lt;log&gt;.csv" in page and "a <log>" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_browser_draws_the_figure_without_complaint(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render(manifest(), [], None))
    done = chromium(path, tmp_path / "home", "--window-size=1280,2000", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert re.search('js-plotly-plot" id="figure-curves"', done.stdout)


def test_labels_at_the_edge_lie_inside_the_picture():
    """The best step is the last here, and the plateau is as high as its label."""
    notes = figures(render(manifest(), [], None))["curves"]["layout"]["annotations"]
    sides = {n["text"].split()[0]: (n["x"], n["xanchor"]) for n in notes}
    assert sides == {"best": (60, "right"), "T<sub>mem</sub>": (30, "left"), "plateau": (0, "left")}
