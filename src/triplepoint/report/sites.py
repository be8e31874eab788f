"""What happens inside: saturation and alpha, site by site along the run."""

from __future__ import annotations

from collections.abc import Sequence

from triplepoint.report.figures import INK, axis, escaped, layout, menu, note, rounded
from triplepoint.report.formats import known, shortened
from triplepoint.report.series import Arm, Curve, Series, thinned

THRESHOLDS = ("0.5", "1", "1.5", "2", "2.5", "3")
SHOWN = "2"
"""The threshold shown first: beyond ``|alpha x| = 2`` the slope of a tanh is below 0.071."""
COLUMNS = 120
"""Steps of a heat map, and points of an alpha line; more are narrower than a pixel or two."""
SHEET = 820
"""Height in pixels that a figure may take, so that it and its caption fit on one sheet of paper."""
AROUND = 90
"""Pixels of a panel's height that its title and steps take."""
SCALE = [
    [0, "#f7f8f6"], [0.15, "#d9e8e4"], [0.35, "#9cc9cf"],
    [0.55, "#559ab8"], [0.75, "#2a6496"], [1, "#12305c"],
]  # fmt: skip
"""From light to dark throughout: readable in grey and under any colour blindness."""


def saturation_figure(series: Series) -> dict | None:
    """Return heat maps site x step, one per arm that squashes, with a menu of thresholds.

    Returns:
        The figure; None where no arm has saturation.
    """
    maps = {arm: _thresholds(series, arm) for arm in series.arms}
    maps = {arm: found for arm, found in maps.items() if found}
    common = [t for t in THRESHOLDS if maps and all(t in found for found in maps.values())]
    if not common:
        return None
    shown = SHOWN if SHOWN in common else common[0]
    names = [list(found[shown]) for found in maps.values()]
    height = _panel_height(len(maps), max(map(len, names)))
    figure = _panels(list(maps), height=height, labelled=len({*map(tuple, names)}) > 1)
    for number, sites in enumerate(names):
        figure[f"yaxis{_suffix(number)}"].update(_site_axis(sites, room=height // 13))
    data = [_heat(found[shown], number) for number, found in enumerate(maps.values())]
    if len(common) > 1:
        buttons = [
            {"label": f"|\N{GREEK SMALL LETTER ALPHA}x| > {t}", "method": "restyle",
             "args": [{"z": [_heat(found[t], 0)["z"] for found in maps.values()]}]}
            for t in common
        ]  # fmt: skip
        figure["updatemenus"] = [menu(buttons, kind="dropdown", active=common.index(shown))]
    return {"data": data, "layout": figure}


def _thresholds(series: Series, arm: Arm) -> dict[str, dict[str, Curve]]:
    found = {t: series.site_means(f"saturation@{t}", arm) for t in THRESHOLDS}
    return {threshold: sites for threshold, sites in found.items() if sites}


def _heat(sites: dict[str, Curve], number: int) -> dict:
    steps = thinned({step for curve in sites.values() for step in curve}, COLUMNS)
    return {
        "type": "heatmap", "x": steps, "y": list(map(escaped, sites)),
        "z": [[_fraction(curve.get(step)) for step in steps] for curve in sites.values()],
        "zmin": 0, "zmax": 1, "colorscale": SCALE, "ygap": 1 if len(sites) <= 40 else 0,
        "xaxis": f"x{_suffix(number)}", "yaxis": f"y{_suffix(number)}", "showscale": number == 0,
        "colorbar": {"title": {"text": "saturated", "side": "right", "font": {"size": 13}},
                     "tickformat": ".0%", "thickness": 12, "outlinewidth": 0, "x": 1.01, "y": 1,
                     "yanchor": "top", "lenmode": "pixels", "len": 190},
        "hovertemplate": "%{y}<br>step %{x}: %{z:.1%}<extra></extra>",
    }  # fmt: skip


def _fraction(value: float | None) -> float | None:
    return round(value, 3) if known(value) else None


def _suffix(number: int) -> str:
    """Return what plotly appends to the names of a panel's axes."""
    return str(number + 1) if number else ""


def _panel_height(panels: int, rows: int) -> int:
    """Return the height of a panel in pixels: 17 a row, within what a sheet of paper has for all."""
    lines = -(-panels // 2)
    return max(min(max(17 * rows, 170), 560, SHEET // lines - AROUND), 110)


def _panels(arms: Sequence[Arm], *, height: int, labelled: bool = False) -> dict:
    """Return a grid of panels, two side by side, each titled with its arm.

    Args:
        arms: One panel each.
        height: Of a panel, pixels.
        labelled: Whether every panel has its own labels at its left, and needs the place.
    """
    columns = min(len(arms), 2)
    lines = -(-len(arms) // columns)
    gaps = {"xgap": 0.34 if labelled else 0.08, "ygap": AROUND / (height + AROUND)}
    grid = {"rows": lines, "columns": columns, "pattern": "independent", **gaps}
    figure = layout(lines * (height + AROUND) + 40, grid=grid, annotations=[])
    for number, arm in enumerate(arms):
        suffix = _suffix(number)
        figure[f"xaxis{suffix}"] = axis("optimiser steps", showgrid=False)
        beside = number % 2 == 1 and not labelled
        figure[f"yaxis{suffix}"] = axis(showticklabels=not beside)
        place = {"xref": f"x{suffix} domain", "yref": f"y{suffix} domain"}
        figure["annotations"].append(_title(arm, **place))
    return figure


def _title(arm: Arm, **place: str) -> dict:
    square = f'<span style="color:{arm.colour}">\N{BLACK SQUARE}</span>'
    text = f"{square} {escaped(shortened(arm.name, 26))}"
    font = {"size": 13, "color": INK}
    return note(text, x=0, y=1, xanchor="left", yanchor="bottom", yshift=4, font=font, **place)


def _site_axis(names: Sequence[str], *, room: int) -> dict:
    """Return the axis of sites, the first on top, with at most ``room`` labels."""
    shown = names[:: -(-len(names) // room)]
    return {
        "type": "category", "autorange": "reversed", "showgrid": False, "ticks": "",
        "tickvals": list(map(escaped, shown)), "tickfont": {"size": 11},
        "ticktext": [escaped(_short(name, names)) for name in shown],
    }  # fmt: skip


def _short(name: str, names: Sequence[str]) -> str:
    """Return the part of a dotted path that tells it from the others, at most 30 characters."""
    parts = [other.split(".") for other in names]
    shared = 0
    while all(len(p) > shared + 1 for p in parts) and len({p[shared] for p in parts}) == 1:
        shared += 1
    return shortened(".".join(name.split(".")[shared:]), 30)


def alpha_figure(series: Series) -> dict | None:
    """Return alpha along the run, one panel per arm that has alphas, one line per site.

    Returns:
        The figure, its axis logarithmic where all alphas are positive and span more than a factor 8; None
        where no arm has alphas.
    """
    found = {arm: curves for arm in series.arms if (curves := series.site_means("alpha", arm))}
    data = [
        _alpha_line(arm, site, curve, depth=place / max(len(curves) - 1, 1), number=number)
        for number, (arm, curves) in enumerate(found.items())
        for place, (site, curve) in enumerate(curves.items())
    ]
    values = [y for trace in data for y in trace["y"] if y is not None]
    if not values:
        return None
    figure = _panels(list(found), height=_panel_height(len(found), 18))
    for number in range(len(found)):
        shared = {"matches": "y"} if number else {}
        scale = (
            {"type": "log", "dtick": "D2"}
            if min(values) > 0 and max(values) / min(values) > 8
            else {}
        )
        figure[f"yaxis{_suffix(number)}"].update(shared | scale)
        if number % 2 == 0:
            figure[f"yaxis{_suffix(number)}"]["title"]["text"] = "\N{GREEK SMALL LETTER ALPHA}"
    return {"data": data, "layout": {**figure, "showlegend": False}}


def _alpha_line(arm: Arm, site: str, curve: Curve, *, depth: float, number: int) -> dict:
    steps = thinned(curve, COLUMNS)
    return {
        "type": "scatter", "mode": "lines", "name": escaped(arm.name), "legendgroup": arm.name,
        "x": steps, "y": [rounded(curve[step]) for step in steps],
        "xaxis": f"x{_suffix(number)}", "yaxis": f"y{_suffix(number)}",
        "line": {"color": shade(arm.colour, depth), "width": 1.8},
        "hovertemplate": f"{escaped(site)}<br>step %{{x}}: %{{y:.4g}}<extra></extra>",
    }  # fmt: skip


def shade(colour: str, depth: float) -> str:
    """Return ``colour`` lightened: 0 gives a light tint, 1 the colour itself, for first to last site.

    Example:
        >>> shade("#000000", 0.0), shade("#000000", 1.0)
        ('#999999', '#000000')
    """
    light = 0.6 * (1 - depth)
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + light * (255 - part)):02x}" for part in parts)
