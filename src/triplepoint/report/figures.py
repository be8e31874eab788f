"""The loss figure, and what all figures share: fonts, axes, JSON.

A figure is a plain dict in plotly's own schema, ``{"data": [...], "layout": {...}}``: no figure object is
needed to write JSON, and building one would cost more than the rest of the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from triplepoint.report.formats import count, known, loss
from triplepoint.report.series import Arm, Curve, Series, last, lowest, thinned

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, GRID = "#22262b", "#5b636d", "#e9ebee"
POINTS = 400
"""Points of a drawn line; more cannot be told apart at the width of a page."""
HEADROOM = 0.35
"""Nats above plateau and the baseline's start that the loss axis shows; a diverging arm runs out of it."""
CLOCKS = (("Steps", "optimiser steps"), ("S1 clock", "S1, the cumulative learning rate"))


def to_json(figure: Mapping) -> str:
    """Return the JSON of a figure, safe inside a script element."""
    return json.dumps(figure, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def rounded(value: float | None) -> float | None:
    """Return ``value`` with five digits, None where JSON has no number for it."""
    return float(f"{value:.5g}") if known(value) else None


def axis(title: str = "", **more: object) -> dict:
    """Return an axis in the page's style."""
    style = {"gridcolor": GRID, "zeroline": False, "linecolor": "#b9bfc6", "ticks": "outside",
             "tickcolor": "#b9bfc6", "ticklen": 4, "automargin": True}  # fmt: skip
    return {**style, "title": {"text": title, "standoff": 10}, **more}


def layout(height: int, **more: object) -> dict:
    """Return a layout in the page's style."""
    style = {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "margin": {"l": 64, "r": 24, "t": 64, "b": 52},
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "bgcolor": "#ffffff"},
        "modebar": {"orientation": "v", "bgcolor": "rgba(255,255,255,0)"},
    }
    return {**style, **more}


def menu(buttons: list[dict], *, kind: str = "buttons", active: int = 0) -> dict:
    """Return a row of buttons or a dropdown at the top right of a figure."""
    return {
        "type": kind, "direction": "right" if kind == "buttons" else "down", "active": active,
        "buttons": buttons, "showactive": True, "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom",
        "pad": {"b": 30, "t": 0}, "bgcolor": "#ffffff", "bordercolor": "#c9ced4", "font": {"size": 12},
    }  # fmt: skip


def note(text: str, **more: object) -> dict:
    """Return an annotation without arrow."""
    return {"text": text, "showarrow": False, "font": {"size": 12, "color": MUTED}, **more}


def loss_figure(
    series: Series,
    *,
    plateau: float | None,
    best_steps: Mapping[str, int],
    fixed_step: int | None,
    planned: int | None,
    unit: str,
) -> dict | None:
    """Return the loss curves of all arms, with a button for the S1 clock where ``s1`` was measured.

    Args:
        series: The run.
        plateau: Loss of a network that ignores its input, on the validation windows; None where unknown.
        best_steps: Arm -> step of its best checkpoint; where an arm is missing, the lowest mean.
        fixed_step: Step of the fixed endpoint; None for the last step measured.
        planned: Planned steps, drawn where they are within reach of the curves.
        unit: Unit of the losses.

    Returns:
        The figure; None where no loss was measured.
    """
    traces, clocks = [], []
    for arm in series.arms:
        for trace, clock in _arm_traces(series, arm, best_steps.get(arm.name), fixed_step):
            traces.append(trace)
            clocks.append(clock)
    steps = [x for trace in traces for x in trace["x"] if x is not None]
    if not steps:
        return None
    keys = _legend_keys(traces)
    marks = _marks(plateau, _line_of(series, fixed_step), planned, max(steps))
    figure = layout(
        480,
        xaxis=axis(CLOCKS[0][1], rangemode="tozero", hoverformat=",d"),
        yaxis=axis(f"loss, {unit}", hoverformat=".3f", range=_loss_range(series, plateau)),
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left",
                "font": {"size": 12}, "itemsizing": "trace", "entrywidth": 0},  # fmt: skip
        hovermode="closest",
        **marks[0],
    )
    if any(x is not None for clock in clocks for x in clock):
        xs = [[trace["x"] for trace in traces], clocks]
        figure["updatemenus"] = [menu(_clock_buttons(xs, len(keys), marks))]
    return {"data": traces + keys, "layout": figure}


def _arm_traces(series: Series, arm: Arm, best_step: int | None, fixed_step: int | None) -> list:
    """Return (trace in steps, the same points' S1) of one arm: seeds, means, then markers."""
    clock = series.mean("s1", arm)
    traces = []
    for metric, dash, label in (("val_loss", "solid", "validation"), ("train_loss", "dot", "train")):
        curves = series.whole.get((metric, arm.key), {})
        for seed in series.seeds(arm) if len(curves) > 1 else []:
            line = {"color": arm.colour, "width": 1, "dash": dash}
            traces.append(_line(arm, curves.get(seed, {}), f"{label}, seed {seed}", line, opacity=0.35))
        wide = {"color": arm.colour, "width": 2.5 if dash == "solid" else 1.8, "dash": dash}
        over = f"{label}, mean of {len(curves)} seeds" if len(curves) > 1 else label
        traces.append(_line(arm, series.mean(metric, arm), over, wide))
    mean = series.mean("val_loss", arm)
    best = best_step or (lowest(mean) or (None,))[0]
    for step, symbol, what in (
        (best, "circle-open", "best checkpoint"),
        (fixed_step or (last(mean) or (None,))[0], "square", "fixed step"),
    ):
        traces.append(_marker(arm, mean, step, symbol, what))
    for curve in series.whole.get(("val_loss", arm.key), {}).values():
        if not all(map(known, curve.values())):
            traces.append(_marker(arm, curve, _last_finite(curve), "x-thin-open", "stopped being finite after"))
    return [(trace, [rounded(clock.get(x)) for x in trace["x"]]) for trace in traces if trace]


def _line(arm: Arm, curve: Curve, label: str, line: dict, opacity: float = 1) -> dict | None:
    if not curve:
        return None
    steps = thinned(curve, POINTS)
    return {
        "type": "scatter", "mode": "lines", "name": arm.name, "legendgroup": arm.name, "showlegend": False,
        "x": steps, "y": [rounded(curve[step]) for step in steps], "line": line, "opacity": opacity,
        "hovertemplate": f"{_hover(arm.name)}, {label}<br>step %{{x}}: %{{y:.3f}}<extra></extra>",
    }  # fmt: skip


def _marker(arm: Arm, curve: Curve, step: int | None, symbol: str, what: str) -> dict | None:
    finite = [s for s, value in curve.items() if known(value)]
    if step is None or not finite:
        return None
    near = min(finite, key=lambda s: abs(s - step))
    return {
        "type": "scatter", "mode": "markers", "name": arm.name, "legendgroup": arm.name,
        "showlegend": False, "x": [near], "y": [rounded(curve[near])],
        "marker": {"symbol": symbol, "size": 11 if "open" in symbol else 8, "color": arm.colour,
                   "line": {"width": 2.5, "color": arm.colour}},
        "hovertemplate": f"{_hover(arm.name)}: {what}<br>step %{{x}}: %{{y:.3f}}<extra></extra>",
        "meta": what,
    }  # fmt: skip


def _hover(name: str) -> str:
    # plotly reads a few tags and %{...} in hover texts; a name is to be shown as it is
    return name.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def _last_finite(curve: Curve) -> int | None:
    return max((step for step, value in curve.items() if known(value)), default=None)


def _legend_keys(traces: Sequence[dict]) -> list[dict]:
    """Return entries that name the arms' colours, then line styles and symbols, drawing nothing."""
    base = {"type": "scatter", "x": [None], "y": [None], "hoverinfo": "skip"}
    colours = {trace["name"]: (trace.get("line") or trace["marker"])["color"] for trace in traces}
    keys = [
        {**base, "mode": "lines", "name": _hover(name), "legendgroup": name, "line": {"color": colour, "width": 3}}
        for name, colour in colours.items()
    ]
    for name, dash in (("validation", "solid"), ("train", "dot")):
        keys.append({**base, "mode": "lines", "name": name, "line": {"color": MUTED, "width": 1.8, "dash": dash}})
    symbols = {trace["meta"]: trace["marker"]["symbol"] for trace in traces if "meta" in trace}
    for what, symbol in symbols.items():
        marker = {"symbol": symbol, "size": 8, "color": MUTED, "line": {"width": 2, "color": MUTED}}
        label = "diverged" if "finite" in what else what
        keys.append({**base, "mode": "markers", "name": label, "marker": marker})
    return keys


def _line_of(series: Series, fixed_step: int | None) -> int | None:
    ends = [last(series.mean("val_loss", arm)) for arm in series.arms]
    return fixed_step or max((end[0] for end in ends if end), default=None)


def _marks(plateau: float | None, fixed_step: int | None, planned: int | None, end: int) -> list[dict]:
    """Return shapes and annotations for the step axis, then for the S1 axis (the plateau only)."""
    level = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": MUTED, "width": 1.2, "dash": "dash"}}
    upright = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": "#9aa2ab", "width": 1}}
    shapes, notes = [], []
    if known(plateau):
        shapes.append({**level, "y0": plateau, "y1": plateau})
        text = f"unigram plateau {loss(plateau)}"
        notes.append(note(text, xref="paper", x=1, y=plateau, xanchor="right", yanchor="bottom"))
    both = {"shapes": shapes, "annotations": notes}
    steps = [(fixed_step, "fixed step"), (planned, "planned end")]
    lines = [(s, what) for s, what in steps if s and s <= 1.15 * end]
    if len({s for s, _ in lines}) < len(lines):
        lines = [(fixed_step, "fixed step = planned end")]
    uprights = [{**upright, "x0": s, "x1": s} for s, _ in lines]
    labels = [
        note(f"{what} {count(s)}", x=s, yref="paper", y=0.99, xanchor="right", yanchor="top", xshift=-4)
        for s, what in lines
    ]
    return [{"shapes": shapes + uprights, "annotations": notes + labels}, both]


def _clock_buttons(xs: list[list], keys: int, marks: list[dict]) -> list[dict]:
    return [
        {
            "label": label,
            "method": "update",
            "args": [
                {"x": x + [[None]] * keys},
                {"xaxis.title.text": title, "xaxis.autorange": True, **mark},
            ],
        }
        for (label, title), x, mark in zip(CLOCKS, xs, marks, strict=True)
    ]


def _loss_range(series: Series, plateau: float | None) -> list[float] | None:
    """Return the loss axis: all of the curves up to a bit above plateau and the baseline's start."""
    curves = {
        arm: [v for m in ("val_loss", "train_loss") for c in series.whole.get((m, arm.key), {}).values()
              for v in c.values() if known(v)]
        for arm in series.arms
    }  # fmt: skip
    values = [v for arm in curves for v in curves[arm]]
    if not values:
        return None
    calm = next((curves[arm] for arm in series.arms if arm.is_baseline and curves[arm]), values)
    top = min(max(values), max(max(calm), plateau if known(plateau) else 0) + HEADROOM)
    low = min(min(values), top)
    margin = 0.05 * (top - low) or 0.1
    return [rounded(low - margin), rounded(top + margin)]
