"""Tests of the page of an inspection: triplepoint.report.spectra and its parts."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from tests.report.test_page import CHROMIUM, check_balance, chromium, figures, own, run_folder

from triplepoint.records import Record
from triplepoint.report import render, write_report
from triplepoint.report.spectra_activations import dead_units, site_table, whole_numbers
from triplepoint.report.spectra_density import density_view, histogram
from triplepoint.report.spectra_profiles import depth_figure
from triplepoint.report.spectra_roles import ROLES, SYMBOLS, role_of
from triplepoint.report.spectra_rows import sheets_of
from triplepoint.report.spectra_tables import change_table, unmatched
from triplepoint.report.spectra_words import headline
from triplepoint.runs import write_arrays

SMALL = "the best tail has 31 eigenvalues, fewer than 50"
VALUES = {
    # name: shape, exponent, heavy, spikes, stable rank, effective rank, log10 of the largest eigenvalue
    "wte": ((256, 100), 1.5, 0, 3, 2.0, 60.0, 2.0),
    "h.0.attn.c_attn": ((300, 100), 2.5, 1, 5, 20.0, 80.0, 1.0),
    "h.0.mlp.c_fc": ((400, 100), None, 0, 0, 30.0, 90.0, 0.5),
    "h.1.attn.c_attn": ((300, 100), 3.5, 1, 7, 10.0, 70.0, 1.2),
    "h.1.mlp.c_fc": ((400, 100), None, 0, 1, 40.0, 95.0, 0.6),
    "lm_head": ((256, 100), None, 0, 0, 25.0, 85.0, 0.4),
}


def told(*, arm=None, step=None, names=VALUES, name="weights.safetensors"):
    matrices = [
        {
            "name": n, "tensor": f"{n}.weight", "kind": "embedding" if n == "wte" else "matrix",
            "shape": list(VALUES[n][0]), "below_range": 2,
            "reasons": {} if VALUES[n][1] else {"tail_exponent": SMALL, "heavy_tailed": SMALL},
            "fit": {"tail_exponent": VALUES[n][1], "tail_xmin": 4.0, "tail_size": 60.0, "bulk_edge": 3.0}
            if VALUES[n][1] else {"bulk_edge": 3.0},
        } for n in names
    ]  # fmt: skip
    reasons = ["a vector: it has no spectrum"] * 4 + ["the same tensor as wte.weight"]
    skipped = [{"name": f"s{i}", "shape": [4], "reason": r} for i, r in enumerate(reasons)]
    return {
        "name": name,
        "arm": arm,
        "step": step,
        "matrices": matrices,
        "skipped": skipped,
        "left_out": ["optimizer"],
    }


def inspect_manifest(*inspections, **more):
    return {
        "asked": {"kind": "inspect"}, "status": "finished", "version": "0.1.0", "command": "triplepoint inspect w",
        "inspections": list(inspections or [told()]),
        "metrics": {"stable_rank": {"definition": "sum over the largest", "unit": "dimensions", "source": "R and V"}},
        **more,
    }  # fmt: skip


def records_of(*, arm=None, step=None, times=1.0, names=VALUES):
    for name in names:
        shape, exponent, heavy, spikes, stable, effective, log = VALUES[name]
        values = {
            "non_finite_rows": 0.0, "heavy_tailed": float(heavy), "spikes": float(spikes), "stable_rank": stable * times,
            "effective_rank": effective * times, "log_spectral_norm": log,
        }  # fmt: skip
        at = {"site": name, "arm": arm, "step": step, "n": min(shape)}
        yield from (Record(metric=m, value=v, **at) for m, v in values.items())
        if exponent is not None:
            yield Record(
                metric="tail_exponent",
                value=exponent,
                low=exponent - 0.3,
                high=exponent + 0.4,
                **at,
            )
            yield Record(metric="tail_size", value=60.0, **at)


def arrays_of(numbers=(0,), names=VALUES):
    edges = np.geomspace(1.0, 100.0, 101)
    counts = np.zeros(100, dtype=int)
    counts[[0, 1, 50, 99]] = 40, 30, 27, 1
    return {
        f"{k}|density|{n}|{part}": array
        for k in numbers for n in names
        for part, array in (("edges", edges), ("counts", counts), ("null_counts", counts[::-1].copy()))
    }  # fmt: skip


def one():
    return inspect_manifest(), list(records_of()), arrays_of()


def compared():
    names = [n for n in VALUES if n != "lm_head"]
    manifest = inspect_manifest(told(arm="before", step=5), told(arm="after", step=5, names=names))
    records = [
        *records_of(arm="before", step=5),
        *records_of(arm="after", step=5, times=0.5, names=names),
    ]
    return manifest, records, arrays_of((0, 1))


def trajectory():
    manifest = inspect_manifest(told(step=100), told(step=200))
    records = [*records_of(step=100), *records_of(step=200, times=0.5)]
    return manifest, records, arrays_of((0, 1))


ACTIVATIONS = [
    Record(metric="val_loss", value=2.5), Record(metric="train_val_gap", value=-0.25),
    Record(metric="noise_stability@0.1", value=3.0),
    Record(metric="saturation@2", value=0.25, site="h.0.ln_1"), Record(metric="activation_rank", value=12.0, site="h.0.ln_1"),
    Record(metric="dead_units", value=0.0, site="h.0.attn.c_attn"), Record(metric="dead_units", value=0.5, site="h.0.mlp.c_fc"),
]  # fmt: skip


def page_of(manifest, records, arrays):
    return render(manifest, records, None, arrays=arrays)


def views(page):
    return json.loads(re.search(r'id="views">(.*?)</script>', page, flags=re.S)[1])


# --- the page


def test_parts_are_there_in_order():
    page = own(page_of(one()[0], [*one()[1], *ACTIVATIONS], one()[2]))
    check_balance(page)
    assert set(figures(page)) == {"density", "depth"}
    order = "density depth activations matrices skipped plan metrics".split()
    assert re.findall(r'<section id="(\w+)"', page) == order
    assert '<p class="word">2 of 6 matrices are heavy-tailed</p>' in page
    assert "Their exponents go from 2.50 to 3.50. 3 have no exponent" in page
    assert (
        "sum over the largest" in page
        and "over-trained" not in page
        and "under-trained" not in page
    )


def test_the_most_notable_come_first_everywhere():
    # heavy tails, then spikes, then the rest; within each the lowest stable rank per side
    order = ["h.1.attn.c_attn", "h.0.attn.c_attn", "wte", "h.1.mlp.c_fc", "lm_head", "h.0.mlp.c_fc"]
    page = page_of(*one())
    assert [view["name"] for view in views(page)] == order
    assert re.findall(r'<tr><th data-sort="([^"]+)"', page) == order
    assert re.findall(r'class="thumb[^>]* title="([^"]+)"', page) == order
    assert page.count('class="thumb heavy"') == 2


def test_refused_exponents_say_why_and_given_ones_their_interval():
    page = page_of(*one())
    assert '<span class="main">2.50</span><span class="small">2.20 to 2.90</span>' in page
    assert '<span class="main">–</span><span class="small">tail of 31 &lt; 50</span>' in page


def test_rows_that_are_not_finite_are_the_headline():
    manifest, records, arrays = one()
    bad = {("wte", "non_finite_rows"): 3.0}
    records = [dataclasses.replace(r, value=bad.get((r.site, r.metric), r.value)) for r in records]
    page = page_of(manifest, records, arrays)
    assert '<div class="verdict unsafe">\n<p class="word">3 rows are not finite</p>' in page
    assert "In wte entries are inf or nan." in page
    assert views(page)[0]["name"] == "wte" and "Rows not finite" in page


def test_skipped_tensors_are_counted_by_reason():
    page = page_of(*one())
    assert re.search(r"a vector: it has no spectrum</th><td class=\"number\">4<", page)
    assert "the same tensor as another, measured under that name" in page
    assert "Keys of the file that hold no weights: optimizer." in page
    assert "s0 (4) and 3 more" in page


def test_before_and_after():
    page = page_of(*compared())
    check_balance(page)
    assert set(figures(page)) == {"density", "depth"}
    assert (
        "Heavy-tailed: 2 before, 2 after, of 5 matrices. Median stable rank: 20.0 before, 10.0 after."
        in page
    )
    assert '<span class="main">20.00 → 10.00</span><span class="small">↓ −50%</span>' in page
    assert '<span class="main">2.50 → 2.50</span><span class="small">unchanged</span>' in page
    assert '<span class="site">lm_head</span>: only in the checkpoint before' in page
    before, *_ = figures(page)["density"]["data"]
    assert before["name"] == "before" and len(before["x"]) > 0
    faint = [t for t in figures(page)["depth"]["data"] if "opacity" in t]
    assert faint and not any(t["showlegend"] for t in faint)


def test_trajectory_along_the_steps():
    page = page_of(*trajectory())
    check_balance(page)
    drawn = figures(page)["trajectory"]["data"]
    ranks = next(t for t in drawn if t["yaxis"] == "y2" and "h.0.attn.c_attn" in t["hovertemplate"])
    assert (ranks["x"], ranks["y"]) == ([100, 200], [20.0, 10.0])
    assert '<p class="word">Steps 100 to 200</p>' in page
    assert "Median stable rank: 22.5 at step 100, 11.2 at step 200." in page


DEGRADED = {
    "no records": lambda m, r, a: (m, [], a),
    "no arrays": lambda m, r, a: (m, r, {}),
    "just begun": lambda m, r, a: ({"asked": {"kind": "inspect"}, "status": "running"}, [], {}),
    "nothing measured": lambda m, r, a: (inspect_manifest({**told(), "matrices": []}), [], {}),
    "one metric": lambda m, r, a: (m, [x for x in r if x.metric == "stable_rank"], a),
    "no null": lambda m, r, a: (m, r, {k: v for k, v in a.items() if "null" not in k}),
    "not finite": lambda m, r, a: (m, [dataclasses.replace(x, value=math.nan) for x in r], a),
    "no blocks": lambda m, r, a: (inspect_manifest(told(names=["wte", "lm_head"])), r, a),
}  # fmt: skip


@pytest.mark.parametrize("case", DEGRADED)
def test_renders_whatever_is_missing(case):
    page = page_of(*DEGRADED[case](*one()))
    check_balance(page)
    for word in ("None", "Undefined", "nan", "NaN", "Infinity"):
        assert not re.search(rf"\b{word}\b", own(page)), word


def test_user_text_is_shown_and_not_run():
    evil = "</script><script>alert(1)</script>%{x}"
    VALUES_WITH = {**VALUES, evil: VALUES["wte"]}
    manifest, records, arrays = one()
    manifest["inspections"][0]["name"] = evil
    manifest["inspections"][0]["matrices"][0]["name"] = evil
    records = [dataclasses.replace(r, site=evil) if r.site == "wte" else r for r in records]
    page = page_of(manifest, records, {**arrays, **arrays_of(names=VALUES_WITH)})
    check_balance(page)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page


def test_is_written_into_the_folder_from_its_files(tmp_path):
    manifest, records, arrays = one()
    run_folder(tmp_path, manifest, records, None)
    write_arrays(tmp_path / "arrays.npz", arrays)
    assert write_report(tmp_path).read_text(encoding="utf-8") == page_of(manifest, records, arrays)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_browser_draws_picks_and_sorts_without_complaint(tmp_path):
    page = page_of(*compared())
    probe = """<script>
      document.querySelectorAll(".thumb")[1].click();
      document.querySelectorAll("#table-matrices thead button")[0].click();
      document.title = [document.documentElement.scrollWidth, document.getElementById("picker").value,
        document.getElementById("picked-says").textContent.split(";")[0],
        document.querySelector("#table-matrices tbody th").dataset.sort].join("|");
    </script></body>"""
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", probe))
    done = chromium(path, tmp_path / "home", "--window-size=1280,3000", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    for name in figures(page):
        assert re.search(rf'js-plotly-plot" id="figure-{name}"', done.stdout), name
    width, picked, says, first = re.search(r"<title>(.*?)</title>", done.stdout)[1].split("|")
    assert int(width) <= 1280
    assert (picked, says, first) == ("1", "h.0.attn.c_attn: qkv, 300 x 100", "h.0.attn.c_attn")


# --- parts


def test_histogram_joins_bins_where_eigenvalues_are_few():
    bars = histogram(arrays_of(), "0|density|wte", "counts")
    # 98 eigenvalues: 2 sqrt(98) = 19.8, so 20 bins of 5
    assert len(bars) == 20
    assert bars[0][:2] == pytest.approx((1.0, 10 ** (2 * 5 / 100)))
    assert [n for *_, n in bars if n] == [70, 27, 1]
    assert histogram({}, "0|density|wte", "counts") == []


def test_the_fitted_line_has_the_area_of_its_tail():
    (sheet,) = sheets_of(inspect_manifest(), records_of())
    view = density_view(next(r for r in sheet.rows if r.name == "h.0.attn.c_attn"), arrays_of(), 0)
    (x0, x1), (y0, y1) = view["x"][3], view["y"][3]
    # 60 of 98 + 2 eigenvalues; at xmin the density is 0.6 (alpha - 1) / xmin, and the slope is -alpha
    assert (x0, y0) == pytest.approx((4.0, 0.6 * 1.5 / 4.0))
    assert math.log(y1 / y0) / math.log(x1 / x0) == pytest.approx(-2.5, abs=1e-3)
    assert view["marks"] == [["xmin", 4.0], ["noise bulk ends", 3.0]]
    assert view["says"].startswith(
        "h.0.attn.c_attn: qkv, 300 x 100; exponent 2.50 (2.20 to 2.90) over 60 eigenvalues; heavier"
    )
    assert view["says"].endswith("2 eigenvalues too small to draw.")


def test_depth_has_a_place_for_what_is_outside_the_blocks():
    figure = figures(page_of(*one()))["depth"]
    assert figure["layout"]["xaxis"]["ticktext"] == ["in", "0", "1", "out"]
    (exponents,) = [t for t in figure["data"] if t["name"] == "qkv" and t["yaxis"] == "y"]
    assert exponents["y"] == [2.5, 3.5]
    assert exponents["error_y"]["array"] == pytest.approx([0.4, 0.4])
    (open_mark,) = [t for t in figure["data"] if t["name"] == "embedding" and t["yaxis"] == "y"]
    assert open_mark["marker"]["symbol"] == ["star-open"]
    (norm,) = [t for t in figure["data"] if t["name"] == "embedding" and t["yaxis"] == "y4"]
    assert norm["y"] == [10.0]  # the root of 10^2


@pytest.mark.parametrize(
    ("logs", "kind", "dtick"),
    [
        ((2.0, 2.4), "linear", None),  # norms of 10 to 16: on a logarithmic axis no 1, 2 or 5
        ((0.0, 3.0), "log", "D2"),
        ((-30.0, 20.0), "log", 5),  # 25 decades
    ],
)
def test_every_axis_has_some_ticks_and_not_too_many(logs, kind, dtick):
    names = list(VALUES)[: len(logs)]
    found = {name: log for name, log in zip(names, logs, strict=True)}
    records = [
        dataclasses.replace(r, value=found[r.site]) if r.metric == "log_spectral_norm" else r
        for r in records_of(names=names)
    ]
    (sheet,) = sheets_of(inspect_manifest(told(names=names)), records)
    axis = depth_figure(sheet)["layout"]["yaxis4"]
    assert (axis["type"], axis.get("dtick")) == (kind, dtick)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.layers.0.self_attn.q_proj", "q"), ("encoder.layer.3.attention.self.key", "k"),
        ("h.0.attn.c_attn[v]", "v"), ("gpt_neox.layers.1.attention.query_key_value", "qkv"),
        ("encoder.layer.0.attention.output.dense", "attention out"), ("encoder.layer.0.output.dense", "mlp out"),
        ("encoder.layer.0.intermediate.dense", "mlp in"), ("blocks.0.attn.proj", "attention out"),
        ("model.layers.0.mlp.down_proj", "mlp out"), ("model.layers.0.mlp.gate_proj", "mlp in"),
        ("lm_head", "head"), ("features.3", "other"),
    ],
)  # fmt: skip
def test_roles_follow_the_usual_names(name, role):
    assert role_of(name, "matrix") == role
    assert set(SYMBOLS) == set(ROLES) >= {role}


def test_changes_are_ordered_by_size_and_missing_values_are_none():
    manifest, records, _ = compared()
    extra = {("h.0.mlp.c_fc", "after", "spikes"): 10.0}
    records = [
        dataclasses.replace(r, value=extra.get((r.site, r.arm, r.metric), r.value)) for r in records
    ]
    before, after = sheets_of(manifest, records)
    table = change_table(before, after)
    # 0 -> 10 spikes is 100 % of the larger value; all others changed by half
    assert table.lines[0].row.name == "h.0.mlp.c_fc"
    spikes = table.lines[0].cells[table.heads.index("Spikes")]
    assert (spikes.main, spikes.small) == ("0 → 10", "↑ +100%")
    assert table.lines[0].cells[0] == ("–", "", None)
    assert unmatched(before, after) == [("lm_head", "only in the checkpoint before")]


def test_nothing_measured_is_said():
    assert headline([])[0] == "Nothing measured"


def test_what_data_show():
    assert whole_numbers(ACTIVATIONS)[:2] == [
        ("Validation loss, nats", "2.5000"), ("Gap: validation minus training, nats", "−0.2500")
    ]  # fmt: skip
    assert whole_numbers(ACTIVATIONS)[2][1] == "3.00"
    heads, rows = site_table(ACTIVATIONS)
    assert heads == ["saturated", "effective rank"]
    assert rows == [("h.0.ln_1", ["25.0\N{NO-BREAK SPACE}%", "12.0"])]
    assert dead_units(ACTIVATIONS).startswith(
        "1 of 2 linear layers have dead inputs, most of all h.0.mlp.c_fc: 50.0"
    )
    assert dead_units(ACTIVATIONS[:-1]) == "None of the 1 linear layers has dead inputs."
    assert dead_units([]) == ""
