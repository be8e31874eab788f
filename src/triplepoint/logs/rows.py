"""Text -> rows, each a mapping from the names of columns to what stands in them."""

from __future__ import annotations

import ast
import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from triplepoint.errors import LogError
from triplepoint.logs.finding import KINDS

Row = Mapping[str, object]
DELIMITERS = ",;\t|"
_NOT_FINITE = re.compile(r": (-?(?:nan|inf))\b")
FIELD_LIMIT = 1 << 24
"""Characters of a field of a CSV file; Python's own limit is too short for a logged text."""


def rows_of(file: IO[str], path: Path, notes: list[str]) -> tuple[str, Iterator[Row]]:
    """Return what a text is, in words, and its rows; what was left out is added to ``notes`` on the way.

    Raises:
        LogError: If it is neither JSON nor a table with a header.
    """
    first = next((line for line in file if line.strip()), "").strip()
    lines = itertools.chain([first + "\n"], file)
    row = _row_of(first)
    if row is not None and "log_history" not in row:
        return "JSON Lines", _json_lines(lines, notes)
    if first.startswith(("{", "[")):
        return _json_document("".join(lines), path, notes)
    return "CSV", _table(lines, path)


def _row_of(line: str) -> dict | None:
    """Return the object on a line of JSON, or of Python as the Trainer prints it; None where there is neither."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        pass
    try:
        row = ast.literal_eval(_NOT_FINITE.sub(r": '\1'", line.strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return row if isinstance(row, dict) and all(isinstance(name, str) for name in row) else None


def _json_lines(lines: Iterable[str], notes: list[str]) -> Iterator[Row]:
    bad, first = 0, 0
    for number, line in enumerate(lines, 1):
        row = _row_of(line)
        if row is not None:
            yield row
        elif line.strip():
            bad, first = bad + 1, first or number
    if bad:
        notes.append(
            f"{bad} lines are no JSON objects and were left out, the first is line {first}"
        )


def _json_document(text: str, path: Path, notes: list[str]) -> tuple[str, Iterator[Row]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path} is no JSON: {error}.\nGive {KINDS}.") from error
    kind, rows = "JSON", value
    if isinstance(value, dict) and "log_history" in value:
        kind, rows = "Hugging Face trainer state", value["log_history"]
        notes.append("the Trainer logs training loss as its mean since the log before")
    if not isinstance(rows, list):
        raise LogError(
            f"{path} is a JSON object without log_history.\nGive a trainer_state.json, an array of rows, or JSON Lines."
        )
    # the Trainer ends with the mean over the whole run, which is no point of a curve
    return kind, (row for row in rows if isinstance(row, dict) and "train_runtime" not in row)


def _table(lines: Iterable[str], path: Path) -> Iterator[Row]:
    header: list[str] = []
    before = csv.field_size_limit(FIELD_LIMIT)
    lines = iter(lines)
    first = next(lines)
    delimiter = max(DELIMITERS, key=first.count)
    try:
        for cells in csv.reader(itertools.chain([first], lines), delimiter=delimiter):
            # a resumed run may write its header again
            if not header or (cells and cells[0] == header[0]):
                header = _header(cells, path)
            elif delimiter == ";":
                yield {k: v.replace(",", ".") for k, v in zip(header, cells, strict=False)}
            else:
                yield dict(zip(header, cells, strict=False))
    except csv.Error as error:
        raise LogError(f"{path} is no CSV: {error}.\nGive {KINDS}.") from error
    finally:
        csv.field_size_limit(before)


def _header(cells: list[str], path: Path) -> list[str]:
    from triplepoint.logs.table import number

    names = [cell.strip().removeprefix("#").strip() for cell in cells]
    if any(number(name) is not None for name in names) or len(names) < 2:
        raise LogError(
            f"{path} has no header: its first line is {','.join(cells)[:80]!r}.\n"
            "Name the columns in the first line, e.g. step,train_loss,val_loss."
        )
    return names
