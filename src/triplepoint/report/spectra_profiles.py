"""Panels on top of each other: exponent, ranks and norm of every matrix, against depth or along the steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from triplepoint.report.figures import FONT, axis, escaped, layout, rounded
from triplepoint.report.formats import count, known
from triplepoint.report.spectra_roles import ROLES, SYMBOLS, block_of
from triplepoint.report.spectra_rows import MatrixRow, Sheet, spectral_norm

TOP, GAP, BOTTOM = 70, 26, 54
"""Pixels above the first panel, between two, and below the last."""
LINES = 400
"""Matrices drawn, the most notable ones."""
_APART = 0.07
"""Of a block: how far roles stand apart, so that their intervals do not hide each other."""


class Panel(NamedTuple):
    """One quantity."""

    title: str
    height: int
    of: Callable[[MatrixRow], float | None]
    axis: dict
    metric: str | None = None
    """Where it has an interval: the metric."""


PANELS = (
    Panel("tail exponent", 210, lambda row: row.values.get("tail_exponent"), {}, "tail_exponent"),
    Panel("stable rank", 150, lambda row: row.values.get("stable_rank"), {"type": "log"}),
    Panel("effective rank / side", 150, lambda row: row.share("effective_rank"),
          {"tickformat": ".0%", "rangemode": "tozero"}),
    Panel("largest singular value", 150, spectral_norm, {"type": "log"}),
)  # fmt: skip
"""From top to bottom."""


def depth_figure(after: Sheet, before: Sheet | None = None) -> dict | None:
    """Return the profiles against depth; ``before`` is drawn faintly behind. None where there is nothing to draw."""
    panels = _filled([after])
    if not panels:
        return None
    roles = _roles_of(after)
    figure, places = _frame(panels)
    figure["xaxis"].update(_depth_ticks(after))
    data = []
    for number, panel in enumerate(panels):
        for role in roles:
            shift = _APART * (roles.index(role) - (len(roles) - 1) / 2)
            if before is not None:
                data.append(_profile(before, panel, role, shift, places[number], faint=True))
            data.append(_profile(after, panel, role, shift, places[number]))
    data = [trace for trace in data if trace["x"]]
    return {"data": _with_legend(data), "layout": _with_ticks(figure, data)}


def step_figure(sheets: Sequence[Sheet]) -> dict | None:
    """Return every matrix along the steps of a run; None where there is one step only."""
    panels = _filled(sheets)
    if len(sheets) < 2 or any(sheet.step is None for sheet in sheets) or not panels:
        return None
    figure, places = _frame(panels)
    figure["xaxis"]["title"]["text"] = "optimiser steps"
    rows: dict[str, list[tuple[int, MatrixRow]]] = defaultdict(list)
    for sheet in sheets:
        for row in sheet.rows:
            rows[row.name].append((sheet.step or 0, row))
    drawn = [row.name for row in sheets[-1].notable()[:LINES]]
    data = [
        _along(name, rows[name], panel, places[number])
        for number, panel in enumerate(panels)
        for name in drawn
    ]
    data = [trace for trace in data if trace["x"]]
    return {"data": _with_legend(data), "layout": _with_ticks(figure, data)}


def _filled(sheets: Sequence[Sheet]) -> list[Panel]:
    """Leave out the panels for which nothing was measured."""
    rows = [row for sheet in sheets for row in sheet.rows]
    return [panel for panel in PANELS if any(known(panel.of(row)) for row in rows)]


def _roles_of(sheet: Sheet) -> list[str]:
    found = {row.role for row in sheet.rows}
    return [role for role in ROLES if role in found]


def _frame(panels: Sequence[Panel]) -> tuple[dict, list[str]]:
    """Return the layout of the panels, and the name of each one's axis."""
    inner = sum(p.height for p in panels) + GAP * (len(panels) - 1)
    figure = layout(
        inner + TOP + BOTTOM, margin={"l": 70, "r": 16, "t": TOP, "b": BOTTOM},
        legend={"orientation": "h", "x": 0, "y": 1 + 8 / inner, "yanchor": "bottom",
                "font": {"size": 12, "family": FONT}, "bgcolor": "rgba(0,0,0,0)"},
    )  # fmt: skip
    below, places = float(inner), []
    for number, panel in enumerate(panels):
        top, below = below, below - panel.height
        suffix = str(number + 1) if number else ""
        domain = [rounded(below / inner), rounded(top / inner)]
        figure[f"yaxis{suffix}"] = axis(panel.title, domain=domain, **panel.axis)
        places.append(f"y{suffix}")
        below -= GAP
    figure["xaxis"] = axis(anchor=places[-1])
    return figure, places


def _with_ticks(figure: dict, data: Sequence[dict]) -> dict:
    """Choose the ticks of logarithmic axes by the span of what is drawn.

    Within a factor of 3 there may be no 1, 2 or 5 to be labelled: the axis becomes linear. Beyond four decades those
    would be too many: there are about five powers of ten.
    """
    for name, drawn in figure.items():
        if not name.startswith("yaxis") or drawn.get("type") != "log":
            continue
        own = (t["y"] for t in data if t["yaxis"] == name.replace("axis", ""))
        values = [value for ys in own for value in ys if value > 0]
        span = max(values) / min(values) if values else 1.0
        if span < 3:
            drawn["type"] = "linear"
        else:
            drawn["dtick"] = "D2" if span < 1e4 else math.ceil(math.log10(span) / 5)
    return figure


def _depth_ticks(sheet: Sheet) -> dict:
    """Return an axis of blocks; what is outside all of them stands at its ends."""
    blocks = {row.depth for row in sheet.rows if block_of(row.name) is not None}
    values = sorted({row.depth for row in sheet.rows})
    outside = set(values) - blocks if blocks else set()
    every = -(-len(values) // 16)
    ticks = [v for v in values if v in outside or v % every == 0]
    names = [("in" if v < 0 else "out") if v in outside else str(v) for v in ticks]
    title = "block" if blocks else "matrix, in the order of the checkpoint"
    return {
        "tickvals": ticks, "ticktext": names, "range": [values[0] - 0.6, values[-1] + 0.6],
        "title": {"text": title, "standoff": 10, "font": {"size": 13}},
    }  # fmt: skip


def _profile(
    sheet: Sheet, panel: Panel, role: str, shift: float, place: str, *, faint: bool = False
) -> dict:
    rows = [r for r in sheet.rows if r.role == role and known(panel.of(r))]
    rows.sort(key=lambda row: row.depth)
    single = len({row.depth for row in rows}) == len(rows)
    trace = {
        "type": "scatter", "mode": "lines+markers" if single else "markers", "name": role, "legendgroup": role,
        "showlegend": False, "x": [rounded(row.depth + shift) for row in rows],
        "y": [rounded(panel.of(row)) for row in rows], "yaxis": place,
        "customdata": [[escaped(row.name), _interval_text(row, panel)] for row in rows],
        "line": {"color": ROLES[role], "width": 1.4, "dash": "dot" if faint else "solid"},
        "marker": {"color": ROLES[role], "size": 7, "symbol": _symbols(rows, role, panel)},
        "hovertemplate": f"%{{customdata[0]}}<br>{panel.title} %{{y:.4g}}%{{customdata[1]}}<extra>"
        f"{'before' if faint else ''}</extra>",
    }  # fmt: skip
    if faint:
        return {**trace, "opacity": 0.38}
    if panel.metric and any(panel.metric in row.intervals for row in rows):
        trace["error_y"] = _errors(rows, panel.metric) | {"color": ROLES[role]}
    return trace


def _symbols(rows: Sequence[MatrixRow], role: str, panel: Panel) -> list[str] | str:
    """Leave open what is not heavier than its null, in the panel of exponents."""
    if panel.metric is None:
        return SYMBOLS[role]
    return [SYMBOLS[role] + ("-open" if row.heavy is False else "") for row in rows]


def _interval_text(row: MatrixRow, panel: Panel) -> str:
    low, high = row.intervals.get(panel.metric or "", (None, None))
    return f" ({low:.2f} to {high:.2f})" if low is not None and high is not None else ""


def _errors(rows: Sequence[MatrixRow], metric: str) -> dict:
    ends = [row.intervals.get(metric, (row.values[metric],) * 2) for row in rows]
    values = [row.values[metric] for row in rows]
    return {
        "type": "data", "symmetric": False, "thickness": 1.1, "width": 0,
        "array": [rounded(max(high - v, 0)) for (_, high), v in zip(ends, values, strict=True)],
        "arrayminus": [rounded(max(v - low, 0)) for (low, _), v in zip(ends, values, strict=True)],
    }  # fmt: skip


def _along(name: str, rows: Sequence[tuple[int, MatrixRow]], panel: Panel, place: str) -> dict:
    points = [(step, panel.of(row)) for step, row in rows if known(panel.of(row))]
    role = rows[0][1].role
    return {
        "type": "scatter", "mode": "lines+markers", "name": role, "legendgroup": role, "showlegend": False,
        "x": [step for step, _ in points], "y": [rounded(value) for _, value in points], "yaxis": place,
        "customdata": [count(step) for step, _ in points],
        "line": {"color": ROLES[role], "width": 1.3}, "marker": {"color": ROLES[role], "size": 4},
        "hovertemplate": f"{escaped(name)}<br>step %{{customdata}}: {panel.title} %{{y:.4g}}<extra></extra>",
    }  # fmt: skip


def _with_legend(data: list[dict]) -> list[dict]:
    """Let the first trace of each role stand in the legend; a faint one does not count."""
    named: set[str] = set()
    for trace in data:
        if trace["name"] not in named and "opacity" not in trace:
            named.add(trace["name"])
            trace["showlegend"] = True
    return data
