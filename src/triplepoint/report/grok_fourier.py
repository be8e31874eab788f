"""The power of each frequency of an embedding, along a grokking run or at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from triplepoint.report.figures import axis, escaped, layout, note, rounded
from triplepoint.report.formats import count, known
from triplepoint.report.grok_axes import MARKED, Run, StepAxis, curve_of, log_thinned
from triplepoint.report.series import Series
from triplepoint.report.sites import SCALE

COLUMNS = 120
"""Steps of the heat map; more are narrower than a pixel or two."""
MAPS = 4
"""Runs with a heat map of their own."""


def power_figure(series: Series, runs: Sequence[Run]) -> dict | None:
    """Return the share of power by frequency: a heat map along the steps, or bars where there is one step.

    Returns:
        The figure, of the first four runs; None where no power was measured.
    """
    found = {run: _by_frequency(series, run) for run in runs}
    found = {run: powers for run, powers in found.items() if powers}
    shown = list(found.items())[:MAPS]
    if not shown:
        return None
    steps = {step for _, powers in shown for curve in powers.values() for step in curve}
    return _maps(shown, StepAxis(steps)) if len(steps) > 1 else _bars(shown)


def _by_frequency(series: Series, run: Run) -> dict[int, dict[int, float]]:
    sites = series.by_site.get(("fourier_power", run.arm.key), {})
    powers = {int(s.removeprefix("k=")): curve_of(series, run, "fourier_power", s) for s in sites}
    return {k: powers[k] for k in sorted(powers) if powers[k]}


def _maps(shown: Sequence[tuple[Run, dict]], steps: StepAxis) -> dict:
    rows = max(len(powers) for _, powers in shown)
    each = max(min(16 * rows, 300), 150) if len(shown) == 1 else 130
    gap, top, bottom = 34, 34, 62
    height = top + bottom + each * len(shown) + gap * (len(shown) - 1)
    figure = layout(height, margin={"l": 64, "r": 84, "t": top, "b": bottom}, annotations=[])
    # at least twice the equal share, so that equal shares lie in the middle of the scale
    values = [
        v for _, powers in shown for curve in powers.values() for v in curve.values() if known(v)
    ]
    top_share = max([2 / rows, *values])
    data, inner = [], height - top - bottom
    for number, (run, powers) in enumerate(shown):
        suffix = str(number + 1) if number else ""
        upper = 1 - number * (each + gap) / inner
        figure[f"yaxis{suffix}"] = axis(
            "frequency k", showgrid=False, domain=[rounded(max(upper - each / inner, 0)), rounded(upper)],
            **_whole(rows),
        )  # fmt: skip
        if len(shown) > 1:
            place = {"xref": "paper", "x": 0, "yref": "paper", "y": upper}
            figure["annotations"].append(
                note(escaped(run.label), xanchor="left", yanchor="bottom", yshift=2, **place)
            )
        data.append(
            {**_heat(powers, steps, top_share), "yaxis": f"y{suffix}", "showscale": number == 0}
        )
    figure["xaxis"] = steps.axis(anchor=f"y{suffix}", showgrid=False)
    figure["xaxis"]["title"]["text"] = "steps, logarithmic"
    return {"data": data, "layout": figure}


def _whole(rows: int) -> dict:
    """Return ticks at whole frequencies only."""
    return {"dtick": max(1, math.ceil(rows / 12)), "tick0": 1}


def _heat(powers: Mapping[int, Mapping[int, float]], steps: StepAxis, top: float) -> dict:
    kept = log_thinned({step for curve in powers.values() for step in curve}, COLUMNS)
    rows = [[rounded(curve.get(step)) for step in kept] for curve in powers.values()]
    return {
        "type": "heatmap", "x": _edges([steps.place(step) for step in kept]), "y": list(powers),
        "z": rows, "customdata": [[count(step) for step in kept]] * len(rows),
        "zmin": 0, "zmax": rounded(top), "colorscale": SCALE, "ygap": 1 if len(rows) <= 40 else 0,
        "colorbar": {"title": {"text": "share of power", "side": "right", "font": {"size": 13}},
                     "tickformat": ".0%", "thickness": 12, "outlinewidth": 0, "x": 1.01, "y": 1,
                     "yanchor": "top", "lenmode": "pixels", "len": 150},
        "hovertemplate": "k = %{y}<br>step %{customdata}: %{z:.2%}<extra></extra>",
    }  # fmt: skip


def _edges(places: Sequence[float]) -> list[float]:
    """Return the borders of cells around ``places``, half-way on a logarithmic axis.

    Example:
        >>> _edges([1.0, 100.0])
        [0.1, 10.0, 1000.0]
    """
    logs = [math.log10(place) for place in places]
    if len(logs) == 1:
        return [rounded(places[0] / 1.1), rounded(places[0] * 1.1)]
    middle = [(a + b) / 2 for a, b in zip(logs, logs[1:], strict=False)]
    ends = 2 * logs[0] - middle[0], 2 * logs[-1] - middle[-1]
    return [rounded(10**log) for log in (ends[0], *middle, ends[1])]


def _bars(shown: Sequence[tuple[Run, dict]]) -> dict:
    frequencies = max(len(powers) for _, powers in shown)
    figure = layout(
        320,
        margin={"l": 64, "r": 20, "t": 36, "b": 62},
        xaxis=axis("frequency k", showgrid=False, **_whole(frequencies)),
        yaxis=axis("share of power", tickformat=".0%", rangemode="tozero"),
        shapes=[{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1 / frequencies,
                 "y1": 1 / frequencies, "line": {"color": MARKED, "width": 1.2, "dash": "dash"}}],
        annotations=[note("dashed: equal shares", xref="paper", x=0, xanchor="left", yref="paper", y=1,
                          yanchor="bottom", yshift=6)],
        showlegend=len(shown) > 1,
    )  # fmt: skip
    return {"data": [_bar(run, powers) for run, powers in shown], "layout": figure}


def _bar(run: Run, powers: Mapping[int, Mapping[int, float]]) -> dict:
    return {
        "type": "bar", "name": escaped(run.label), "x": list(powers),
        "y": [rounded(next(iter(curve.values()))) for curve in powers.values()],
        "marker": {"color": run.arm.colour},
        "hovertemplate": f"{escaped(run.label)}<br>k = %{{x}}: %{{y:.2%}}<extra></extra>",
    }  # fmt: skip
