"""Spectral densities: the picture of one matrix, what it changes to for another, and all of them as thumbnails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from triplepoint.report.figures import axis, escaped, layout, note, rounded
from triplepoint.report.formats import count, shortened
from triplepoint.report.series import COLOURS
from triplepoint.report.spectra_rows import MatrixRow, exponent_cell

BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
NULL = "#8a939d"
LIMIT = 200
"""Matrices drawn, the most notable ones; the table has all."""
_FEWEST_BINS = 20
THUMB = (132, 62)
"""Size of a thumbnail in pixels."""

Bars = list[tuple[float, float, int]]
"""(low edge, high edge, eigenvalues) of each bin of a histogram."""


def histogram(arrays: Mapping[str, Any], prefix: str, part: str) -> Bars:
    """Return a stored histogram, its bins joined where eigenvalues are few; empty where there is none.

    About ``2 sqrt(N)`` bins of N eigenvalues: finer ones hold one or none each.

    Args:
        arrays: What ``arrays.npz`` holds.
        prefix: Of the keys of one matrix, e.g. ``0|density|wte``.
        part: ``counts`` or ``null_counts``.
    """
    edges, counts = arrays.get(f"{prefix}|edges"), arrays.get(f"{prefix}|{part}")
    if edges is None or counts is None:
        return []
    bins = len(counts)
    wanted = max(_FEWEST_BINS, 2 * math.sqrt(int(counts.sum())))
    joined = next((j for j in (5, 4, 2) if bins % j == 0 and bins / j >= wanted), 1)
    return [
        (float(edges[i]), float(edges[i + joined]), int(counts[i : i + joined].sum()))
        for i in range(0, bins, joined)
    ]


def densities(bars: Bars, total: int) -> tuple[list[float], list[float | None]]:
    """Return the centres of the bins and the densities, None where a bin is empty; the whole has the area 1."""
    x = [math.sqrt(low * high) for low, high, _ in bars]
    y = [n / (total * (high - low)) if n else None for low, high, n in bars]
    return x, y


def fitted(row: MatrixRow, total: int, largest: float) -> tuple[list[float], list[float]]:
    """Return the ends of the fitted line, straight on logarithmic axes; empty without a fit."""
    alpha, xmin, size = (row.fit.get(f"tail_{key}") for key in ("exponent", "xmin", "size"))
    if alpha is None or xmin is None or size is None or largest <= xmin:
        return [], []
    x = [xmin, largest]
    return x, [size / total * (alpha - 1) / xmin * (v / xmin) ** -alpha for v in x]


def density_view(
    row: MatrixRow, arrays: Mapping[str, Any], number: int, before: int | None = None
) -> dict | None:
    """Return what the picture shows of one matrix: points of its traces, marks and axes; None without arrays.

    Args:
        row: The matrix.
        arrays: What ``arrays.npz`` holds.
        number: Of the checkpoint that ``row`` is from.
        before: Of the checkpoint that it is compared with, drawn behind.
    """
    own = histogram(arrays, f"{number}|density|{row.name}", "counts")
    if not own:
        return None
    total = sum(n for *_, n in own) + row.below_range
    null = histogram(arrays, f"{number}|density|{row.name}", "null_counts")
    old = [] if before is None else histogram(arrays, f"{before}|density|{row.name}", "counts")
    largest = max(high for _, high, n in own if n)
    parts = [
        densities(old, total),
        densities(null, total),
        densities(own, total),
        fitted(row, total, largest),
    ]
    drawn = [v for x, y in parts for v in y if v]
    low, high = math.log10(min(drawn)), math.log10(max(drawn))
    pad = 0.06 * (high - low) or 0.5
    return {
        "name": row.name,
        "x": [[rounded(v) for v in x] for x, _ in parts],
        "y": [[rounded(v) for v in y] for _, y in parts],
        "yrange": [rounded(low - pad), rounded(high + pad)],
        "marks": [[label, rounded(at)] for label, at in _marks(row)],
        "says": says(row),
    }


def _marks(row: MatrixRow) -> list[tuple[str, float]]:
    named = (("xmin", "tail_xmin"), ("noise bulk ends", "bulk_edge"))
    return [(label, row.fit[key]) for label, key in named if row.fit.get(key, 0) > 0]


def says(row: MatrixRow) -> str:
    """Say in a line what was found in a matrix: exponent or why there is none, then the verdict against the null."""
    rows, columns = row.shape
    exponent, small = exponent_cell(row)
    parts = [f"{row.name}: {row.role}, {rows} x {columns}"]
    if exponent != "\N{EN DASH}":
        size = row.values.get("tail_size")
        over = f" over {count(size)} eigenvalues" if size is not None else ""
        parts.append(f"exponent {exponent}{f' ({small})' if small else ''}{over}")
    elif small:
        parts.append(f"no exponent: {small}")
    if row.heavy is not None:
        why = row.reasons.get("heavy_tailed", "")
        told = "heavier than its null" if row.heavy else "not heavier than its null"
        parts.append(told + (f" ({why})" if why and exponent != "\N{EN DASH}" else ""))
    if row.below_range:
        parts.append(f"{count(row.below_range)} eigenvalues too small to draw")
    return "; ".join(parts) + "."


def density_figure(view: Mapping) -> dict:
    """Return the figure, as it shows the first matrix."""
    line = {"type": "scatter", "mode": "lines"}
    looks = (
        {**line, "name": "before", "line": {"color": PINK, "width": 1.6, "dash": "dot"}},
        {**line, "name": "null: same entries, random order", "line": {"color": NULL, "width": 1.8}},
        {"type": "scatter", "mode": "markers", "name": "eigenvalues", "marker": {"color": BLUE, "size": 7}},
        {**line, "name": "fitted power law", "line": {"color": ORANGE, "width": 2.2, "dash": "dash"}},
    )  # fmt: skip
    data = [
        {**look, "x": x, "y": y, "connectgaps": True, "showlegend": bool(x),
         "hovertemplate": "eigenvalue %{x:.4g}<br>density %{y:.3g}<extra>" + look["name"] + "</extra>"}
        for look, x, y in zip(looks, view["x"], view["y"], strict=True)
    ]  # fmt: skip
    figure = layout(
        430, margin={"l": 70, "r": 20, "t": 58, "b": 56},
        xaxis=axis("eigenvalue of W<sup>T</sup>W", type="log", exponentformat="power", dtick=1),
        yaxis=axis("density", type="log", range=view["yrange"], exponentformat="power", dtick=1),
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        shapes=[_rule(at) for _, at in view["marks"]],
        annotations=[_label(*mark, place) for place, mark in enumerate(view["marks"])],
    )  # fmt: skip
    return {"data": data, "layout": figure}


def _rule(at: float) -> dict:
    return {"type": "line", "layer": "below", "yref": "paper", "y0": 0, "y1": 1, "x0": at, "x1": at,
            "line": {"color": NULL, "width": 1.2, "dash": "dash"}}  # fmt: skip


def _label(name: str, at: float, place: int) -> dict:
    return note(escaped(name), x=math.log10(at), yref="paper", y=0, yanchor="bottom", xanchor="left", xshift=4,
                yshift=4 + 15 * place)  # fmt: skip


def thumbnails(rows: Sequence[MatrixRow], arrays: Mapping[str, Any], number: int) -> list[dict]:
    """Return a small picture of each matrix that has a density: eigenvalues as points, the null as a line."""
    found = []
    for row in rows:
        own = histogram(arrays, f"{number}|density|{row.name}", "counts")
        if own:
            null = histogram(arrays, f"{number}|density|{row.name}", "null_counts")
            small = exponent_cell(row)
            found.append(
                {
                    "name": row.name, "label": shortened(row.name, 18), "heavy": bool(row.heavy),
                    "exponent": small[0], "svg": _svg(own, null),
                }
            )  # fmt: skip
    return found


def _svg(own: Bars, null: Bars) -> Markup:
    width, height = THUMB
    points = [(x, y) for x, y in zip(*densities(own, 1), strict=True) if y]
    line = [(x, y) for x, y in zip(*densities(null, 1), strict=True) if y]
    logs = [(math.log10(x), math.log10(y)) for x, y in points + line]
    x0, x1 = min(x for x, _ in logs), max(x for x, _ in logs)
    y0, y1 = min(y for _, y in logs), max(y for _, y in logs)

    def place(x: float, y: float) -> str:
        across = 4 + (width - 8) * (math.log10(x) - x0) / ((x1 - x0) or 1)
        up = 4 + (height - 8) * (y1 - math.log10(y)) / ((y1 - y0) or 1)
        return f"{across:.1f} {up:.1f}"

    # a dash of no length under a round cap is a dot: one element for all points
    dots = "".join(f"M{place(*p)}h0" for p in points)
    curve = "L".join(place(*p) for p in line)
    null_path = f'<path class="null" d="M{curve}"/>' if line else ""
    return Markup(
        f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">{null_path}<path class="dots" d="{dots}"/></svg>'
    )
