"""Tests of the figures: triplepoint.report.losses, .sites and .figures."""

import dataclasses
import json
import math

import plotly.graph_objects as go
import pytest

from triplepoint.records import Record
from triplepoint.report.figures import to_json
from triplepoint.report.losses import HEADROOM, loss_figure
from triplepoint.report.series import index
from triplepoint.report.sites import SHEET, alpha_figure, saturation_figure, shade

PLATEAU = 3.05


def losses(series, **more):
    asked = {
        "plateau": PLATEAU,
        "best_steps": {},
        "fixed_step": 500,
        "planned": None,
        "unit": "nats",
    }
    return loss_figure(series, **{**asked, **more})


@pytest.fixture
def series(screen):
    manifest, records, _ = screen
    return index(records, manifest["arms"])


def drawn(figure):
    return [t for t in figure["data"] if t["x"] != [None]]


@pytest.mark.parametrize("make", [losses, saturation_figure, alpha_figure])
def test_plotly_knows_every_property(series, make):
    # plotly's own validation: it refuses unknown names and values out of range
    go.Figure(make(series))


def test_an_arm_has_one_colour_in_every_figure(series):
    lines = drawn(losses(series))
    alphas = alpha_figure(series)["data"]
    titles = saturation_figure(series)["layout"]["annotations"]
    for arm in series.arms[1:]:
        of_arm = [t for t in lines if t["legendgroup"] == arm.name]
        assert {(t.get("line") or t["marker"])["color"] for t in of_arm} == {arm.colour}
        assert [t for t in alphas if t["legendgroup"] == arm.name][-1]["line"][
            "color"
        ] == arm.colour.lower()
        assert any(arm.colour in title["text"] and arm.name in title["text"] for title in titles)


def test_best_checkpoint_is_marked_where_the_verdict_says_else_at_the_lowest_mean(series):
    def marked(figure):
        return {
            t["legendgroup"]: t["x"][0]
            for t in figure["data"]
            if t.get("meta") == "best checkpoint"
        }

    lowest = {a.name: min(c := series.mean("val_loss", a), key=c.get) for a in series.arms}
    assert marked(losses(series)) == lowest
    assert marked(losses(series, best_steps={"derf": 100})) == {**lowest, "derf": 100}


def test_planned_end_is_drawn_only_within_reach(series):
    def texts(planned):
        return [n["text"] for n in losses(series, planned=planned)["layout"]["annotations"]]

    assert "planned end 550" in texts(550)
    assert not any("planned" in text for text in texts(40_000))
    assert "fixed step = planned end 500" in texts(500)


def test_s1_button_moves_every_trace_and_drops_the_step_lines(series):
    figure = losses(series)
    (menu,) = figure["layout"]["updatemenus"]
    (steps, _), (clock, layout) = (button["args"] for button in menu["buttons"])
    assert len(clock["x"]) == len(steps["x"]) == len(figure["data"])
    assert steps["x"] == [t["x"] for t in figure["data"]]
    # step 500 of the fixture's schedule is S1 = 0.001 * 475
    assert max(x for xs in clock["x"] for x in xs if x is not None) == pytest.approx(0.475)
    assert [shape["y0"] for shape in layout["shapes"]] == [PLATEAU]


def test_without_s1_there_is_no_button(screen):
    manifest, records, _ = screen
    rows = [row for row in records if row.metric != "s1"]
    assert "updatemenus" not in losses(index(rows, manifest["arms"]))["layout"]


def diverging(records):
    for row in records:
        if row.arm == "derf" and row.metric in ("val_loss", "train_loss") and row.step >= 300:
            row = dataclasses.replace(row, value=math.inf if row.step > 400 else 1e4)
        yield row


def test_a_diverging_arm_leaves_the_picture_and_does_not_flatten_the_others(screen):
    manifest, records, _ = screen
    figure = losses(index(diverging(records), manifest["arms"]))
    highest = max(r.value for r in records if r.metric.endswith("_loss") and r.arm == "layernorm")
    assert figure["layout"]["yaxis"]["range"][1] < highest + 2 * HEADROOM
    crosses = [t for t in figure["data"] if t.get("meta") == "last finite loss"]
    assert [(t["legendgroup"], t["x"]) for t in crosses if t["x"] != [None]] == [
        ("derf", [400])
    ] * 2
    squares = [t["legendgroup"] for t in figure["data"] if t.get("meta") == "fixed step"]
    assert "derf" not in squares


def test_json_has_no_number_that_json_lacks(screen):
    manifest, records, _ = screen
    text = to_json(losses(index(diverging(records), manifest["arms"])))

    def refuse(constant):
        raise AssertionError(constant)

    assert None in [y for t in json.loads(text, parse_constant=refuse)["data"] for y in t["y"]]


def test_nothing_measured_is_no_figure():
    empty = index([], {"a": {"role": "baseline"}})
    assert [losses(empty), saturation_figure(empty), alpha_figure(empty)] == [None] * 3


def test_saturation_menu_changes_all_panels_and_starts_at_2(series):
    figure = saturation_figure(series)
    (menu,) = figure["layout"]["updatemenus"]
    shown = menu["buttons"][menu["active"]]
    assert shown["label"].endswith("> 2")
    assert shown["args"][0]["z"] == [trace["z"] for trace in figure["data"]]
    assert {(t["zmin"], t["zmax"]) for t in figure["data"]} == {(0, 1)}


def test_first_site_is_on_top_and_labels_drop_what_all_share(series):
    axis = saturation_figure(series)["layout"]["yaxis"]
    assert axis["autorange"] == "reversed"
    assert axis["ticktext"][0] == "h.0.ln_1"


def test_many_arms_and_sites_still_fit_on_a_sheet():
    rows = [
        Record(metric="saturation@2", value=0.1, step=s, arm=f"arm{a}", seed=0, site=f"layers.{i}")
        for a in range(6)
        for i in range(45)
        for s in range(0, 1300, 10)
    ]
    figure = saturation_figure(index(rows, None))
    assert figure["layout"]["height"] <= SHEET + 60
    assert max(len(trace["x"]) for trace in figure["data"]) <= 120
    assert len(figure["layout"]["yaxis"]["tickvals"]) <= 15


@pytest.mark.parametrize(("factor", "kind"), [(1, None), (20, "log"), (0, None)])
def test_alphas_are_drawn_on_a_log_axis_only_where_they_need_and_allow_it(factor, kind):
    rows = [
        Record(metric="alpha", value=value, step=1, arm="dyt", seed=0, site=site)
        for site, value in (("a", 0.5), ("b", 0.5 * factor))
    ]
    assert alpha_figure(index(rows, None))["layout"]["yaxis"].get("type") == kind


def test_shade_runs_from_a_tint_to_the_colour():
    assert shade("#0072B2", 1) == "#0072b2"
    assert shade("#000000", 0) == "#999999"
