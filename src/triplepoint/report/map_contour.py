"""Where the effect changes sign: the zero line between measured cells, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

FEWEST = 3
"""Sizes, and data sizes, below which a line would be a guess."""

Point = tuple[float, float]
Corner = tuple[float, float, float]
"""x, y and value."""


def zero_line(values: Mapping[Point, float]) -> list[tuple[Point, Point]]:
    """Return the segments of the zero line of a function known at the places of a grid.

    Between neighbouring columns and rows of the grid the value is linear in ``log x`` and ``log y`` over triangles:
    four around the mean of a square whose corners are all measured, one where three are. So the line never leaves
    the hull of the cells, and never crosses a gap of the grid.

    Args:
        values: (x, y) -> value, x and y positive. A place that is not measured is left out.

    Returns:
        Segments, each from one place to another; empty with fewer than three different x or y.

    Example:
        The value changes sign half way, in logarithms, between x = 1 and x = 100:

        >>> grid = {(x, y): math.log10(x) - 1 for x in (1, 100, 1000) for y in (1, 10, 100)}
        >>> sorted({round(x, 6) for segment in zero_line(grid) for x, _ in segment})
        [10.0]
    """
    xs, ys = (sorted({place[axis] for place in values}) for axis in (0, 1))
    if len(xs) < FEWEST or len(ys) < FEWEST:
        return []
    segments = []
    for triangle in _triangles(values, xs, ys):
        crossed = list(_crossings(triangle))
        if len(crossed) == 2:
            segments.append((crossed[0], crossed[1]))
    return segments


def _triangles(
    values: Mapping[Point, float], xs: Sequence[float], ys: Sequence[float]
) -> Iterator[tuple[Corner, Corner, Corner]]:
    for left, right in zip(xs, xs[1:], strict=False):
        for low, high in zip(ys, ys[1:], strict=False):
            square = [(left, low), (right, low), (right, high), (left, high)]
            known = [
                (math.log10(x), math.log10(y), values[x, y]) for x, y in square if (x, y) in values
            ]
            if len(known) == 3:
                yield known[0], known[1], known[2]
            elif len(known) == 4:
                middle = tuple(sum(corner[i] for corner in known) / 4 for i in range(3))
                for place in range(4):
                    yield known[place], known[(place + 1) % 4], middle


def _crossings(triangle: tuple[Corner, Corner, Corner]) -> Iterator[Point]:
    """Yield where the sides change sign; a corner at exactly zero counts as positive, or it would count twice."""
    for place in range(3):
        (x, y, v), (u, w, other) = triangle[place], triangle[(place + 1) % 3]
        if (v < 0) != (other < 0):
            share = v / (v - other)
            yield 10 ** (x + share * (u - x)), 10 ** (y + share * (w - y))
