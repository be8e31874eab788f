"""Validation curves of a map's cells, small enough to travel in the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triplepoint.report import formats as as_
from triplepoint.report.figures import axis, escaped, layout, rounded
from triplepoint.report.map_rows import Candidate, Effect, Row
from triplepoint.report.series import COLOURS, thinned

POINTS = 120
"""Of a curve; more cannot be told apart at its height."""
KIND = "val_loss"
Curve = tuple[list[int], list[float | None]]
"""Steps and losses."""


def curves_of(cells: Iterable[Row], arrays: Mapping) -> dict[str, Curve]:
    """Return folder -> thinned validation curve of each cell that has one.

    Args:
        cells: The table's rows of kind ``cell``.
        arrays: ``IDENTITY|steps`` and ``IDENTITY|val_loss``, as a map's ``arrays.npz`` has them.
    """
    found = {}
    for row in cells:
        steps, losses = (arrays.get(f"{row.get('identity')}|{kind}") for kind in ("steps", KIND))
        if steps is None or losses is None or not len(steps):
            continue
        of_step = dict(zip(map(int, steps), map(float, losses), strict=True))
        # the lowest point is kept: the best checkpoint must not be thinned away
        best = min((s for s, v in of_step.items() if as_.known(v)), key=of_step.get, default=None)
        kept = {*thinned(of_step, POINTS), *([best] if best is not None else [])}
        found[row["folder"]] = (sorted(kept), [rounded(of_step[s]) for s in sorted(kept)])
    return found


def views_of(
    candidates: Sequence[Candidate], curves: Mapping[str, Curve], cells: Iterable[Row]
) -> dict:
    """Return what the page's script draws when a cell is pointed at.

    Returns:
        ``curves``: folder -> curve; ``effects``: number -> title, lines as (folder, name, is candidate) and plateau.
    """  # fmt: skip
    plateaus = {row.get("folder"): row.get("plateau") for row in cells}
    effects = {}
    for candidate in candidates:
        for effect in candidate.effects:
            lines = [line for line in _lines(effect) if line[0] in curves]
            if lines:
                plateau = rounded(plateaus.get(lines[0][0]))
                effects[effect.number] = {"title": effect.where, "lines": lines, "plateau": plateau}
    used = {line[0] for effect in effects.values() for line in effect["lines"]}
    return {"effects": effects, "curves": {f: c for f, c in curves.items() if f in used}}


def _lines(effect: Effect) -> list[tuple[str, str, bool]]:
    """Return the runs of an effect: the baseline's first, each once."""
    pairs = sorted(effect.pairs, key=lambda row: row.get("seed") or 0)
    theirs = {p.get("baseline_folder"): (str(p.get("baseline")), p.get("seed"), False) for p in pairs}  # fmt: skip
    ours = {p.get("folder"): (str(p.get("arm")), p.get("seed"), True) for p in pairs}
    return [
        (folder, escaped(f"{arm}, seed {as_.plain(seed)}"), own)
        for folder, (arm, seed, own) in {**theirs, **ours}.items()
    ]


def curve_frame(number: int, unit: str) -> dict:
    """Return the empty figure that a candidate's curves are drawn into.

    Args:
        number: Of the candidate; it decides on the colour.
        unit: Of the losses.
    """
    frame = layout(
        300, margin={"l": 58, "r": 14, "t": 14, "b": 54}, hovermode="closest", showlegend=True,
        xaxis=axis("step", rangemode="tozero"), yaxis=axis(f"validation loss, {unit}"),
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "font": {"size": 12}},
        meta={"colour": colour_of(number)},
    )  # fmt: skip
    return {"data": [], "layout": frame}


def colour_of(number: int) -> str:
    """Return the colour of the candidate of that number."""
    return COLOURS[number % len(COLOURS)]
