"""The tables of an inspection's page: all matrices, before and after, and what was skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from triplepoint.report.formats import DASH, MINUS, known
from triplepoint.report.spectra_rows import (
    MatrixRow,
    Sheet,
    exponent_cell,
    shown,
    spectral_norm,
)
from triplepoint.report.spectra_words import common

COLUMNS = {
    "tail_exponent": "Tail exponent", "null_tail_exponent": "of null", "tail_size": "Tail", "spikes": "Spikes",
    "stable_rank": "Stable rank", "effective_rank": "Effective rank", "spectral_norm": "Largest singular value",
    "non_finite_rows": "Rows not finite",
}  # fmt: skip
"""Metric -> heading; a column that no matrix has a value for is left out."""
COMPARED = ("tail_exponent", "stable_rank", "effective_rank", "spectral_norm", "spikes")
ARROWS = {1: "\N{UPWARDS ARROW}", -1: "\N{DOWNWARDS ARROW}", 0: ""}


class Cell(NamedTuple):
    """What a table shows at one place."""

    main: str
    small: str = ""
    sort: float | None = None
    """By which the column sorts; None stands at the end."""


class Line(NamedTuple):
    """One matrix of a table."""

    row: MatrixRow
    cells: list[Cell]


class Table(NamedTuple):
    """Headings and lines."""

    heads: list[str]
    lines: list[Line]


def value_of(row: MatrixRow, metric: str) -> float | None:
    """Return the value of a column; the norm is recorded as the logarithm of its square."""
    return spectral_norm(row) if metric == "spectral_norm" else row.values.get(metric)


def matrix_table(rows: Sequence[MatrixRow]) -> Table:
    """Return all matrices of a checkpoint."""
    columns = [m for m in COLUMNS if any(known(value_of(row, m)) for row in rows)]
    # one bad row would be lost among zeros, and a column of zeros says nothing
    if not any(row.values.get("non_finite_rows") for row in rows):
        columns = [m for m in columns if m != "non_finite_rows"]
    return Table(
        [COLUMNS[m] for m in columns], [Line(r, [_cell(r, m) for m in columns]) for r in rows]
    )


def _cell(row: MatrixRow, metric: str) -> Cell:
    value = value_of(row, metric)
    sort = value if known(value) else None
    if metric == "tail_exponent":
        return Cell(*exponent_cell(row), sort)
    if metric in ("stable_rank", "effective_rank") and known(value):
        return Cell(shown(metric, value), f"of {min(row.shape)}", sort)
    return Cell(shown(metric, value), "", sort)


def change_table(before: Sheet, after: Sheet) -> Table:
    """Return the matrices that two checkpoints share, the one that changed most, relative to its size, first."""
    pairs = common(before, after)
    columns = [m for m in COMPARED if any(known(value_of(a, m)) for pair in pairs for a in pair)]
    pairs.sort(key=lambda pair: -max((abs(_relative(pair, m) or 0) for m in columns), default=0))
    lines = [Line(pair[1], [_change_cell(pair, m) for m in columns]) for pair in pairs]
    return Table([COLUMNS[m] for m in columns], lines)


def _relative(pair: tuple[MatrixRow, MatrixRow], metric: str) -> float | None:
    """Return the difference over the larger of the two values; None where one is missing."""
    old, new = (value_of(row, metric) for row in pair)
    if not (known(old) and known(new)):
        return None
    size = max(abs(old), abs(new))
    return (new - old) / size if size else 0.0


def _change_cell(pair: tuple[MatrixRow, MatrixRow], metric: str) -> Cell:
    old, new = (shown(metric, value_of(row, metric)) for row in pair)
    relative = _relative(pair, metric)
    if relative is None:
        return Cell(DASH if old == new == DASH else f"{old} \N{RIGHTWARDS ARROW} {new}")
    arrow = ARROWS[(relative > 0) - (relative < 0)] if old != new else ""
    told = f"{relative:+.0%}".replace("-", MINUS) if arrow else "unchanged"
    return Cell(f"{old} \N{RIGHTWARDS ARROW} {new}", f"{arrow} {told}".strip(), abs(relative))


def skip_groups(sheet: Sheet) -> list[tuple[str, int, list[str]]]:
    """Return (reason, tensors, their names and shapes), the most frequent reason first."""
    names: dict[str, list[str]] = {}
    for skipped, reason in zip(sheet.skipped, sheet.skip_reasons(), strict=True):
        sides = " x ".join(map(str, skipped["shape"])) or "one number"
        names.setdefault(reason, []).append(f"{skipped['name']} ({sides})")
    return [(reason, count, names[reason]) for reason, count in sheet.skip_counts()]


def unmatched(before: Sheet, after: Sheet) -> list[tuple[str, str]]:
    """Return (matrix, why it cannot be compared), of both checkpoints."""
    shared = {row.name for _, row in common(before, after)}
    old, new = (
        {r.name: r for r in sheet.rows if r.name not in shared} for sheet in (before, after)
    )
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name in old and name in new:
            sides = (" x ".join(map(str, one[name].shape)) for one in (old, new))
            found.append((name, "of shape {} before, {} after".format(*sides)))
        else:
            found.append((name, f"only in the checkpoint {'before' if name in old else 'after'}"))
    return found
