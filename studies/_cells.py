"""Cells of a study: computed once, kept as Parquet, taken up again after an interruption."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from triplepoint.records import Record, read_parquet, write_parquet
from triplepoint.runs import atomic_path

Compute = Callable[[], Iterable[Record]]


def complete(cells: Mapping[str, Compute], stored: Path) -> None:
    """Compute every cell that has no file in ``stored`` yet; a file is there whole or not at all."""
    stored.mkdir(parents=True, exist_ok=True)
    for number, (name, compute) in enumerate(cells.items(), 1):
        path = stored / f"{name}.parquet"
        if path.exists():
            continue
        start = time.process_time()
        records = list(compute())
        with atomic_path(path) as beside:
            write_parquet(records, beside)
        print(f"{number}/{len(cells)} {name}: {time.process_time() - start:.0f} CPU s", flush=True)


def read_cells(names: Iterable[str], stored: Path) -> dict[str, list[Record]]:
    """Return the records of the cells that are stored, in the order of ``names``."""
    paths = {name: stored / f"{name}.parquet" for name in names}
    return {name: read_parquet(path) for name, path in paths.items() if path.exists()}


def finish(name: str, figures: Mapping[str, object]) -> None:
    """Print the line of JSON that a study ends with."""
    machine = f"{platform.system()} {platform.machine()}, 1 thread, CPU"
    print(json.dumps({"name": name, "figures": figures, "machine": machine}))


def run_study(
    name: str,
    cells: Mapping[str, Compute],
    quick: Mapping[str, Compute],
    answer: Callable[[dict[str, list[Record]]], Mapping[str, object]],
    stored: Path,
) -> None:
    """Serve the command line that every study has.

    Args:
        name: The study's.
        cells: Name of a cell -> what computes its records.
        quick: The same for ``--quick``: a few small cells, kept nowhere.
        answer: Prints the tables from the records of the cells, and returns the figures.
        stored: Folder of the stored records.
    """
    parser = argparse.ArgumentParser(prog=f"python -m studies.{name}")
    parser.add_argument("--from-records", action="store_true", help="rebuild tables only")
    parser.add_argument("--quick", action="store_true", help="a smoke test of under a minute")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            complete(quick, Path(folder))
            finish(name, answer(read_cells(quick, Path(folder))))
        return
    if not given.from_records:
        complete(cells, stored)
    finish(name, answer(read_cells(cells, stored)))
