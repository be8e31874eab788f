"""Rows -> columns of numbers: which rows of a log have a number in a column, and which number."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping


def number(value: object) -> float | None:
    """Return the number in a cell, NaN and infinities in any spelling; None where there is none.

    Example:
        >>> number(" 2.5 "), number("Infinity"), number("97 %"), number(""), number(True)
        (2.5, inf, 0.97, None, None)
    """
    if value is None or value is True or value is False:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return _percent(value) if isinstance(value, str) else None


def _percent(text: str) -> float | None:
    share, sign, rest = text.partition("%")
    try:
        return float(share) / 100 if sign and not rest.strip() else None
    except ValueError:
        return None


class Column:
    """The numbers of one column, each with its row."""

    def __init__(self):
        self.rows, self.values = array("q"), array("d")
        self.nulls = 0
        """Cells that hold JSON's null: how many tools write NaN."""
        self.unread = 0
        """Cells that hold something else that is no number."""

    def __len__(self) -> int:
        return len(self.values)


class Table:
    """Columns by name, filled row by row; only those that may be used keep their numbers.

    Args:
        wanted: Whether a column of that name may be used.
    """

    def __init__(self, wanted: Callable[[str], bool]):
        self.rows = 0
        self.wanted = wanted
        self._columns: dict[str, Column | None] = {}

    @property
    def names(self) -> list[str]:
        """All columns, in the order of their first cell."""
        return list(self._columns)

    @property
    def columns(self) -> dict[str, Column]:
        """Columns that may be used and have a number."""
        return {name: column for name, column in self._columns.items() if column}

    def add(self, row: Mapping[str, object]) -> None:
        """Take the next row."""
        self.rows += 1
        for name, value in row.items():
            if name not in self._columns:
                self._columns[name] = Column() if self.wanted(name) else None
            column = self._columns[name]
            if column is None:
                continue
            found = number(value)
            if found is not None:
                column.rows.append(self.rows)
                column.values.append(found)
            elif value is None:
                column.nulls += 1
            elif value != "":
                column.unread += 1
