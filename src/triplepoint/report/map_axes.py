"""The effect against what else a grid varies: alpha, dropout, learning rate, weight decay, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from triplepoint.report import formats as as_
from triplepoint.report.figures import axis, escaped, layout, rounded
from triplepoint.report.grok_axes import MARKED
from triplepoint.report.map_rows import AXES, NUMERIC, Candidate, Effect, told
from triplepoint.report.series import COLOURS

DASHES = ("solid", "dash", "dot", "dashdot")
WIDE = 5
"""Largest over smallest value from which an axis is logarithmic."""


class Line(NamedTuple):
    """Effects that differ in one axis only."""

    x: float
    """Tokens in the training split."""
    size: str
    name: str
    effects: list[Effect]


def lines_along(candidate: Candidate, name: str) -> list[Line]:
    """Return the effects of a candidate along a second axis, by data size and whatever else differs.

    Where other second axes vary as well, those of the most common values of them; all where none has two values.
    """
    groups: dict[tuple, list[Effect]] = {}
    for effect in candidate.effects:
        rest = tuple(pair for pair in effect.slice if pair[0] != name)
        groups.setdefault((effect.x, effect.y, effect.row.get("size"), rest), []).append(effect)
    groups = {k: g for k, g in groups.items() if len({e.row.get(name) for e in g}) > 1}
    (main, _), *_ = candidate.slices()
    usual = tuple(pair for pair in main if pair[0] != name)
    if any(rest == usual for *_, rest in groups):
        groups = {key: group for key, group in groups.items() if key[3] == usual}
    several = len({rest for *_, rest in groups}) > 1
    made = []
    for (x, _, size, rest), group in sorted(groups.items(), key=lambda item: str(item[0][3:])):
        unit = "images" if group[0].row.get("family") == "vit" else "tokens"
        others = map(told, rest) if several else ()
        label = ", ".join([f"{as_.count(x)} {unit}", str(size), *others])
        made.append(Line(x or 0, str(size), label, sorted(group, key=lambda e: _order(e.row.get(name)))))  # fmt: skip
    return sorted(made, key=lambda line: (line.x, line.size))


def _order(value: object) -> tuple:
    return (0, value, "") if as_.known(value) else (-1, 0, str(value)) if value is None else (1, 0, str(value))  # fmt: skip


def axis_panel(candidate: Candidate, name: str, endpoint: str) -> dict | None:
    """Return the effect of one candidate against one second axis; None where there is no line of two values.

    A numeric axis is drawn as such unless one of its cells leaves the value to the preset.
    """
    lines = [
        line._replace(effects=[e for e in line.effects if e.value(endpoint) is not None])
        for line in lines_along(candidate, name)
    ]
    lines = [line for line in lines if len(line.effects) > 1]
    if not lines:
        return None
    values = [e.row.get(name) for line in lines for e in line.effects]
    numeric = name in NUMERIC and all(map(as_.known, values))
    sizes, tokens = (list(dict.fromkeys(column)) for column in zip(*((line.size, line.x) for line in lines), strict=True))  # fmt: skip
    data = [
        _trace(line, name, endpoint, numeric, COLOURS[tokens.index(line.x) % len(COLOURS)], DASHES[sizes.index(line.size) % len(DASHES)])
        for line in lines
    ]  # fmt: skip
    frame = layout(
        320, margin={"l": 62, "r": 14, "t": 14, "b": 54}, showlegend=False,
        xaxis=_x_axis(name, values, numeric), yaxis=axis("relative difference", tickformat=".1~%"),
    )  # fmt: skip
    zero = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": {"color": MARKED, "width": 1, "dash": "dot"}}  # fmt: skip
    return {"data": data, "layout": {**frame, "shapes": [zero]}}


def legend_of(candidate: Candidate, name: str) -> list[tuple[str, str, str]]:
    """Return colour, dash and name of each line of the panels of an axis, in their order."""
    lines = lines_along(candidate, name)
    sizes, tokens = (list(dict.fromkeys(column)) for column in ([line.size for line in lines], [line.x for line in lines]))  # fmt: skip
    return [
        (COLOURS[tokens.index(line.x) % len(COLOURS)], DASHES[sizes.index(line.size) % len(DASHES)], line.name)
        for line in lines
    ]  # fmt: skip


def _trace(line: Line, name: str, endpoint: str, numeric: bool, colour: str, dash: str) -> dict:
    values = [e.value(endpoint) for e in line.effects]
    ends = [e.interval(endpoint) or (v, v) for e, v in zip(line.effects, values, strict=True)]
    places = [e.row.get(name) if numeric else _said(e.row.get(name)) for e in line.effects]
    hover = [
        f"<b>{escaped(line.name)}</b><br>{escaped(told((name, e.row.get(name))))}: {as_.change(value)}"
        f"<br>95 %: {as_.change_interval(end)}"
        for e, value, end in zip(line.effects, values, ends, strict=True)
    ]  # fmt: skip
    return {
        "type": "scatter", "mode": "lines+markers", "name": escaped(line.name), "x": places, "y": [rounded(v) for v in values],
        "line": {"color": colour, "dash": dash, "width": 2}, "marker": {"size": 7, "color": colour},
        "error_y": {
            "type": "data", "symmetric": False, "thickness": 1.2, "width": 4, "color": colour,
            "array": [rounded(end[1] - v) for end, v in zip(ends, values, strict=True)],
            "arrayminus": [rounded(v - end[0]) for end, v in zip(ends, values, strict=True)],
        },
        "customdata": hover, "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip


def _said(value: object) -> str:
    return "own" if value is None else escaped(as_.plain(value))


def _x_axis(name: str, values: Sequence, numeric: bool) -> dict:
    title = AXES.get(name, name)
    if not numeric:
        order = list(dict.fromkeys(map(_said, sorted(values, key=_order))))
        return axis(title, type="category", categoryorder="array", categoryarray=order)
    own = sorted(set(values))
    ticks = {"tickvals": own, "ticktext": [f"{v:.3g}" for v in own], "tickangle": 0}
    if min(values) > 0 and max(values) > WIDE * min(values):
        return axis(title, type="log", **ticks)
    return axis(title, **ticks)
