"""What happens inside: saturation and alpha, site by site along the run. Figures as in :mod:`figures`."""

from __future__ import annotations

from collections.abc import Sequence

from triplepoint.report.figures import axis, layout, menu, note, rounded
from triplepoint.report.formats import known
from triplepoint.report.series import Arm, Curve, Series, thinned

THRESHOLDS = ("0.5", "1", "1.5", "2", "2.5", "3")
SHOWN = "2"
"""The threshold shown first: beyond ``|alpha x| = 2`` the slope of a tanh is below 0.071."""
COLUMNS = 120
"""Steps of a heat map; more are narrower than a pixel or two."""
SCALE = [
    [0, "#f7f8f6"], [0.15, "#d9e8e4"], [0.35, "#9cc9cf"], [0.55, "#559ab8"], [0.75, "#2a6496"], [1, "#12305c"],
]  # fmt: skip
"""One hue from light to dark: readable in grey and under any colour blindness."""
GAP = 0.04


def saturation_figure(series: Series) -> dict | None:
    """Return heat maps site x step, one per arm that squashes, with a menu of thresholds.

    Returns:
        The figure; None where no arm has saturation.
    """
    panels = [
        (arm, maps) for arm in series.arms
        if (maps := {t: found for t in THRESHOLDS if (found := series.site_means(f"saturation@{t}", arm))})
    ]  # fmt: skip
    if not panels:
        return None
    shared = [t for t in THRESHOLDS if all(t in maps for _, maps in panels)] or [next(iter(panels[0][1]))]
    shown = SHOWN if SHOWN in shared else shared[0]
    data = [_heat(maps.get(shown, {}), number, shown) for number, (_, maps) in enumerate(panels)]
    sites = [list(maps.get(shown, {})) for _, maps in panels]
    figure = _panel_layout([arm for arm, _ in panels], sites)
    for number, names in enumerate(sites):
        figure[f"yaxis{number + 1 if number else ''}"].update(_site_ticks(names, sites, number))
    if len(shared) > 1:
        buttons = [
            {"label": f"|\N{GREEK SMALL LETTER ALPHA}x| > {t}", "method": "restyle",
             "args": [{"z": [_heat(maps[t], 0, t)["z"] for _, maps in panels]}]}
            for t in shared
        ]  # fmt: skip
        figure["updatemenus"] = [menu(buttons, kind="dropdown", active=shared.index(shown))]
    return {"data": data, "layout": figure}


def _heat(maps: dict[str, Curve], number: int, threshold: str) -> dict:
    steps = thinned({step for curve in maps.values() for step in curve}, COLUMNS)
    suffix = number + 1 if number else ""
    return {
        "type": "heatmap", "x": steps, "y": list(range(len(maps))),
        "z": [[_fraction(curve.get(step)) for step in steps] for curve in maps.values()],
        "zmin": 0, "zmax": 1, "colorscale": SCALE, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}",
        "showscale": number == 0, "ygap": 1 if len(maps) <= 40 else 0,
        "text": [[_label(site)] * len(steps) for site in maps],
        "colorbar": {"title": {"text": "saturated", "side": "right"}, "tickformat": ".0%", "thickness": 12,
                     "outlinewidth": 0, "x": 1.01, "xanchor": "left"},
        "hovertemplate": "%{text}<br>step %{x}: %{z:.1%}<extra></extra>",
    }  # fmt: skip


def _fraction(value: float | None) -> float | None:
    return round(value, 3) if known(value) else None


def alpha_figure(series: Series) -> dict | None:
    """Return alpha along the run, one panel per arm that has alphas, one line per site.

    Returns:
        The figure, its axis logarithmic where all alphas are positive and span more than a factor 8; None
        where no arm has alphas.
    """
    panels = [(arm, curves) for arm in series.arms if (curves := series.site_means("alpha", arm))]
    if not panels:
        return None
    data = [
        _alpha_line(arm, site, curve, place / max(len(curves) - 1, 1), number)
        for number, (arm, curves) in enumerate(panels)
        for place, (site, curve) in enumerate(curves.items())
    ]
    values = [y for trace in data for y in trace["y"] if y is not None]
    log = bool(values) and min(values) > 0 and max(values) / min(values) > 8
    figure = _panel_layout([arm for arm, _ in panels], [[""] * 24] * len(panels))
    for number in range(len(panels)):
        y = figure[f"yaxis{number + 1 if number else ''}"]
        y.update(title={"text": "\N{GREEK SMALL LETTER ALPHA}", "standoff": 8}, hoverformat=".4g")
        y.update({"matches": "y"} if number else {})
        y.update({"type": "log", "dtick": "D2"} if log else {})
    return {"data": data, "layout": {**figure, "showlegend": False, "hovermode": "closest"}}


def _alpha_line(arm: Arm, site: str, curve: Curve, depth: float, number: int) -> dict:
    steps, suffix = thinned(curve, 200), number + 1 if number else ""
    return {
        "type": "scatter", "mode": "lines", "name": arm.name, "text": [_label(site)] * len(steps), "x": steps,
        "y": [rounded(curve[step]) for step in steps], "xaxis": f"x{suffix}", "yaxis": f"y{suffix}",
        "line": {"color": shade(arm.colour, depth), "width": 1.8},
        "hovertemplate": "%{text}<br>step %{x}: %{y:.4g}<extra></extra>",
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


def _panel_layout(arms: Sequence[Arm], sites: Sequence[Sequence[str]]) -> dict:
    """Return a grid of panels, two in a row, each titled with its arm in the arm's colour."""
    columns = min(len(arms), 2)
    rows = -(-len(arms) // columns)
    height = min(max(17 * max(map(len, sites)), 170), 620)
    figure = layout(rows * (height + 90) + 50, annotations=[])
    for number, arm in enumerate(arms):
        row, column = divmod(number, columns)
        width = (1 - GAP * (columns - 1)) / columns
        left = column * (width + GAP)
        pitch = 1 / rows
        span = pitch * height / (height + 90) if rows > 1 else 1
        top = 1 - row * (1 - span) / max(rows - 1, 1)
        suffix = number + 1 if number else ""
        figure[f"xaxis{suffix}"] = axis(
            "optimiser steps", domain=[left, left + width], anchor=f"y{suffix}", showgrid=False, hoverformat=",d"
        )
        figure[f"yaxis{suffix}"] = axis("", domain=[max(top - span, 0), min(top, 1)], anchor=f"x{suffix}")
        title = note(_escaped(arm.name), x=left, y=top, xref="paper", yref="paper", xanchor="left", yanchor="bottom")
        figure["annotations"].append({**title, "font": {"size": 14, "color": INK_OF(arm)}, "yshift": 4})
    return figure


def INK_OF(arm: Arm) -> str:
    return arm.colour


def _site_ticks(names: Sequence[str], all_names: Sequence[Sequence[str]], number: int) -> dict:
    """Return the site axis: first site on top; labels thinned, and left out where the left panel has the same."""
    every = max(1, -(-len(names) // 36))
    places = list(range(0, len(names), every))
    labels = [_short(name, names) for name in names]
    same = number % 2 == 1 and list(all_names[number - 1]) == list(names)
    return {
        "tickvals": places, "ticktext": [labels[i] for i in places], "autorange": "reversed",
        "tickfont": {"size": 11}, "showticklabels": not same, "showgrid": False, "ticks": "",
    }  # fmt: skip


def _short(name: str, names: Sequence[str]) -> str:
    """Return the part of a dotted path that tells it from the others, at most 30 characters."""
    parts = [other.split(".") for other in names]
    shared = 0
    while all(len(p) > shared + 1 for p in parts) and len({p[shared] for p in parts}) == 1:
        shared += 1
    text = ".".join(name.split(".")[shared:])
    return _label(text if len(text) <= 30 else f"\N{HORIZONTAL ELLIPSIS}{text[-29:]}")


def _label(text: str) -> str:
    return _escaped(text)


def _escaped(text: str) -> str:
    # plotly shows a few tags in text as formatting; a path or name is to be shown as it is
    return text.replace("&", "&amp;").replace("<", "&lt;")
