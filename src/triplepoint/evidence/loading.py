"""Reading the benchmark: two tables, of runs and of cells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from triplepoint.errors import DataError
from triplepoint.evidence.cells import BenchmarkCell, Setting, Trajectory, Truth
from triplepoint.runs import read_rows

RUNS, CELLS = "runs.parquet", "cells.parquet"
COLUMNS = {
    RUNS: {"run", "seed", "diverged_at", "metric", "step", "value"},
    CELLS: {"name", "candidate", "op", "setting", "baseline_runs", "candidate_runs", "truth"},
}
CURVES = ("s1", "train_loss", "val_loss")
"""Metrics of every evaluation; all others are of the looks."""


SHIPPED = Path(__file__).parent / "benchmark"


def benchmark() -> list[BenchmarkCell]:
    """Return the benchmark that ships with the library."""
    return benchmark_from(SHIPPED)


def benchmark_from(folder: str | Path) -> list[BenchmarkCell]:
    """Read a benchmark's folder.

    ``runs.parquet`` has one row per run, metric and step; ``cells.parquet`` one per cell, its setting and truth as JSON.

    Args:
        folder: With both tables.

    Raises:
        DataError: If a table is missing or empty, or lacks something, or a cell names a run that is not there.
        RunFolderError: If a table cannot be read.
    """
    folder = Path(folder)
    tables = {name: _rows(folder / name, columns) for name, columns in COLUMNS.items()}
    try:
        runs = _trajectories(tables[RUNS])
        return [_cell(row, runs) for row in tables[CELLS]]
    except DataError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The benchmark in {folder} is not as this version writes it: {type(error).__name__} {error}.\n"
            "Build both tables again."
        ) from error


def _rows(path: Path, columns: set[str]) -> list[dict]:
    if not path.is_file():
        raise DataError(
            f"There is no table {path}.\nGive the folder that holds {RUNS} and {CELLS}."
        )
    rows = read_rows(path)
    missing = sorted(columns - rows[0].keys()) if rows else []
    if not rows or missing:
        raise DataError(
            f"{path} has no {f'column {missing[0]}' if rows else 'rows'}.\nBuild both tables again."
        )
    return rows


def _trajectories(rows: list[dict]) -> dict[str, Trajectory]:
    found: dict[str, dict] = {}
    for row in rows:
        run = found.setdefault(row["run"], {"seed": row["seed"], "diverged_at": row["diverged_at"], "series": {}})  # fmt: skip
        run["series"].setdefault(row["metric"], []).append((row["step"], row["value"]))
    return {name: _trajectory(run) for name, run in found.items()}


def _trajectory(run: dict) -> Trajectory:
    series = {
        metric: (np.array([s for s, _ in sorted(points)]), np.array([v for _, v in sorted(points)]))
        for metric, points in run["series"].items()
    }
    s1, train, val = (series.pop(metric) for metric in CURVES)
    gone = run["diverged_at"]
    return Trajectory(
        seed=run["seed"], steps=val[0], s1=s1[1], train=train[1], val=val[1], series=series,
        outcome="finished" if gone is None else "diverged", diverged_at=gone,
    )  # fmt: skip


def _cell(row: dict, runs: dict[str, Trajectory]) -> BenchmarkCell:
    arms = {}
    for arm in ("baseline_runs", "candidate_runs"):
        names = json.loads(row[arm])
        missing = [name for name in names if name not in runs]
        if missing:
            raise DataError(
                f"The cell {row['name']} has a run {missing[0]} that {RUNS} has not.\nBuild both tables again."
            )
        arms[arm] = tuple(runs[name] for name in names)
    truth = json.loads(row["truth"]) if row["truth"] else None
    return BenchmarkCell(
        name=row["name"], candidate=row["candidate"], op=row["op"], setting=Setting(**json.loads(row["setting"])),
        truth=truth and {k: truth_from(v) for k, v in truth.items()}, **arms,
    )  # fmt: skip


def truth_from(values: dict) -> Truth:
    """Return the truth that JSON tells: tuples come back as lists there."""
    return Truth(
        delta_rel=values["delta_rel"], interval=tuple(values["interval"]), by_seed=tuple(values["by_seed"]),
        intervals=tuple(tuple(pair) for pair in values["intervals"]), margin=values["margin"],
    )  # fmt: skip
