"""Tests of the page of a map: triplepoint.report.map_page and its parts."""

import functools
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from tests.report.test_page import CHROMIUM, check_balance, chromium, figures, own

from triplepoint.errors import RunFolderError
from triplepoint.report import map_page, render, write_report
from triplepoint.report.map_axes import axis_panel
from triplepoint.report.map_contour import zero_line
from triplepoint.report.map_panels import colour_limit, difference_panel
from triplepoint.report.map_rows import candidates_of
from triplepoint.report.map_tables import correlations_of
from triplepoint.report.map_words import headline, sentence_of
from triplepoint.runs import write_arrays, write_json, write_rows

SIZES = {"gpt2-0.1m": 100_000, "gpt2-0.4m": 400_000, "gpt2-0.8m": 800_000}
TOKENS = (20_000, 100_000, 500_000, 1_500_000)
ENDS = ("fixed_step", "best_checkpoint", "matched_train_loss")
NBSP = "\N{NO-BREAK SPACE}"


def effect(value, *, half=0.01, **more):
    """A row of kind effect whose three endpoints have the same value and interval."""
    row = {
        "row": "effect", "arm": "dyt:paper", "baseline": "layernorm", "family": "gpt2", "size": "gpt2-0.1m", "op": "dyt:paper",
        "unique_tokens": 20_000, "train_tokens": 20_000, "params_no_positions": 100_000, "tokens_per_parameter": 0.2,
        "lr": 0.001, "dropout": 0.0, "seeds": 2, "saturation_end": 0.4, "saturation_500": 0.2, "phase": "generalising",
    }  # fmt: skip
    for name in ENDS:
        row |= {name: value, f"{name}_bootstrap_low": value - half, f"{name}_bootstrap_high": value + half}  # fmt: skip
    return row | more


def at(size, tokens):
    params = SIZES[size]
    return {
        "size": size, "unique_tokens": tokens, "train_tokens": tokens, "params_no_positions": params,
        "tokens_per_parameter": tokens / params,
    }  # fmt: skip


def comparison(value, *, seeds=(0, 1), **more):
    """The rows of one cell of a map: runs, pairs and the effect."""
    own = effect(value, **more)
    place = f"{own['size']}_{own['unique_tokens']}_lr{own['lr']:g}"
    for seed in seeds:
        for arm in (own["baseline"], own["arm"]):
            folder = f"cells/{place}_{arm}_{seed}"
            is_baseline = arm == own["baseline"]
            yield {
                **own, "row": "cell", "arm": arm, "baseline": None if is_baseline else own["baseline"], "seed": seed,
                "folder": folder, "identity": f"{place}_{arm}_{seed}", "plateau": 3.2, **dict.fromkeys(ENDS, 2.0),
            }  # fmt: skip
        yield {
            **own, "row": "pair", "seed": seed, "folder": f"cells/{place}_{own['arm']}_{seed}",
            "baseline_folder": f"cells/{place}_{own['baseline']}_{seed}",
        }  # fmt: skip
    yield own


def wave(tokens):
    """An effect that is -4 % at 20k tokens and changes its sign at 10^5.5."""
    return 0.04 * (math.log10(tokens) - 5.5) / (5.5 - math.log10(20_000))


def rows_of(arms=("dyt:paper", "derf:recommended")):
    found = {}
    for number, arm in enumerate(arms):
        for size in SIZES:
            for tokens in TOKENS:
                shift = {"saturation_end": 0.9 - 0.1 * math.log10(tokens), "arm": arm}
                for row in comparison(wave(tokens) + 0.03 * number, **shift, **at(size, tokens)):
                    key = row.get("identity") or f"{row['row']} {arm} {size} {tokens} {row.get('seed')}"  # fmt: skip
                    found[key] = row
    order = ("cell", "pair", "effect")
    return sorted(found.values(), key=lambda row: order.index(row["row"]))


def arrays_of(rows, *, evaluations=30):
    steps = np.arange(1, evaluations + 1) * 50
    losses = 2 + np.exp(-steps / 300) + steps / 20_000
    cells = [row for row in rows if row["row"] == "cell"]
    return {
        f"{row['identity']}|{kind}": values
        for row in cells
        for kind, values in (("steps", steps), ("val_loss", losses))
    }


def rates(count=3, n=3):
    common = {"arm": "dyt:paper", "baseline": "layernorm", "baseline_count": 0, "baseline_n": 3}
    told = {"wilson_low": 0.44, "wilson_high": 1.0, "fisher_p": 0.1, "odds_ratio_low": 0.8, "odds_ratio_high": None}  # fmt: skip
    for level in ("cell", "arm"):
        for tokens in (20_000, 100_000):
            hit = count if tokens == 20_000 else 0
            settings = {"unique_tokens": tokens, "dropout": 0.0} if level == "cell" else None
            yield {"level": level, "settings": settings, "outcome": "collapsed", "count": hit, "n": n, **common, **told}  # fmt: skip


def map_manifest(rows=(), **more):
    cells = [
        {name: row.get(name) for name in ("folder", "arm", "identity")} | {"settings": {"seed": row.get("seed")}}
        for row in rows
        if row["row"] == "cell"
    ]  # fmt: skip
    return {
        "asked": {"kind": "map", "plan": {"name": "Sizes", "grid": [{"op": ["norm", "dyt"]}], "windows": 128}},
        "status": "finished", "version": "0.1.0", "name": "Sizes and data", "command": "triplepoint map run map.toml --out out/map",
        "parameters": "params_no_positions", "cells": cells, "failed": {}, "quarantined": [], "unpaired": [], **more,
    }  # fmt: skip


def page_of(rows, *, arrays=None, summary=None, **more):
    extra = {**(arrays_of(rows) if arrays is None else arrays), "rows": rows, "summary": summary or {}}  # fmt: skip
    return render(map_manifest(rows, **more), [], None, arrays=extra)


@functools.cache
def whole():
    """The page of a whole map with two candidates, which several tests look at."""
    return page_of(rows_of(), summary={"collapse_rates": list(rates())})


def one(rows):
    (candidate,) = candidates_of(rows, "params_no_positions")
    return candidate


def test_a_whole_map_has_all_parts_in_order():
    page = whole()
    order = "phases saturation correlation collapse table plan definitions".split()
    assert re.findall(r'<section id="(\w+)"', page) == order
    names = {f"phase_{i}_0_{end}" for i in (0, 1) for end in ENDS} | {"curves_0", "curves_1"}
    names |= {f"saturation_{i}_saturation_{when}" for i in (0, 1) for when in ("end", "500")}
    names |= {f"scatter_saturation_{when}_{end}" for when in ("end", "500") for end in ENDS[:2]}
    assert set(figures(page)) == names
    check_balance(page)
    assert "<h1>Sizes and data</h1>" in page
    assert "not whole" not in page


def test_headline_counts_cells_by_their_intervals():
    better, worse, undecided = effect(-0.02), effect(0.02, train_tokens=1), effect(0.001)
    undecided |= {"unique_tokens": 5}
    mixed = effect(-0.02, unique_tokens=6, best_checkpoint=0.03)
    mixed |= {"best_checkpoint_bootstrap_low": 0.02, "best_checkpoint_bootstrap_high": 0.04}
    told = sentence_of(one([better, {**worse, "unique_tokens": 4}, undecided, mixed]))
    assert told == (
        "dyt:paper against layernorm: wins in 2 of 4 cells at the fixed step, loses in 1, 1 undecided; "
        "wins in 1 of 4 cells at the best checkpoint, loses in 2, 1 undecided."
    )


@pytest.mark.parametrize(
    ("fixed", "best", "word"),
    [
        ([-0.1, -0.1], [-0.1, -0.1], "Better in every cell"),
        ([0.1, 0.1], [0.1, 0.0], "Better in no cell"),
        ([-0.1, 0.1], [-0.1, 0.1], "Depends on the cell"),
        ([-0.1, 0.0], [0.0, 0.0], "Better in some cells"),
        ([-0.1, 0.1], [0.1, 0.1], "The endpoint decides"),
        ([0.0, 0.0], [0.0, 0.0], "No difference that the intervals show"),
        ([], [], "Nothing to compare yet"),
    ],
)
def test_the_word_follows_from_the_signs_at_both_endpoints(fixed, best, word):
    rows = []
    for tokens, (a, b) in enumerate(zip(fixed, best, strict=True), 1):
        ends = {"best_checkpoint_bootstrap_low": b - 0.01, "best_checkpoint_bootstrap_high": b + 0.01}  # fmt: skip
        rows.append(effect(a, unique_tokens=tokens, best_checkpoint=b, **ends))
    assert headline(candidates_of(rows, "params_no_positions"))[0] == word


def test_the_zero_line_of_a_plane_is_exact_and_stays_within_the_cells():
    a, b, c = 0.7, -1.1, 1.3
    xs, ys = (10, 30, 200, 1000), (5, 20, 100)
    values = {(x, y): a * math.log10(x) + b * math.log10(y) - c for x in xs for y in ys}
    values = {place: v + 0.4 for place, v in values.items()}
    segments = zero_line(values)
    for x, y in [point for segment in segments for point in segment]:
        assert a * math.log10(x) + b * math.log10(y) - c + 0.4 == pytest.approx(0, abs=1e-9)
    # from y = 5 to x = 1000, where the plane enters and leaves the grid, without a gap or an overlap
    enters = (10 ** ((c - 0.4 - b * math.log10(5)) / a), 5)
    leaves = (1000, 10 ** ((c - 0.4 - a * 3) / b))
    assert sum(map(length, segments)) == pytest.approx(length((enters, leaves)))


def length(segment):
    return math.dist(*[[math.log10(v) for v in point] for point in segment])


def test_the_zero_line_does_not_cross_a_gap():
    values = {(x, y): math.log10(x) - 1.5 for x in (1, 10, 100, 1000) for y in (1, 10, 100, 1000)}
    whole = zero_line(values)
    del values[10, 10], values[100, 10]
    kept = zero_line(values)
    assert {round(x, 6) for s in kept for x, _ in s} == {round(10**1.5, 6)}
    # both squares beside the gap are gone: only the part above it is left
    assert min(y for s in kept for _, y in s) == pytest.approx(100)
    assert min(y for s in whole for _, y in s) == pytest.approx(1)


def test_three_corners_make_a_triangle():
    values = {(x, y): math.log10(x * y) - 0.5 for x in (1, 10, 100) for y in (1, 10, 100)}
    del values[10, 10]
    ((x, y), (u, w)) = zero_line(values)[0]
    assert sorted([(round(x, 6), round(y, 6)), (round(u, 6), round(w, 6))]) == [
        (1, round(10**0.5, 6)),
        (round(10**0.5, 6), 1),
    ]


@pytest.mark.parametrize(("xs", "ys"), [((1, 10), (1, 10, 100)), ((1, 10, 100), (1, 10))])
def test_no_zero_line_from_fewer_than_three_by_three(xs, ys):
    assert zero_line({(x, y): math.log10(x) - 0.5 for x in xs for y in ys}) == []


def test_a_diagram_shows_the_cells_and_the_zero_line():
    figure = figures(page_of(rows_of(("dyt:paper",))))["phase_0_0_fixed_step"]
    line, cells = figure["data"]
    assert line["name"] == "zero" and line["mode"] == "lines"
    assert [x for x in line["x"] if x] == pytest.approx([10**5.5] * 12, rel=1e-4)
    assert len(cells["x"]) == 12
    assert dict(zip(zip(cells["x"], cells["y"], strict=True), cells["text"], strict=True))[20_000, 400_000] == "\N{MINUS SIGN}4.0"  # fmt: skip
    assert figure["layout"]["xaxis"]["ticktext"] == ["20k", "100k", "500k", "1.5M"]
    assert figure["layout"]["yaxis"]["type"] == figure["layout"]["xaxis"]["type"] == "log"


def test_colours_are_symmetric_with_white_at_zero():
    rows = [effect(v, unique_tokens=t, train_tokens=t) for t, v in ((1, -0.16), (10, 0.04), (100, 0.0))]  # fmt: skip
    candidate = one(rows)
    limit = colour_limit(candidate.effects, ENDS)
    (cells,) = difference_panel(candidate.effects, "fixed_step", limit)["data"]
    marker = cells["marker"]
    assert limit == pytest.approx(0.16)
    assert (marker["cmin"], marker["cmax"]) == (-1, 1)
    assert marker["color"] == pytest.approx([-1, 0.5, 0])
    assert dict(marker["colorscale"])[0.5] == "#ffffff"
    assert marker["symbol"] == ["square", "square", "circle"]


def test_failed_cells_do_not_bleach_the_others():
    rows = [effect(0.02), effect(0.9, unique_tokens=1, collapsed_seeds=1, stalled_seeds=1)]
    assert colour_limit(one(rows).effects, ENDS) == pytest.approx(0.02)


@pytest.mark.parametrize("outcome", ["collapsed", "stalled", "diverged"])
def test_failed_seeds_are_marked_and_counted(outcome):
    counts = {"collapsed_seeds": 0, "stalled_seeds": 0, "diverged_seeds": 0, f"{outcome}_seeds": 1}
    if outcome == "collapsed":
        counts["stalled_seeds"] = 1
    hit = effect(0.3, **counts)
    if outcome == "diverged":
        hit |= dict.fromkeys([*ENDS, "fixed_step_bootstrap_low", "best_checkpoint_bootstrap_low"])
    candidate = one([effect(0.1), {**hit, "unique_tokens": 7, "train_tokens": 7}])
    data = difference_panel(candidate.effects, "fixed_step", 0.25)["data"]
    (mark,) = [trace for trace in data if trace.get("name") == outcome]
    assert mark["x"] == [7]
    assert f"seeds {outcome}" in mark["customdata"][0][1]
    assert sentence_of(candidate).endswith(f" 1 with a {outcome} seed.")
    texts = [text for trace in data for text in trace.get("text", [])]
    assert texts == ["+10"] if outcome == "diverged" else texts == ["+10", ""]


def test_lines_of_equal_tokens_per_parameter_are_where_they_say():
    layout = figures(page_of(rows_of(("dyt:paper",))))["phase_0_0_fixed_step"]["layout"]
    labels = [note["text"] for note in layout["annotations"]]
    assert labels == ["T/P 0.1", "T/P 1", "T/P 10"]
    for label, line in zip(labels, layout["shapes"], strict=True):
        ratio = float(label.removeprefix("T/P "))
        assert line["x0"] / line["y0"] == pytest.approx(ratio, rel=1e-3)
        assert line["x1"] / line["y1"] == pytest.approx(ratio, rel=1e-3)


def test_images_have_no_tokens_per_parameter():
    candidate = one([effect(0.1, family="vit", tokens_per_parameter=None)])
    layout = difference_panel(candidate.effects, "fixed_step", 0.25)["layout"]
    assert layout["annotations"] == [] and layout["xaxis"]["title"]["text"] == "training images"
    assert "20,000 images" in candidate.effects[0].where


def views(page):
    return json.loads(re.search(r'id="map-views">(.*?)</script>', page, flags=re.S)[1])


def test_a_cell_has_the_curves_of_its_runs_and_of_its_baselines():
    found = views(page_of(rows_of(("dyt:paper",))))
    lines = found["effects"]["0"]["lines"]
    assert [(name, own) for _, name, own in lines] == [
        ("layernorm, seed 0", False), ("layernorm, seed 1", False), ("dyt:paper, seed 0", True), ("dyt:paper, seed 1", True),
    ]  # fmt: skip
    steps, losses = found["curves"][lines[0][0]]
    assert steps[0] == 50 and losses[0] == pytest.approx(2 + math.exp(-1 / 6) + 0.0025, rel=1e-4)
    assert found["effects"]["0"]["plateau"] == 3.2


def test_thinning_a_curve_keeps_its_best_checkpoint():
    rows = list(comparison(0.1))
    arrays = arrays_of(rows, evaluations=1000)
    for name in arrays:
        if name.endswith("val_loss"):
            arrays[name] = arrays[name].copy()
            arrays[name][517] = 0.5
            arrays[name][800] = math.nan
    for steps, losses in views(page_of(rows, arrays=arrays))["curves"].values():
        assert len(steps) <= 121
        assert losses[steps.index(518 * 50)] == 0.5


def rate_rows():
    """Two data sizes, three rates; one place has the main rate only."""
    for tokens in (20_000, 500_000):
        for value, lr in ((0.01, 3e-4), (0.02, 1e-3), (-0.03, 4e-3)):
            yield from comparison(value, lr=lr, **at("gpt2-0.4m", tokens))
    yield from comparison(0.05, **at("gpt2-0.1m", 20_000))


def test_an_axis_with_several_values_at_a_place_is_drawn_as_lines_and_slices():
    rows = list(rate_rows())
    candidate = one(rows)
    assert candidate.axes == ("lr",)
    assert [(dict(s)["lr"], len(effects)) for s, effects in candidate.slices()] == [
        (0.001, 3), (3e-4, 2), (4e-3, 2),
    ]  # fmt: skip
    figure = axis_panel(candidate, "lr", "best_checkpoint")
    assert [line["name"] for line in figure["data"]] == ["20,000 tokens, gpt2-0.4m", "500,000 tokens, gpt2-0.4m"]  # fmt: skip
    assert figure["data"][0]["x"] == [3e-4, 1e-3, 4e-3]
    assert figure["data"][0]["y"] == [0.01, 0.02, -0.03]
    assert figure["data"][0]["error_y"]["array"] == pytest.approx([0.01] * 3)
    assert figure["layout"]["xaxis"]["type"] == "log"
    page = page_of(rows)
    assert "<h3>dyt:paper: learning rate</h3>" in page
    assert "<summary>learning rate 0.004 (2 cells)</summary>" in page
    assert {"phase_0_1_fixed_step", "axis_0_lr_fixed_step"} <= set(figures(page))


def test_a_second_axis_is_drawn_where_the_others_have_their_usual_value():
    grid = [(lr, dropout) for lr in (1e-3, 4e-3) for dropout in (0.0, 0.1)]
    rows = [effect(lr + dropout, lr=lr, dropout=dropout) for lr, dropout in grid]
    rows.append(effect(0.2, lr=1e-3, dropout=0.0, unique_tokens=9, train_tokens=9))
    candidate = one(rows)
    assert candidate.axes == ("dropout", "lr")
    (line,) = axis_panel(candidate, "lr", "fixed_step")["data"]
    assert line["y"] == [0.001, 0.004]
    (line,) = axis_panel(candidate, "dropout", "fixed_step")["data"]
    assert line["y"] == [0.001, 0.101]


def test_steps_that_follow_from_the_data_size_are_no_axis():
    rows = [effect(0.1, steps=3000), effect(0.1, unique_tokens=5, steps=1500)]
    assert one(rows).axes == ()


def test_alphas_of_an_op_are_one_candidate_with_the_preset_as_a_category():
    arms = {None: "dyt:paper", 0.5: "dyt:paper, alpha=0.5", 2.0: "dyt:paper, alpha=2"}
    candidate = one([effect(0.1 * i, arm=arm, alpha=a) for i, (a, arm) in enumerate(arms.items())])
    assert candidate.name == "dyt:paper" and candidate.axes == ("alpha",)
    figure = axis_panel(candidate, "alpha", "fixed_step")
    assert figure["layout"]["xaxis"]["categoryarray"] == ["own", "0.5", "2"]
    assert figure["data"][0]["x"] == ["own", "0.5", "2"]


def test_a_change_of_dropout_alone_is_not_named_like_its_baseline():
    rows = [
        effect(0.1, arm=f"layernorm, dropout={d}", baseline="layernorm", dropout=d)
        for d in (0.1, 0.3)
    ]
    assert one(rows).name == "layernorm with other dropout"


def test_attention_stays_in_the_name_and_is_a_category():
    named = effect(0.1, arm="layernorm, attention=diff_v1", attention="diff_v1")
    shared = [effect(0.1, attention=a) for a in ("diff_v1", "sdpa")]
    first, second = candidates_of([named, *shared], "params_no_positions")
    assert (first.name, second.axes) == ("layernorm, attention=diff_v1", ("attention",))
    assert axis_panel(second, "attention", "fixed_step")["layout"]["xaxis"]["type"] == "category"


def test_rank_correlation_agrees_with_scipy():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9, 2)).round(3)
    rows = [effect(float(v), unique_tokens=i, saturation_end=float(s)) for i, (s, v) in enumerate(values, 1)]  # fmt: skip
    candidates = candidates_of(rows, "params_no_positions")
    found = {(c.saturation, c.endpoint): c for c in correlations_of(candidates)}
    told = found["saturation_end", "fixed_step"]
    expected = scipy.stats.spearmanr(values[:, 0], values[:, 1])
    assert told.n == 9 and told.rho == pytest.approx(expected.statistic)
    # an asymptotic p at nine cells: near, not equal
    assert told.p == pytest.approx(expected.pvalue, abs=0.03)
    # saturation at step 500 is the same in all cells: nothing to correlate
    assert found["saturation_500", "fixed_step"].rho is None


def test_three_cells_have_no_rank_correlation():
    rows = [effect(v, unique_tokens=i, saturation_end=v) for i, v in enumerate((0.1, 0.2, 0.3), 1)]
    candidates = candidates_of(rows, "params_no_positions")
    told = [c for c in correlations_of(candidates) if c.saturation == "saturation_end"]
    assert [(c.n, c.rho, c.p) for c in told] == [(3, None, None)] * 3
    assert "3 cells: too few or all equal" in page_of(rows, arrays={})


def test_rates_of_collapse_have_their_intervals_and_fisher():
    page = own(whole())
    section = page[page.index('id="collapse"') : page.index('id="table"')]
    lines = ["95 %: 44 to 100\N{NO-BREAK SPACE}%", "layernorm: 0 of 3", "Fisher p = 0.1", "odds ratio 0.8 to infinity"]  # fmt: skip
    assert f'<span class="main">3 of 3</span><span class="small">{chr(10).join(lines)}</span>' in section  # fmt: skip
    by_cell = section[section.index('id="table-cell-rates"') :]
    assert "unique tokens 20,000" in by_cell and "unique tokens 100,000" not in by_cell


def test_tables_sort_by_numbers_and_show_both_intervals():
    rows = list(comparison(-0.02, fixed_step_t_low=-0.05, fixed_step_t_high=0.01))
    page = own(page_of(rows))
    table = page[page.index('id="table-effects"') :]
    interval = f"95 %: \N{MINUS SIGN}3.0 to \N{MINUS SIGN}1.0{NBSP}%\nt: \N{MINUS SIGN}5.0 to +1.0{NBSP}%"  # fmt: skip
    assert f'<td data-sort="-0.02"><span class="main">\N{MINUS SIGN}2.0{NBSP}%</span><span class="small">{interval}' in table  # fmt: skip
    assert '<td data-sort="20000">20,000</td>' in table
    assert "All pairs, seed by seed: 2" in table
    pairs = table[table.index('id="table-pairs"') :].partition("</table>")[0]
    assert pairs.count("<tr>") == 3


def test_what_is_missing_is_said():
    rows = rows_of(("dyt:paper",))
    gone = [{"folder": "cells/new", "arm": "dyt:paper", "identity": "x", "settings": {"size": "gpt2-3m", "seed": 1}},
            {"folder": "cells/bad", "arm": "derf", "identity": "y", "settings": {}}]  # fmt: skip
    manifest = map_manifest(rows, status="incomplete", failed={"bad": "out of memory"}, quarantined=["old.damaged-1"], unpaired=["lonely"])  # fmt: skip
    manifest["cells"] += gone
    page = own(render(manifest, [], None, arrays={"rows": rows}))
    assert "48 of 50 cells are done. 1 failed. 1 folder was damaged and set aside. 1 cell has no baseline in the plan." in page  # fmt: skip
    section = page[page.index('<section id="missing"') : page.index('<section id="plan"')]
    for text in ("dyt:paper, size gpt2-3m, seed 1", "bad: out of memory", "old.damaged-1", "lonely"):  # fmt: skip
        assert f"<li>{text}</li>" in section
    assert section.count("<li>") == 4


DEGRADED = {
    "no table": ([], {}),
    "no curves": (rows_of(("dyt:paper",)), {"arrays": {}}),
    "a map just begun": ([], {"status": "running", "cells": [{"folder": "cells/a", "identity": "a"}]}),
    "one cell": (list(comparison(0.1, seeds=(0,))), {}),
    "pairs only lack": ([r for r in rows_of(("dyt:paper",)) if r["row"] != "pair"], {}),
    "all diverged": ([{**r, **{k: None for k in r if k.startswith(ENDS)}, "diverged_seeds": 2} for r in rows_of(("dyt:paper",))], {}),
    "empty columns": ([{k: v if k in ("row", "arm") else None for k, v in r.items()} for r in rows_of(("dyt:paper",))], {"arrays": {}}),
    "few columns": ([{k: v for k, v in r.items() if k in ("row", "arm", *ENDS)} for r in rows_of(("dyt:paper",))], {"arrays": {}}),
    "manifest of nulls": (rows_of(("dyt:paper",)), dict.fromkeys(("status", "name", "command", "parameters", "cells", "failed", "quarantined", "unpaired"))),
    "rates of nulls": (rows_of(("dyt:paper",)), {"summary": {"collapse_rates": [{"level": "arm", "outcome": "stalled", "arm": "dyt"}]}}),
}  # fmt: skip


@pytest.mark.parametrize("case", DEGRADED)
def test_renders_whatever_is_missing(case):
    rows, more = DEGRADED[case]
    page = page_of(rows, **more)
    check_balance(page)
    figures(page)
    text = own(page)
    for word in ("None", "Undefined", "nan", "NaN", "Infinity"):
        assert not re.search(rf"\b{word}\b", text), word


def test_user_text_is_shown_and_not_run():
    evil = "</script><script>alert(1)</script>%{x}"
    page = page_of(
        list(comparison(0.1, arm=evil, size=evil, params_no_positions=5)), name=evil, command=evil
    )
    check_balance(page)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    for name in [line[1] for effect in views(page)["effects"].values() for line in effect["lines"]]:
        assert "<" not in name and "%{" not in name


def map_folder(path, rows, **more):
    columns = {k: None for row in rows for k in row}
    types = {k: next((type(r[k]) for r in rows if r.get(k) is not None), str) for k in columns}
    write_json(path / "manifest.json", map_manifest(rows, **more))
    write_rows(path / "table.parquet", rows, types)
    write_json(path / "summary.json", {"collapse_rates": list(rates())})
    write_arrays(path / "arrays.npz", arrays_of(rows))
    return path


def test_report_is_written_from_the_folder_and_needs_no_torch(tmp_path):
    rows = rows_of(("dyt:paper",))
    folder = map_folder(tmp_path, rows)
    code = (
        "import sys; from triplepoint.report import write_report; write_report(sys.argv[1]);"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=120)
    page = (folder / "report.html").read_text()
    expected = render(map_manifest(rows), [], None, arrays=map_page.read(folder))
    assert page == expected
    assert "Fisher p = 0.1" in page and len(views(page)["curves"]) == 48


def test_a_map_that_has_only_begun_is_reported(tmp_path):
    write_json(tmp_path / "manifest.json", map_manifest(status="running", cells=[{"identity": "a", "arm": "dyt"}]))  # fmt: skip
    page = write_report(tmp_path).read_text()
    assert "0 of 1 cells are done." in page and "Nothing to compare yet" in page


def test_a_damaged_table_is_refused(tmp_path):
    folder = map_folder(tmp_path, rows_of())
    (folder / "table.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(RunFolderError, match="table.parquet cannot be read"):
        write_report(folder)


def test_loads_nothing_from_elsewhere():
    text = own(whole())
    loads = (
        r"""\bsrc\s*=|\bhref\s*=(?!"data:,"|"#)|url\(|@import|\bfetch\b|XMLHttp|import\(|https?:"""
    )
    assert re.findall(loads, text) == []


def test_a_hundred_cells_with_long_curves_stay_small():
    rows = [r for t in range(1, 101) for r in comparison(0.01 * t, unique_tokens=t, train_tokens=t)]
    page = page_of(rows, arrays=arrays_of(rows, evaluations=2000))
    assert len(page.encode()) < 8_000_000


PROBE = """<script>
(function () {
  var said = [];
  said.push(document.documentElement.scrollWidth);
  var table = document.getElementById("table-effects");
  var at = Array.from(table.tHead.rows[0].cells).findIndex(function (c) { return c.textContent === "Fixed step"; });
  function column() { return Array.from(table.tBodies[0].rows).map(function (r) { return Number(r.cells[at].dataset.sort); }); }
  function rises(v) { return v.every(function (x, i) { return !i || v[i - 1] <= x; }); }
  table.tHead.rows[0].cells[at].querySelector("button").click();
  said.push(rises(column()));
  table.tHead.rows[0].cells[at].querySelector("button").click();
  said.push(rises(column().reverse()));
  var block = document.querySelector(".candidate");
  var curves = block.querySelector(".curves .js-plotly-plot");
  said.push(curves.data.filter(function (t) { return t.mode === "lines"; }).length);
  var phase = block.querySelector(".phase .js-plotly-plot");
  var trace = phase.data.findIndex(function (t) { return t.customdata; });
  phase.emit("plotly_hover", { points: [{ customdata: phase.data[trace].customdata[3] }] });
  said.push(block.querySelector("select").value);
  document.title = said.join(" ");
})();
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, pytest.param(500, marks=pytest.mark.slow)])
def test_browser_draws_sorts_and_picks(tmp_path, width):
    page = page_of([*rows_of(("dyt:paper",)), *rate_rows()], summary={"collapse_rates": list(rates())})  # fmt: skip
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", PROBE))
    done = chromium(path, tmp_path / "home", f"--window-size={width},3000", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    for name in figures(page):
        assert re.search(rf'js-plotly-plot" id="figure-{name}"', done.stdout), name
    scroll, rising, falling, lines, picked = re.search(r"<title>(.*)</title>", done.stdout)[1].split()  # fmt: skip
    assert int(scroll) <= width
    # two runs of each arm and the plateau; the fourth cell of the diagram is picked
    assert (rising, falling, lines, picked) == ("true", "true", "5", "3")


@pytest.mark.slow
def test_reads_what_a_map_writes(tmp_path):
    from triplepoint.maps import COLUMNS, MapPlan, run_map

    grid = {"unique_tokens": [2000], "op": ["norm", "dyt:paper"], "lr": [1e-3, 3e-3]}
    defaults = {"size": "gpt2-0.1m", "steps": 6, "context": 16, "batch": 2, "warmup": 1}
    plan = MapPlan.of(name="Two rates", grid=grid, defaults=defaults, windows=4, eval_every=2)
    result = run_map(plan, tmp_path / "map", workers=1)
    page = write_report(result.folder).read_text()
    assert set(result.rows[0]) <= set(COLUMNS)
    assert "4 finished cells" in page and "not whole" not in page
    assert {"phase_0_0_fixed_step", "axis_0_lr_best_checkpoint", "curves_0"} <= set(figures(page))
    assert len(views(page)["curves"]) == 4
    check_balance(page)


def slope(arm, endpoint, value, *, tokens=20_000):
    settings = {"unique_tokens": tokens, "op": arm, "lr": 0.001}
    return {
        "arm": arm, "baseline": "layernorm", "settings": settings, "endpoint": endpoint, "sizes": 3, "n": 6,
        "slope": value, "t_low": value - 0.01, "t_high": value + 0.02,
    }  # fmt: skip


def test_slopes_in_size_are_told_per_data_size_with_their_interval():
    slopes = [
        slope("dyt:paper", "fixed_step", -0.123),
        slope("dyt:paper", "best_checkpoint", 0.03, tokens=1_500_000),
    ]
    page = page_of(rows_of(("dyt:paper",)), summary={"size_slopes": slopes})
    table = page[page.index('id="table-slopes"') :].replace(NBSP, " ")
    table = table[: table.index("</table>")]
    assert "\N{MINUS SIGN}12.3 %" in table
    assert "t: \N{MINUS SIGN}13.3 to \N{MINUS SIGN}10.3 %" in table
    assert "3 sizes, 6 pairs" in table
    assert table.count("<tr>") == 3  # heads, and one line per data size
    assert "+3.0 %" in table


def test_without_slopes_there_is_no_section_of_them():
    assert 'id="table-slopes"' not in page_of(rows_of(("dyt:paper",)))
