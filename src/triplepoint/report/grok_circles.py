"""The circles of an embedding: where the residues lie on the planes of its strongest frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from triplepoint.report.figures import axis, layout, note, rounded
from triplepoint.report.formats import count, known
from triplepoint.report.grok_axes import MARKED, log_thinned

CIRCLES = 6
"""Frequencies with a panel of their own: two rows of three."""
FRAMES = 25
"""Steps of the slider: each carries all points of its picture."""
CYCLE = (
    "#a7770c", "#c56033", "#d94360", "#dd26a3", "#c43be0", "#9961f4",
    "#5f7fe4", "#2890b7", "#0f9788", "#27994f", "#778d11", "#a7770c",
)  # fmt: skip
"""Hues of equal lightness that end where they begin, as residues do (cmocean's phase)."""


def circle_figure(arrays: Mapping) -> dict | None:
    """Return the embedding on the planes of its strongest frequencies, with a slider over the steps.

    Each step is drawn in units of its own root mean square radius over all panels, so that sizes can be compared
    within a step and shapes across steps, while weight decay shrinks everything.

    Args:
        arrays: ``circle_steps`` [S], ``circle_k`` [Kc] and ``circle_points`` [S, Kc, p, 2].

    Returns:
        The figure, of the six frequencies that are largest at the last step; None where there are no points.

    Raises:
        ValueError: If the arrays do not fit each other.
    """
    if not all(f"circle_{name}" in arrays for name in ("steps", "k", "points")):
        return None
    steps, ks, points = (arrays[f"circle_{name}"] for name in ("steps", "k", "points"))
    if points.ndim != 4 or points.shape[:2] != (len(steps), len(ks)) or points.shape[3] != 2:
        raise ValueError(f"circle_points has shape {points.shape}, not [steps, k, p, 2]")
    if not points.size:
        return None
    largest = (-(points[-1] ** 2).sum(axis=(1, 2))).argsort(kind="stable")[:CIRCLES]
    panels = sorted(largest.tolist(), key=lambda place: int(ks[place]))
    kept = set(log_thinned(map(int, steps), FRAMES))
    frames = [_frame(int(s), points[i, panels]) for i, s in enumerate(steps) if int(s) in kept]
    orders = [_around(int(ks[place]), points.shape[2]) for place in panels]
    figure = _grid([int(ks[place]) for place in panels], _reach(frames))
    if len(frames) > 1:
        figure["sliders"] = [_slider(frames, orders)]
        figure["annotations"].append(_radius_note(frames[-1]))
    data = [_circle(frames[-1], place, order) for place, order in enumerate(orders)]
    return {"data": data, "layout": figure}


def _frame(step: int, points) -> tuple[int, float, list]:  # noqa: ANN001
    """Return (step, root mean square radius, points in units of it)."""
    radius = float((points**2).sum(axis=-1).mean()) ** 0.5
    scale = radius if math.isfinite(radius) and radius > 0 else 1.0
    return step, radius, (points / scale).tolist()


def _around(k: int, p: int) -> list[int]:
    """Return the residues in the order in which they lie on the k-th circle, back to the first.

    Example:
        >>> _around(2, 5)
        [0, 3, 1, 4, 2, 0]
    """
    order = sorted(range(p), key=lambda j: (j * k % p, j))
    return [*order, order[0]]


def _reach(frames: Sequence[tuple]) -> float:
    """Return the half-width of a panel: all points of all steps, and a margin."""
    values = [abs(v) for _, _, f in frames for panel in f for xy in panel for v in xy if known(v)]
    return 1.07 * max(values, default=1.0)


def _coordinates(frame: tuple, place: int, order: Sequence[int]) -> tuple[list, list]:
    points = frame[2][place]
    return tuple([_digits(points[j][i]) for j in order] for i in (0, 1))


def _digits(value: float) -> float | None:
    return round(value, 3) if known(value) else None


def _circle(frame: tuple, place: int, order: Sequence[int]) -> dict:
    x, y = _coordinates(frame, place, order)
    suffix = str(place + 1) if place else ""
    scale = [[i / (len(CYCLE) - 1), colour] for i, colour in enumerate(CYCLE)]
    bar = {"orientation": "h", "x": 0.5, "y": 1, "yanchor": "bottom", "ypad": 30, "thickness": 9,
           "lenmode": "fraction", "len": 0.5, "outlinewidth": 0, "nticks": 7,
           "title": {"text": "residue", "side": "top", "font": {"size": 13}}}  # fmt: skip
    return {
        "type": "scatter", "mode": "lines+markers", "x": x, "y": y, "customdata": list(order),
        "xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": False,
        "line": {"color": MARKED, "width": 0.8},
        "marker": {"size": 7, "color": list(order), "colorscale": scale, "cmin": 0,
                   "cmax": len(order) - 1, "showscale": place == 0, **({"colorbar": bar} if place == 0 else {})},
        "hovertemplate": "residue %{customdata}<extra></extra>",
    }  # fmt: skip


def _grid(ks: Sequence[int], reach: float) -> dict:
    columns = min(len(ks), 3)
    lines = -(-len(ks) // columns)
    grid = {"rows": lines, "columns": columns, "pattern": "independent", "xgap": 0.04, "ygap": 0.09}
    margin = {"l": 12, "r": 12, "t": 92, "b": 84}
    figure = layout(176 + 300 * lines, grid=grid, margin=margin, annotations=[], showlegend=False)
    for place, k in enumerate(ks):
        suffix = str(place + 1) if place else ""
        bare = {"range": [rounded(-reach), rounded(reach)], "showticklabels": False, "ticks": "", "linecolor": "rgba(0,0,0,0)",
                "showgrid": False, "zeroline": True, "zerolinecolor": "#e9ebee",
                "constrain": "domain"}  # fmt: skip
        figure[f"xaxis{suffix}"] = axis(**bare)
        figure[f"yaxis{suffix}"] = axis(**bare, scaleanchor=f"x{suffix}")
        place_of = {"xref": f"x{suffix} domain", "x": 0.5, "yref": f"y{suffix} domain", "y": 1}
        figure["annotations"].append(note(f"k = {k}", yanchor="bottom", yshift=2, **place_of))
    return figure


def _radius_note(frame: tuple) -> dict:
    return note(_radius(frame), xref="paper", x=0, yref="paper", y=1, xanchor="left",
                yanchor="bottom", yshift=38, align="left")  # fmt: skip


def _radius(frame: tuple) -> str:
    step, radius, _ = frame
    return f"step {count(step)}<br>radius {f'{radius:.3g}' if known(radius) else 'not finite'}"


def _slider(frames: Sequence[tuple], orders: Sequence[Sequence[int]]) -> dict:
    note_at = f"annotations[{len(orders)}].text"
    steps = []
    for frame in frames:
        pairs = [_coordinates(frame, place, order) for place, order in enumerate(orders)]
        moved = {"x": [x for x, _ in pairs], "y": [y for _, y in pairs]}
        steps.append({"label": count(frame[0]), "method": "update",
                      "args": [moved, {note_at: _radius(frame)}]})  # fmt: skip
    return {
        "active": len(frames) - 1, "steps": steps, "x": 0.02, "len": 0.96, "y": 0, "yanchor": "top",
        "pad": {"t": 22, "b": 0}, "currentvalue": {"visible": False}, "transition": {"duration": 0},
        "font": {"size": 11}, "bgcolor": "#c9ced4", "bordercolor": "#c9ced4", "ticklen": 4,
    }  # fmt: skip
