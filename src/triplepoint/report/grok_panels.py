"""Curves of a grokking run in panels on top of each other, all on one axis of steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from triplepoint.report.figures import FONT, POINTS, axis, escaped, layout, note, rounded
from triplepoint.report.formats import count, known
from triplepoint.report.grok_axes import MARKED, Run, StepAxis, curve_of, log_thinned, log_ticks
from triplepoint.report.series import Curve, Series

GAP, TOP, BOTTOM = 54, 84, 62
"""Pixels between two panels (a legend's row or two), above the first, below the last."""


class Quantity(NamedTuple):
    """One line of a panel in every run."""

    metric: str
    label: str
    colour: str
    """Where arms have no colours of their own, because there is one arm only."""
    dash: str
    site: str | None = None


class Level(NamedTuple):
    """A horizontal line to compare with."""

    value: float
    name: str = ""
    colour: str = MARKED


class Panel(NamedTuple):
    """One of several plots on top of each other, on one step axis."""

    title: str
    height: int
    quantities: Sequence[Quantity]
    levels: Sequence[Level] = ()
    percent: bool = False
    log: bool = False
    floor: float | None = None
    """Values below are drawn here: a logarithmic axis has no place for 0."""


def stacked(
    series: Series,
    runs: Sequence[Run],
    panels: Sequence[Panel],
    *,
    marks: Sequence[tuple[str, int]] = (),
    clock: str = "steps",
) -> dict | None:
    """Return panels on top of each other, without those for which nothing was measured.

    Args:
        series: The records.
        runs: A line each; there is no mean, since the mean of jumps at different steps is a slope no run took.
        panels: From top to bottom.
        marks: (name, step) to mark across all panels, named above the first.
        clock: What a step is.

    Returns:
        The figure; None where nothing was measured at two steps.
    """
    panels = [p._replace(quantities=measured(series, runs, p.quantities)) for p in panels]
    panels = [panel for panel in panels if panel.quantities]
    curves = [
        curve_of(series, r, q.metric, q.site) for p in panels for q in p.quantities for r in runs
    ]
    steps = StepAxis(step for curve in curves for step in curve)
    if max(map(len, curves), default=0) < 2:
        return None
    height = TOP + BOTTOM + sum(p.height for p in panels) + GAP * (len(panels) - 1)
    figure = layout(
        height, margin={"l": 64, "r": 20, "t": TOP, "b": BOTTOM}, shapes=[], annotations=[]
    )
    data, below = [], float(height - TOP - BOTTOM)
    inner = below
    for number, panel in enumerate(panels):
        top, below = below, below - panel.height
        data += _panel(figure, panel, number, [below / inner, top / inner], series, runs, steps)
        below -= GAP
    suffix = _suffix(len(panels) - 1)
    figure["xaxis"] = steps.axis(anchor=f"y{suffix}")
    figure["xaxis"]["title"]["text"] = f"{clock}, logarithmic"
    _mark(figure, steps, marks)
    return {"data": data, "layout": figure}


def measured(series: Series, runs: Sequence[Run], quantities: Sequence[Quantity]) -> list[Quantity]:
    """Return the quantities that at least one run has."""
    return [q for q in quantities if any(curve_of(series, r, q.metric, q.site) for r in runs)]


def _suffix(number: int) -> str:
    return str(number + 1) if number else ""


def _panel(
    figure: dict, panel: Panel, number: int, domain: list[float], series: Series,
    runs: Sequence[Run], steps: StepAxis,
) -> list[dict]:  # fmt: skip
    """Add a panel's axis, legend and level to ``figure``; return its lines."""
    suffix = _suffix(number)
    positive = _positive(panel, series, runs)
    # an exact fit: all losses are 0, and a logarithmic axis would be empty
    panel = panel._replace(log=panel.log and bool(positive))
    scale = _log_scale(positive, panel) if panel.log else {}
    form = {"tickformat": ".0%", "rangemode": "tozero"} if panel.percent else {}
    figure[f"yaxis{suffix}"] = axis(
        panel.title, domain=[rounded(d) for d in domain], **scale, **form
    )
    lift = (26 if number == 0 else 2) / (figure["height"] - TOP - BOTTOM)
    figure[f"legend{suffix}"] = {
        "orientation": "h", "x": 0, "xanchor": "left", "y": rounded(domain[1] + lift),
        "yanchor": "bottom", "font": {"size": 12, "family": FONT}, "bgcolor": "rgba(0,0,0,0)",
    }  # fmt: skip
    for level in panel.levels:
        place = {"yref": f"y{suffix}", "y0": level.value, "y1": level.value}
        figure["shapes"].append(_rule(level.colour, xref="paper", x0=0, x1=1, **place))
        at = math.log10(level.value) if panel.log else level.value
        figure["annotations"].append(
            note(level.name, xref="paper", x=0, xanchor="left", xshift=8, yref=f"y{suffix}", y=at,
                 yanchor="bottom")
        )  # fmt: skip
    by_arm = len({run.arm for run in runs}) > 1
    lines = [
        {**line, "xaxis": "x", "yaxis": f"y{suffix}", "legend": f"legend{suffix}"}
        for quantity in panel.quantities
        for line in _lines(quantity, panel, series, runs, steps, by_arm)
    ]
    keys = _arm_keys(runs) if by_arm and number == 0 else []
    return lines + [{**key, "legend": f"legend{suffix}"} for key in keys]


def _lines(
    quantity: Quantity, panel: Panel, series: Series, runs: Sequence[Run], steps: StepAxis, by_arm: bool
) -> list[dict]:  # fmt: skip
    """Return a quantity's line in every run and, first, the empty one that stands in the legend."""
    line = {"dash": quantity.dash, "width": 2}
    colour = MARKED if by_arm else quantity.colour
    lines = []
    for run in runs:
        curve = curve_of(series, run, quantity.metric, quantity.site)
        if curve:
            colours = {"color": run.arm.colour if by_arm else quantity.colour}
            who = f"{run.label}: " if len(runs) > 1 else ""
            lines.append(_line(curve, f"{who}{quantity.label}", panel, steps, line | colours))
    named = quantity.label != panel.title
    return [_key(quantity.label, line | {"color": colour}), *lines] if named else lines


def _line(curve: Curve, label: str, panel: Panel, steps: StepAxis, line: Mapping) -> dict:
    kept = log_thinned(curve, POINTS)
    values = [rounded(curve[step]) for step in kept]
    drawn = _drawn(panel, values)
    text = [
        "not finite" if v is None else f"{v:.2%}" if panel.percent else f"{v:.4g}" for v in values
    ]
    return {
        "type": "scatter", "mode": "lines" if len(kept) > 1 else "markers", "name": escaped(label),
        "showlegend": False, "x": [rounded(steps.place(step)) for step in kept], "y": drawn,
        "customdata": [[count(s), t] for s, t in zip(kept, text, strict=True)], "line": dict(line),
        "hovertemplate": f"{escaped(label)}<br>step %{{customdata[0]}}: %{{customdata[1]}}<extra></extra>",
    }  # fmt: skip


def _drawn(panel: Panel, values: Iterable[float | None]) -> list[float | None]:
    """Return where values are drawn: None where they are not finite, at the panel's floor where below."""
    finite = (value if known(value) else None for value in values)
    return [v if v is None or panel.floor is None else max(v, panel.floor) for v in finite]


def _positive(panel: Panel, series: Series, runs: Sequence[Run]) -> list[float]:
    """Return what a logarithmic axis has a place for."""
    curves = [curve_of(series, run, q.metric, q.site) for run in runs for q in panel.quantities]
    drawn = [v for curve in curves for v in _drawn(panel, curve.values())]
    return [v for v in drawn if v is not None and v > 0]


def _log_scale(positive: Sequence[float], panel: Panel) -> dict:
    """Return a logarithmic axis around ``positive`` values and the panel's levels."""
    values = [*positive, *(level.value for level in panel.levels)]
    low, high = min(values), max(values)
    pad = max(0.06 * math.log10(high / low), 0.05)
    ticks = log_ticks(low * 10**-pad, high * 10**pad, max(2, panel.height // 35))
    text = [f"{tick:g}".replace("e-0", "e-") for tick in ticks]
    ends = [rounded(math.log10(low) - pad), rounded(math.log10(high) + pad)]
    labelled = {"tickvals": ticks, "ticktext": text} if len(ticks) > 1 else {"tickformat": "~g"}
    return {"type": "log", "range": ends, **labelled}


def _key(name: str, line: Mapping) -> dict:
    return {
        "type": "scatter", "mode": "lines", "x": [None], "y": [None], "name": escaped(name),
        "hoverinfo": "skip", "line": dict(line),
    }  # fmt: skip


def _arm_keys(runs: Sequence[Run]) -> list[dict]:
    arms = dict.fromkeys(run.arm for run in runs)
    return [_key(arm.name, {"color": arm.colour, "width": 4}) for arm in arms]


def _mark(figure: dict, steps: StepAxis, marks: Sequence[tuple[str, int]]) -> None:
    """Draw a line across all panels at each marked step, and its name above them."""
    sides: list[bool] = []
    for name, step in marks:
        x = steps.place(step)
        figure["shapes"].append(_rule(MARKED, yref="paper", y0=0, y1=1, x0=x, x1=x))
        # towards the middle, and one above the other where two stand on the same side
        left = (math.log10(x) - steps.range[0]) / (steps.range[1] - steps.range[0]) < 0.5
        sides.append(left)
        figure["annotations"].append(
            note(f"{name} = {count(step)}", x=math.log10(x), yref="paper", y=1, yanchor="bottom",
                 xanchor="left" if left else "right", xshift=-3 if left else 3,
                 yshift=13 * (sides.count(left) - 1))
        )  # fmt: skip


def _rule(colour: str, **place: object) -> dict:
    line = {"color": colour, "width": 1.2, "dash": "dash"}
    return {"type": "line", "layer": "below", "line": line, **place}
