"""The loss curves of all arms, along steps or along the cumulative learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triplepoint.report.figures import MUTED, POINTS, axis, escaped, layout, menu, note, rounded
from triplepoint.report.formats import count, known, loss
from triplepoint.report.series import Arm, Curve, Series, at, lowest, thinned

HEADROOM = 0.35
"""Nats above the plateau and the baseline's highest loss that the axis shows; a diverging arm leaves it."""
LOSSES = (("val_loss", "validation", "solid", 2.5), ("train_loss", "train", "dot", 1.8))
"""Metric, label, dash and width of its mean line."""
CLOCKS = (("Steps", "optimiser steps"), ("S1 clock", "S1, the cumulative learning rate"))
"""Label of the button and title of the axis."""


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
        fixed_step: Step of the fixed endpoint; None where there is none to mark.
        planned: Planned steps, drawn where they are within reach of the curves.
        unit: Unit of the losses.

    Returns:
        The figure; None where no loss was measured.
    """
    bounds = _loss_range(series, plateau)
    if bounds is None:
        return None
    pairs = [
        pair
        for arm in series.arms
        for pair in _arm_traces(series, arm, best_steps.get(arm.name), fixed_step, bounds[1])
    ]
    traces, clocks = [trace for trace, _ in pairs], [clock for _, clock in pairs]
    keys = _legend_keys(traces)
    reach = 1.15 * max(step for trace in traces for step in trace["x"])
    marks = _marks(plateau, [("fixed step", fixed_step), ("planned end", planned)], reach)
    figure = layout(
        480,
        xaxis=axis(CLOCKS[0][1], rangemode="tozero"),
        yaxis=axis(f"loss, {unit}", hoverformat=".3f", range=bounds),
        legend={"orientation": "h", "x": 0, "y": -0.17, "yanchor": "top", "font": {"size": 12}},
        **marks[0],
    )
    if any(x is not None for clock in clocks for x in clock):
        xs = [[trace["x"] for trace in traces], clocks]
        figure["updatemenus"] = [menu(_clock_buttons(xs, len(keys), marks))]
    return {"data": traces + keys, "layout": figure}


def _loss_range(series: Series, plateau: float | None) -> list[float] | None:
    """Return the loss axis: all curves, up to a bit above the plateau and the baseline's highest."""
    finite = {arm: _finite_losses(series, arm) for arm in series.arms}
    values = [value for arm in finite for value in finite[arm]]
    if not values:
        return None
    calm = next((finite[arm] for arm in finite if arm.is_baseline and finite[arm]), values)
    top = min(max(values), max([*calm, plateau] if known(plateau) else calm) + HEADROOM)
    low = min(min(values), top)
    margin = 0.05 * (top - low) or 0.1
    return [rounded(low - margin), rounded(top + margin)]


def _finite_losses(series: Series, arm: Arm) -> list[float]:
    curves = [c for m, *_ in LOSSES for c in series.whole.get((m, arm.key), {}).values()]
    return [value for curve in curves for value in curve.values() if known(value)]


def _arm_traces(
    series: Series, arm: Arm, best: int | None, fixed: int | None, top: float
) -> list[tuple[dict, list]]:
    """Return (trace, S1 of its points) of one arm: single seeds, means, then markers."""
    traces = []
    for metric, label, dash, width in LOSSES:
        curves = series.whole.get((metric, arm.key), {})
        line = {"color": arm.colour, "dash": dash}
        if len(curves) > 1:
            for seed, curve in curves.items():
                thin = {**line, "width": 1}
                traces.append(_line(arm, curve, f"{label}, seed {seed}", thin, opacity=0.35))
            label = f"{label}, mean of {len(curves)} seeds"
        traces.append(_line(arm, series.mean(metric, arm), label, {**line, "width": width}))
    mean = series.mean("val_loss", arm)
    best = best if best is not None else (lowest(mean) or (None,))[0]
    traces.append(_marker(arm, mean, best, "circle-open", "best checkpoint", top))
    # an arm that ended early has no loss at the fixed step
    if fixed is not None and known(at(mean, fixed)):
        traces.append(_marker(arm, mean, fixed, "square", "fixed step", top))
    traces += [_marker(arm, c, _last_finite(c), "x-thin-open", "last finite loss", top)
               for c in series.whole.get(("val_loss", arm.key), {}).values() if _broke(c)]  # fmt: skip
    clock = series.mean("s1", arm)
    return [(trace, [rounded(at(clock, x)) for x in trace["x"]]) for trace in traces if trace]


def _broke(curve: Curve) -> bool:
    return not all(map(known, curve.values()))


def _last_finite(curve: Curve) -> int | None:
    return max((step for step, value in curve.items() if known(value)), default=None)


def _line(arm: Arm, curve: Curve, label: str, line: dict, opacity: float = 1) -> dict | None:
    if not curve:
        return None
    steps = thinned(curve, POINTS)
    return {
        "type": "scatter", "mode": "lines", "name": escaped(arm.name), "legendgroup": arm.name,
        "showlegend": False, "x": steps, "y": [rounded(curve[step]) for step in steps],
        "customdata": steps, "line": line, "opacity": opacity,
        "hovertemplate": f"{escaped(arm.name)}, {label}<br>step %{{customdata}}: %{{y:.3f}}<extra></extra>",
    }  # fmt: skip


def _marker(
    arm: Arm, curve: Curve, step: int | None, symbol: str, what: str, top: float
) -> dict | None:
    """Return a marker on the curve at the measured step next to ``step``, at the edge if beyond ``top``."""
    finite = [s for s, value in curve.items() if known(value)]
    if step is None or not finite:
        return None
    near = min(finite, key=lambda s: abs(s - step))
    size = 8 if symbol == "square" else 11
    return {
        "type": "scatter", "mode": "markers", "name": escaped(arm.name), "legendgroup": arm.name,
        "showlegend": False, "x": [near], "y": [rounded(min(curve[near], top))], "cliponaxis": False,
        "marker": {"symbol": symbol, "size": size, "color": arm.colour,
                   "line": {"width": 2.5, "color": arm.colour}},
        "hovertemplate": f"{escaped(arm.name)}: {what}<br>step {near}: {loss(curve[near])}<extra></extra>",
        "meta": what,
    }  # fmt: skip


def _legend_keys(traces: Sequence[dict]) -> list[dict]:
    """Return entries that name the arms' colours, then line styles and symbols, and draw nothing."""
    empty = {"type": "scatter", "x": [None], "y": [None], "hoverinfo": "skip"}
    lines = [trace for trace in traces if trace["mode"] == "lines"]
    colours = {t["legendgroup"]: (t["name"], t["line"]["color"]) for t in lines}
    keys = [
        {**empty, "mode": "lines", "name": name, "legendgroup": arm, "line": {"color": colour, "width": 3}}
        for arm, (name, colour) in colours.items()
    ]  # fmt: skip
    for _, name, dash, _ in LOSSES:
        line = {"color": MUTED, "width": 1.8, "dash": dash}
        keys.append({**empty, "mode": "lines", "name": name, "line": line})
    for what, symbol in {t["meta"]: t["marker"]["symbol"] for t in traces if "meta" in t}.items():
        marker = {"symbol": symbol, "size": 8, "color": MUTED, "line": {"width": 2, "color": MUTED}}
        keys.append({**empty, "mode": "markers", "name": what, "marker": marker})
    return keys


def _marks(plateau: float | None, steps: Sequence[tuple[str, int | None]], reach: float) -> list:
    """Return shapes and notes for the step axis, then those for the S1 axis: the plateau only."""
    level = {"shapes": [], "annotations": []}
    if known(plateau):
        line = {"color": MUTED, "width": 1.2, "dash": "dash"}
        level["shapes"].append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "layer": "below",
                                "y0": plateau, "y1": plateau, "line": line})  # fmt: skip
        text = f"unigram plateau {loss(plateau)}"
        level["annotations"].append(note(text, xref="paper", x=1, y=plateau, xanchor="right",
                                         yanchor="bottom", bgcolor="rgba(255,255,255,0.85)"))  # fmt: skip
    names: dict[int, str] = {}
    for name, step in steps:
        if step is not None and step <= reach:
            names[step] = f"{names[step]} = {name}" if step in names else name
    uprights = [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": step, "x1": step,
                 "layer": "below", "line": {"color": "#9aa2ab", "width": 1}} for step in names]  # fmt: skip
    # one below the other, so that close lines keep readable labels
    labels = [note(f"{name} {count(step)}", x=step, yref="paper", y=0.99 - 0.06 * place, xanchor="right",
                   yanchor="top", xshift=-4) for place, (step, name) in enumerate(names.items())]  # fmt: skip
    both = {"shapes": level["shapes"] + uprights, "annotations": level["annotations"] + labels}
    return [both, level]


def _clock_buttons(xs: Sequence[list], keys: int, marks: Sequence[dict]) -> list[dict]:
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
