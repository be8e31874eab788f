"""Saturation against effect: one mark per cell of the map."""

from __future__ import annotations

from collections.abc import Sequence

from triplepoint.report import formats as as_
from triplepoint.report.figures import axis, escaped, layout, rounded
from triplepoint.report.grok_axes import MARKED
from triplepoint.report.map_curves import colour_of
from triplepoint.report.map_panels import SYMBOLS
from triplepoint.report.map_rows import Candidate
from triplepoint.report.map_tables import SATURATIONS, points_of


def scatter_panel(candidates: Sequence[Candidate], column: str, endpoint: str) -> dict | None:
    """Return the scatter of one saturation against the effect at one endpoint; None without a point.

    Args:
        candidates: Each has a colour.
        column: ``saturation_end`` or ``saturation_500``.
        endpoint: Of the effect.
    """
    data = []
    for number, candidate in enumerate(candidates):
        points = points_of(candidate.effects, column, endpoint)
        if not points:
            continue
        x, y, effects = zip(*points, strict=True)
        hover = [
            f"<b>{escaped(candidate.name)}</b><br>{escaped(e.where)}<br>saturation {as_.share(a)}<br>{as_.change(b)}"
            for a, b, e in points
        ]
        failed = [SYMBOLS[next(iter(e.failed))] if e.failed else "circle" for e in effects]
        data.append({
            "type": "scatter", "mode": "markers", "name": escaped(candidate.name), "x": list(map(rounded, x)),
            "y": list(map(rounded, y)), "customdata": hover, "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"size": 8, "color": colour_of(number), "symbol": failed, "opacity": 0.85,
                       "line": {"width": 1.5 if any(e.failed for e in effects) else 0, "color": colour_of(number)}},
        })  # fmt: skip
    if not data:
        return None
    frame = layout(
        320, margin={"l": 62, "r": 14, "t": 14, "b": 54}, showlegend=False,
        xaxis=axis(f"saturation {SATURATIONS[column]}", tickformat=".0%", rangemode="tozero"),
        yaxis=axis("relative difference", tickformat=".1~%"),
    )  # fmt: skip
    zero = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": {"color": MARKED, "width": 1, "dash": "dot"}}  # fmt: skip
    return {"data": data, "layout": {**frame, "shapes": [zero]}}
