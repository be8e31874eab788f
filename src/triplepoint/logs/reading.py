"""A log of any kind -> the curves of one run, in the order of their steps, and what was done to them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from triplepoint.errors import LogError
from triplepoint.logs.columns import OPTIONS, choose, columns_of, may_be_used
from triplepoint.logs.events import event_rows
from triplepoint.logs.finding import KINDS, Found, find_log, opened
from triplepoint.logs.records import widened
from triplepoint.logs.rows import Row, rows_of
from triplepoint.logs.table import Column, Table
from triplepoint.runs import read_json

Points = list[tuple[float, float]]
"""(step, value), steps ascending, each once."""
LOSSES, ACCURACIES = ("train_loss", "val_loss"), ("train_accuracy", "val_accuracy")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """The curves of one run."""

    path: Path
    """The file that was read; the folder, where there are several."""
    kind: str
    """What it is, in words."""
    rows: int
    columns: dict[str, str]
    """Role -> name of the column it was read from."""
    curves: dict[str, Points]
    """``train_loss``, ``val_loss``, ``train_accuracy``, ``val_accuracy`` (shares) and ``lr``, where there are any."""
    plateau: float | None = None
    """Unigram plateau on the validation windows, nats per token, where a run folder says it."""
    unit: str | None = None
    """Of the losses, where a run folder says it, e.g. ``nats/token``."""
    notes: tuple[str, ...] = ()
    """What was left out or changed, in sentences."""


def read_log(
    path: str | Path, *, columns: Mapping[str, str | None] | None = None, run: str | None = None
) -> Log:
    r"""Read the curves of one run from a file or folder.

    Where steps go back (a run that was resumed), what a column had from there on is dropped: the later value counts,
    as it does where a step is logged twice.

    Args:
        path: A file or a folder: ``trainer_state.json`` of the Hugging Face Trainer, CSV, JSON Lines (each also
            gzipped), TensorBoard events, or a run folder.
        columns: ``step``, ``train_loss``, ``val_loss``, ``train_accuracy``, ``val_accuracy`` -> name of the column;
            those that are missing or None are told from their names.
        run: Which of several runs, as the error without it lists them.

    Raises:
        LogError: If it cannot be read, is of no known kind, or has no column of steps or losses.
        MissingExtraError: If event files are given and the extra ``tensorboard`` is not installed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log.csv"
        >>> _ = path.write_text("iter,train/loss,val/loss\n0,3.0,3.1\n10,2.0,2.2\n")
        >>> read_log(path).curves["val_loss"]
        [(0, 3.1), (10, 2.2)]
    """
    path, named, notes = Path(path), dict(columns or {}), []
    found = find_log(path)
    if found.kind == "events":  # each has its step, whatever tags are called
        named["step"] = "step"
    table = Table(lambda name: may_be_used(name) or name in named.values())
    kind = _fill(table, found, path, run, notes)
    source = found.paths[0] if len(found.paths) == 1 else path
    if not table.names:
        raise LogError(f"{source} has no rows.\nGive a log with at least one row: {KINDS}.")
    chosen = choose(table.columns, named, names=table.names, source=str(source))
    _check_columns(chosen, table, source)
    return Log(
        path=source,
        kind=kind,
        rows=table.rows,
        columns=chosen,
        curves=_curves(table.columns, chosen, notes),
        **(_facts_of(path) if found.kind == "run" else {}),
        notes=tuple(notes),
    )


def _fill(table: Table, found: Found, root: Path, run: str | None, notes: list[str]) -> str:
    """Read all rows into ``table``; returns what the log is."""
    if found.kind == "events":
        _add(table, event_rows(found.paths, root, run, notes))
        return "TensorBoard events"
    path = found.paths[0]
    with opened(path) as file:
        kind, rows = rows_of(file, path, notes)
        _add(table, widened(rows, path, run, table.wanted))
    return "run folder" if found.kind == "run" else kind


def _add(table: Table, rows: Iterable[Row]) -> None:
    for row in rows:
        table.add(row)


def _check_columns(chosen: Mapping[str, str], table: Table, source: Path) -> None:
    if "step" not in chosen:
        raise LogError(
            f"{source} has no column of steps.\n{columns_of(table.names)} Name one with {OPTIONS['step']}."
        )
    if not any(role in chosen for role in (*LOSSES, *ACCURACIES)):
        raise LogError(
            f"{source} has no column of losses or accuracies.\n{columns_of(table.names)} "
            f"Name one with {OPTIONS['train_loss']} or {OPTIONS['val_loss']}."
        )


def _facts_of(folder: Path) -> dict:
    """Return plateau and unit of the losses, as far as a run's manifest has them."""
    manifest = read_json(folder / "manifest.json")
    value, unit = (
        _inside(manifest, *keys) for keys in (("plateau", "val"), ("metrics", "val_loss", "unit"))
    )
    known = isinstance(value, float) and math.isfinite(value)
    return {"plateau": value if known else None, "unit": unit if isinstance(unit, str) else None}


def _inside(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _curves(
    columns: Mapping[str, Column], chosen: Mapping[str, str], notes: list[str]
) -> dict[str, Points]:
    steps = columns[chosen["step"]]
    step_of = dict(zip(steps.rows, steps.values, strict=True))
    curves = {}
    for role, name in chosen.items():
        if role != "step":
            curves[role] = _in_order(name, columns[name], step_of, notes)
    _to_shares(curves, notes)
    return {role: points for role, points in curves.items() if points}


def _in_order(name: str, column: Column, step_of: Mapping[int, float], notes: list[str]) -> Points:
    """Return a column along its steps, each step once: the later value counts."""
    points = [
        (int(step) if step == int(step) else step, value)
        for row, value in zip(column.rows, column.values, strict=True)
        if math.isfinite(step := step_of.get(row, math.nan))
    ]
    _say(notes, len(column) - len(points), f"values of '{name}' have no step and were left out")
    _say(notes, column.nulls, f"cells of '{name}' are null: missing, or a NaN written that way")
    _say(notes, column.unread, f"cells of '{name}' hold no number and were left out")
    if len(points) > 2 and all(a[0] > b[0] for a, b in zip(points, points[1:], strict=False)):
        return points[::-1]  # an export with the latest row first
    kept, again, back = [], 0, 0
    for point in points:
        back += bool(kept) and kept[-1][0] > point[0]
        while kept and kept[-1][0] >= point[0]:
            kept.pop()
            again += 1
        kept.append(point)
    if back:
        notes.append(
            f"the steps of '{name}' go back {back} times (resumed?): {again} earlier values were dropped, the later "
            f"ones count. Steps that start again each epoch: name another column with {OPTIONS['step']}"
        )
    else:
        _say(
            notes, again, f"values of '{name}' were logged again at the same step; the last counts"
        )
    return kept


def _say(notes: list[str], count: int, what: str) -> None:
    if count:
        notes.append(f"{count} {what}")


def _to_shares(curves: dict[str, Points], notes: list[str]) -> None:
    """Turn percent into shares, in both accuracies where either is above 1."""
    present = {role: curves[role] for role in ACCURACIES if curves.get(role)}
    top = max((x for points in present.values() for _, x in points if x < math.inf), default=0)
    if top > 100:
        raise LogError(
            f"An accuracy reaches {top:g}: neither a share nor percent.\n"
            f"Name the right column with {OPTIONS['train_accuracy']} or {OPTIONS['val_accuracy']}."
        )
    if top > 1:
        notes.append("accuracies are above 1 and were taken as percent")
        curves |= {role: [(s, x / 100) for s, x in points] for role, points in present.items()}
