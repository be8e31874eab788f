"""Tests of the page of a grokking run: triplepoint.report.grok and its parts."""

import dataclasses
import math
import re

import numpy as np
import pytest
from tests.report.test_page import CHROMIUM, check_balance, chromium, figures, own, run_folder

from triplepoint.errors import RunFolderError
from triplepoint.records import Record
from triplepoint.report import render, write_report
from triplepoint.report.grok_axes import StepAxis, log_thinned, log_ticks
from triplepoint.report.grok_circles import circle_figure
from triplepoint.runs import write_arrays

STEPS = [0, 10, 20, 50, 100, 200, 500, 1000]
P, K = 7, 3


def run_records(*, grok=500, **where):
    """A run that has memorised at step 10 and generalises at step ``grok``."""
    for step in STEPS:
        at = {"step": step, **where}
        values = {
            "train_accuracy": 1.0 if step >= 10 else 0.1, "val_accuracy": 1.0 if step >= grok else 0.02,
            "refit_val_accuracy": 1.0 if step >= grok / 2 else 0.03,
            "train_loss": 0.0 if step >= 10 else 0.5, "val_loss": 0.5 / (1 + step / 100),
            "complexity": 200 - step / 10, "norm_sq": 400 - step / 5, "slow_time": step / 1000,
            "cosine_tangent": 0.8, "cosine_weights": 0.3, "speed_ratio": 0.9, "validity": 1e-3 * (1 + step),
            "tau": 0.5, "fourier_norm_cv": 0.03,
        }  # fmt: skip
        yield from (Record(metric=m, value=v, **at) for m, v in values.items())
        for site in ("0.weight", "2.weight"):
            yield Record(metric="weight_norm_sq", value=200 - step / 10, site=site, **at)
        for k in range(1, K + 1):
            yield Record(metric="fourier_power", value=k / 6, site=f"k={k}", **at)
    yield Record(metric="T_mem", value=10, step=10, **where)
    if grok <= STEPS[-1]:
        for site in ("0.5", "0.9", "0.99"):
            yield Record(metric="T_grok", value=grok, step=grok, site=site, **where)


def times(*, grok=500):
    met = {"step": 10, "censored_at": None, "slow_time": 0.01, "seconds": 0.5}
    at = {"step": grok, "censored_at": None, "slow_time": (grok or 0) / 1000, "seconds": 90.0}
    never = {"step": None, "censored_at": 1000, "slow_time": None, "seconds": None}
    return {"T_mem": met} | {f"T_grok_{x}": at if grok else never for x in ("0.5", "0.9", "0.99")}


def grok_manifest(command="simulate", **more):
    return {
        "asked": {"kind": "grok", "command": command}, "status": "finished", "version": "0.1.0",
        "task": "a + b, p=7", "samples": {"train": 20, "val": 8}, "times": times(),
        "scope": "Bias-free two-layer nets with squared error.",
        "applies": [{"part": "softmax collapse", "applies": False, "reason": "the loss is squared error"}],
        "metrics": {"train_loss": {"definition": "mean over entries", "unit": "mse", "source": "this library"}},
        **more,
    }  # fmt: skip


def circles(steps=STEPS, *, radii=(1.0, 2.0, 3.0)):
    angle = 2 * np.pi * np.outer(np.arange(1, K + 1), np.arange(P)) / P
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1) * np.array(radii)[:, None, None]
    return {
        "circle_steps": np.array(steps),
        "circle_k": np.arange(1, K + 1),
        "circle_points": np.stack([points / (1 + s) for s in steps]),
    }


def toy_manifest():
    expected = {"w": 0.995, "train_floor": 1e-4, "test_floor": 5e-5, "fit_steps": 6.4, "drift_steps": 1323.3}  # fmt: skip
    half = expected | {"train_floor": 4e-4, "drift_steps": 661.0}
    ends = [
        {"lam": lam, "theta": [0.995, 0.995], "train_loss": 1e-4, "norm_sq": 1.98, "sigma_min": 1.4,
         "towards_singular": False, "expected": e} for lam, e in ((0.01, expected), (0.02, half))
    ]  # fmt: skip
    return grok_manifest(
        "toy", times=None, applies=None, task=None, toy={"name": "addition", "ends": ends}
    )


def toy_records():
    for lam in (0.01, 0.02):
        for step in STEPS:
            for metric in ("train_loss", "val_loss", "norm_sq", "sigma_min"):
                yield Record(metric=metric, value=1 / (1 + step), step=step, arm=f"lam={lam}")


def lines(figure, label):
    return [t for t in figure["data"] if t.get("hovertemplate", "").split("<br>")[0] == label]


def test_a_whole_run_has_all_parts_in_order():
    page = own(render(grok_manifest(), list(run_records()), None, arrays=circles()))
    assert set(figures(page)) == {"curves", "norms", "tangent", "power", "circles"}
    order = "times curves norms tangent power circles numbers applies plan metrics".split()
    assert re.findall(r'<section id="(\w+)"', page) == order
    assert "Memorised at step 10, generalises at step 500, slow time t = 0.5." in page
    assert "Scope: Bias-free two-layer nets with squared error." in page
    assert "the loss is squared error" in page and "mean over entries" in page


def test_step_zero_has_a_place_on_the_logarithmic_axis():
    figure = figures(render(grok_manifest(), list(run_records()), None))["curves"]
    axis = figure["layout"]["xaxis"]
    (line,) = lines(figure, "validation")[:1]
    assert axis["type"] == "log" and axis["ticktext"][0] == "0"
    assert line["x"][0] == pytest.approx(axis["tickvals"][0], rel=1e-4)
    assert 10 ** axis["range"][0] < line["x"][0] < line["x"][1] == 10
    assert [step for step, _ in line["customdata"]] == ["0", "10", "20", "50", "100", "200", "500", "1,000"]  # fmt: skip


def test_marks_stand_at_their_steps():
    figure = figures(render(grok_manifest(), list(run_records()), None))["curves"]
    uprights = [s["x0"] for s in figure["layout"]["shapes"] if s.get("yref") == "paper"]
    assert uprights == [10, 500]
    texts = {n["text"]: n["x"] for n in figure["layout"]["annotations"]}
    assert texts["T<sub>mem</sub> = 10"] == pytest.approx(1)
    assert texts["T<sub>grok</sub> = 500"] == pytest.approx(math.log10(500))


def test_a_loss_of_zero_is_drawn_at_the_edge_and_told_as_it_is():
    figure = figures(render(grok_manifest(), list(run_records()), None))["curves"]
    loss = [t for t in lines(figure, "train") if t["yaxis"] == "y2"][0]
    assert loss["y"][:2] == pytest.approx([0.5, 0.5e-8])
    assert loss["customdata"][1] == ["10", "0"]


def test_losses_that_are_all_zero_get_a_linear_axis():
    rows = [
        dataclasses.replace(r, value=0.0) if r.metric in ("train_loss", "val_loss") else r
        for r in run_records()
    ]
    figure = figures(render(grok_manifest(), rows, None))["curves"]
    assert "type" not in figure["layout"]["yaxis2"]
    assert figure["layout"]["xaxis"]["type"] == "log"


@pytest.mark.parametrize(
    ("declared", "word", "sentence"),
    [
        (times(grok=None), "Memorised, not generalising",
         "Memorised at step 10; does not generalise within 1,000 steps: validation accuracy is 100.0\N{NO-BREAK SPACE}% at its end."),
        ({"T_mem": {"step": None, "censored_at": 1000}}, "Still fitting",
         "Training accuracy has not stayed at 99 % within 1,000 steps."),
        ({"T_mem": {"step": 0}, "T_grok_0.99": {"step": 0}}, "Generalises",
         "Memorised from the start, generalises at step 0."),
    ],
)  # fmt: skip
def test_headline_says_the_phase_in_plain_words(declared, word, sentence):
    page = own(render(grok_manifest(times=declared), list(run_records()), None))
    assert f'<p class="word">{word}</p>' in page
    assert f'<p class="headline">{sentence}</p>' in page


def test_a_censored_time_is_shown_as_later_than():
    page = own(render(grok_manifest(times=times(grok=None)), list(run_records()), None))
    assert page.count("&gt; 1,000") == 3
    assert "steps: not met by the end" in page


def test_several_seeds_have_a_line_each_and_their_own_times():
    rows = [
        r for s, grok in ((0, 200), (1, 500), (2, 5000)) for r in run_records(grok=grok, seed=s)
    ]
    page = own(render(grok_manifest(seeds=[0, 1, 2]), rows, None))
    assert "2 of 3 runs generalise" in page
    assert "3 of 3 runs memorise at step 10, 2 generalise between steps 200 and 500, 1 did not within 1,000 steps." in page  # fmt: skip
    curves = figures(page)["curves"]
    assert all(len(lines(curves, f"seed {seed}: validation")) == 2 for seed in (0, 1, 2))
    assert curves["layout"]["shapes"] == []
    assert len(figures(page)["power"]["data"]) == 3


def test_a_missing_time_is_not_called_censored_where_the_threshold_was_met():
    rows = [r for s in (0, 1) for r in run_records(seed=s) if r.metric not in ("T_mem", "T_grok")]
    page = own(render(grok_manifest(times=None), rows, None))
    assert "&gt; 1,000" not in page


def test_arms_have_their_colours_and_dashes_tell_the_metrics():
    rows = [r for arm in ("wd=1", "wd=2") for r in run_records(arm=arm)]
    figure = figures(render(grok_manifest(arms={"wd=1": {}, "wd=2": {}}), rows, None))["curves"]
    of = {arm: lines(figure, f"{arm}: validation")[0]["line"] for arm in ("wd=1", "wd=2")}
    assert of["wd=1"]["color"] != of["wd=2"]["color"]
    assert {line["dash"] for line in of.values()} == {"solid"}
    assert lines(figure, "wd=1: train")[0]["line"]["dash"] == "dot"


def test_one_checkpoint_has_numbers_and_bars_but_no_curves():
    rows = [
        dataclasses.replace(r, step=None)
        for r in run_records()
        if r.step == 1000 and r.metric != "T_grok"
    ]
    page = own(render(grok_manifest("analyse", times=None), rows, None, arrays=circles([1000])))
    assert set(figures(page)) == {"power", "circles"}
    assert figures(page)["power"]["data"][0]["type"] == "bar"
    assert "sliders" not in figures(page)["circles"]["layout"]
    assert "Training accuracy 100.0\N{NO-BREAK SPACE}%, validation accuracy 100.0" in page
    assert 'id="times"' not in page


def test_a_fast_forward_counts_gradients():
    rows = [r for r in run_records() if r.metric in ("complexity", "val_accuracy")]
    page = own(render(grok_manifest("fast-forward", times=None), rows, None))
    assert "After 1,000 gradients: validation accuracy 100.0" in page
    assert figures(page)["curves"]["layout"]["xaxis"]["title"]["text"] == "gradients, logarithmic"
    assert 'id="times"' not in page


def test_a_toy_has_its_floors_and_its_closed_form():
    page = own(render(toy_manifest(), list(toy_records()), None))
    assert "At lambda = 0.01 the fit is done after 6 steps, the drift after 1,323; at 0.02 after 6 and 661." in page  # fmt: skip
    figure = figures(page)["toy"]
    levels = {(s["yref"], s["y0"]) for s in figure["layout"]["shapes"]}
    assert levels == {("y", 1e-4), ("y", 4e-4), ("y2", 5e-5)}
    assert figure["layout"]["yaxis"]["type"] == figure["layout"]["xaxis"]["type"] == "log"
    assert re.search(r"<th>Drift until step</th><td>1,323</td><td>661</td>", page)


def test_a_toy_without_closed_form():
    manifest = toy_manifest()
    for end in manifest["toy"]["ends"]:
        end["expected"] = None
    page = own(render(manifest, [r for r in toy_records() if r.metric != "val_loss"], None))
    assert figures(page)["toy"]["layout"]["shapes"] == []
    assert "Floor of" not in page and "0.995, 0.995" in page


BROKEN = {
    "no records": lambda m, r, a: (m, [], {}),
    "no arrays": lambda m, r, a: (m, r, {}),
    "just begun": lambda m, r, a: ({"asked": m["asked"], "status": "running"}, [], {}),
    "manifest of nulls": lambda m, r, a: ({**dict.fromkeys(m), "asked": m["asked"]}, r, a),
    "times of nulls": lambda m, r, a: ({**m, "times": dict.fromkeys(m["times"])}, r, a),
    "nothing finite": lambda m, r, a: (
        m,
        [
            dataclasses.replace(x, value=math.nan if i % 2 else math.inf)
            for i, x in enumerate(r)
            if x.metric[:2] != "T_"
        ],
        {**a, "circle_points": a["circle_points"] * math.nan},
    ),
    "diverged": lambda m, r, a: (
        m,
        [
            dataclasses.replace(x, value=math.nan)
            if x.step > 100 and x.metric in ("val_loss", "complexity", "fourier_power")
            else x
            for x in r
        ],
        {**a, "circle_points": np.where(np.arange(P)[:, None] == 2, np.inf, a["circle_points"])},
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("command", ["simulate", "train", "analyse", "fast-forward", "toy"])
def test_renders_whatever_is_missing(case, command):
    manifest, records, arrays = BROKEN[case](grok_manifest(command), list(run_records()), circles())
    page = render(manifest, records, None, arrays=arrays)
    check_balance(page)
    figures(page)
    for word in ("None", "Undefined", "nan", "NaN", "Infinity"):
        assert not re.search(rf"\b{word}\b", own(page)), word


def test_user_text_is_shown_and_not_run():
    evil = "</script><script>alert(1)</script>%{x}"
    rows = [
        dataclasses.replace(r, site=evil, arm=evil) if r.site == "0.weight" else r
        for r in run_records()
    ]
    page = render(grok_manifest(task=evil, scope=evil), rows, None)
    check_balance(page)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page


def test_circles_are_drawn_in_units_of_their_radius_with_residues_in_order():
    figure = circle_figure(circles([0, 10]))
    # radii 1, 2, 3: root mean square sqrt(14 / 3)
    first = figure["data"][0]
    assert first["x"][0] == pytest.approx(1 / math.sqrt(14 / 3), abs=1e-3)
    assert figure["data"][1]["customdata"] == [0, 4, 1, 5, 2, 6, 3, 0]  # k = 2: 4 * 2 = 1 mod 7
    (slider,) = figure["layout"]["sliders"]
    assert [s["label"] for s in slider["steps"]] == ["0", "10"] and slider["active"] == 1
    moved, said = slider["steps"][0]["args"]
    assert moved["x"][0][0] == first["x"][0]
    assert list(said.values()) == ["step 0<br>radius 2.16"]


def test_only_the_largest_circles_are_drawn_by_ascending_frequency():
    radii = [0.1, 0.1, 0.1, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    points = np.ones((1, 9, P, 2)) * np.array(radii)[:, None, None]
    arrays = {"circle_steps": np.array([0]), "circle_k": np.arange(1, 10), "circle_points": points}
    found = circle_figure(arrays)
    titles = [n["text"] for n in found["layout"]["annotations"]]
    assert titles == [f"k = {k}" for k in range(4, 10)]


def test_heat_map_has_a_cell_border_half_way_between_steps():
    figure = figures(render(grok_manifest(), list(run_records()), None))["power"]
    (heat,) = figure["data"]
    assert heat["type"] == "heatmap" and heat["y"] == [1, 2, 3]
    assert len(heat["x"]) == len(STEPS) + 1
    assert heat["x"][5] == pytest.approx(math.sqrt(100 * 200), rel=1e-4)
    assert heat["z"][2] == [0.5] * len(STEPS) and heat["customdata"][0][-1] == "1,000"
    assert heat["zmax"] == pytest.approx(2 / 3, rel=1e-4)  # twice the equal share of 3 frequencies


@pytest.mark.parametrize(
    ("steps", "labels"),
    [
        ([0, 25, 3000], ["0", "50", "100", "200", "500", "1k", "2k"]),
        ([1, 10**6], ["1", "10", "100", "1k", "10k", "100k", "1M"]),
        ([0], ["0", "1"]),
        ([7, 8], ["7", "8"]),
    ],
)
def test_ticks_of_the_step_axis(steps, labels):
    assert list(StepAxis(steps).ticks().values()) == labels


def test_log_ticks_and_thinning_keep_to_their_limits():
    for most in range(2, 9):
        assert len(log_ticks(1e-9, 3.0, most)) <= most
    kept = log_thinned(range(0, 100_001), 100)
    assert kept[0] == 0 and kept[-1] == 100_000 and 50 < len(kept) <= 101
    assert kept[:4] == [0, 1, 2, 3]


def grok_folder(path, *, arrays=None, **manifest):
    folder = run_folder(path, grok_manifest(**manifest), list(run_records()), None)
    write_arrays(folder / "arrays.npz", circles() if arrays is None else arrays)
    return folder


def test_is_rebuilt_from_its_folder(tmp_path):
    folder = grok_folder(tmp_path)
    page = write_report(folder).read_text(encoding="utf-8")
    assert page == render(grok_manifest(), list(run_records()), None, arrays=circles())
    assert set(figures(page)) == {"curves", "norms", "tangent", "power", "circles"}


def test_refuses_arrays_that_do_not_fit(tmp_path):
    folder = grok_folder(tmp_path, arrays=circles() | {"circle_k": np.arange(2)})
    with pytest.raises(RunFolderError, match=r"circle_points has shape \(8, 3, 7, 2\).*\nA file"):
        write_report(folder)
    (folder / "arrays.npz").write_bytes(b"PK")
    with pytest.raises(RunFolderError, match=r"arrays.npz cannot be read"):
        write_report(folder)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_browser_draws_every_figure_and_follows_a_dark_page(tmp_path):
    page = render(grok_manifest(), list(run_records()), None, arrays=circles())
    probe = (
        "<script>document.title = [document.documentElement.scrollWidth,"
        " document.getElementById('figure-curves').layout.paper_bgcolor]</script></body>"
    )
    dark = "--blink-settings=preferredColorScheme=0"
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", probe))
    done = chromium(path, tmp_path / "home", "--window-size=1280,3000", "--dump-dom", dark)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    for name in figures(page):
        assert re.search(rf'js-plotly-plot" id="figure-{name}"', done.stdout), name
    width, paper = re.search(r"<title>(\d+),(#\w+)</title>", done.stdout).groups()
    assert int(width) <= 1280
    assert figures(page)["curves"]["layout"]["paper_bgcolor"] == "#ffffff"
    assert paper == "#15181c"


AHEAD = {
    "fast_forward": {"test_accuracy": 0.9876, "complexity": 82.94, "gradients": 65},
    "isolated_slow_time_to_99": None,
    "will_it_grok": {"words": "Expect it."},
    "forecast": {"words": "Between here and there.", "excluded": {"some law": "not <given>"}},
}


def test_what_lies_ahead_is_said_with_the_laws_that_say_nothing(tmp_path):
    row = Record(metric="val_accuracy", value=0.5, unit="share", step=1)
    manifest = {
        "asked": {"kind": "grok", "command": "analyse"},
        "status": "finished",
        "metrics": {},
    }
    page = render({**manifest, "ahead": AHEAD}, [row], None)
    for part in (
        "held-out accuracy 98.8% at C = 82.9 after 65 gradients", "no 99 % within slow time 6",
        "Expect it.", "Between here and there.", "some law", "not &lt;given&gt;",
    ):  # fmt: skip
        assert part in page
    assert 'id="ahead"' not in render({**manifest, "ahead": None}, [row], None)
