"""The files of a map besides its cells'.

``manifest.json`` (kind ``map``; ``cells``, ``failed``, ``quarantined``, ``columns``), ``table.parquet``
(:data:`~triplepoint.maps.table.COLUMNS`), ``summary.json`` (:func:`~triplepoint.maps.summary.summarise`),
``arrays.npz`` (``IDENTITY|steps``, ``IDENTITY|val_loss``, ``IDENTITY|train_loss``: each cell's curves, means over
the fixed windows) and one run folder per cell under ``cells/``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import triplepoint
from triplepoint.errors import FolderInUseError, RunFolderError, TriplepointError
from triplepoint.maps.planning import PlannedCell
from triplepoint.maps.plans import MapPlan
from triplepoint.maps.results import CellResult, read_result
from triplepoint.maps.summary import summarise
from triplepoint.maps.table import COLUMNS, PARAMETERS, Compared, rows_of
from triplepoint.records import SCHEMA_VERSION
from triplepoint.runs import identity_of, locked, read_json, write_arrays, write_json, write_rows
from triplepoint.sweeps.damage import MARK


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapResult:
    """A map as far as it has got."""

    folder: Path
    plan: MapPlan
    rows: list[dict[str, Any]]
    """Of the table."""
    summary: dict[str, Any]
    failed: dict[str, str]
    """Folder of the cell -> first line of its error."""
    quarantined: list[str]
    """Damaged folders that were set aside, in this run or an earlier one."""
    cells: int

    @property
    def finished(self) -> int:
        """How many cells are."""
        return sum(row["row"] == "cell" for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``map run --json`` prints."""
        return {
            "folder": str(self.folder), "table": str(self.folder / "table.parquet"), "cells": self.cells,
            "finished": self.finished, "failed": self.failed, "quarantined": self.quarantined, **self.summary,
        }  # fmt: skip


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something else than a map.

    Raises:
        RunFolderError: If it does.
    """
    manifest = out / "manifest.json"
    if manifest.exists():
        kind = (read_json(manifest).get("asked") or {}).get("kind")
        if kind != "map":
            raise RunFolderError(
                f"{out} is the folder of a run of kind '{kind}', not of a map.\nChoose another folder with --out."
            )
    elif out.exists() and any(p.name[0] != "." and p.name != "cells" for p in out.iterdir()):
        raise RunFolderError(
            f"{out} holds files that are not a map's.\nChoose an empty or new folder with --out."
        )


class MapFolder:
    """A map's folder, which several processes may fill at the same time."""

    def __init__(self, out: Path, plan: MapPlan, planned: Sequence[PlannedCell], command: str):
        self._out, self._plan, self._planned = out, plan, planned
        self._command = command

    def read_finished(self) -> dict[str, CellResult]:
        """Return identity -> result of every cell that is finished and whole."""
        results = {}
        for planned in self._planned:
            # a damaged folder is set aside by the worker that runs the cell again
            with contextlib.suppress(TriplepointError, KeyError, TypeError, ValueError):
                if planned.finished:
                    results[planned.identity] = read_result(planned)
        return results

    def begin(self) -> None:
        """Make the folder and say that the map is running."""
        try:
            (self._out / "cells").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"{self._out} cannot be made: {error.strerror or error}.\nChoose another folder with --out."
            ) from error
        self.write_manifest("running", failed={})

    def quarantined(self) -> list[str]:
        """Return the damaged folders that were set aside, in this run or an earlier one."""
        return sorted(p.name for p in (self._out / "cells").glob(f"*{MARK}*"))

    def write_manifest(self, status: str, *, failed: dict[str, str]) -> None:
        """Write the manifest: the plan, its cells, and how the map stands."""
        asked = {"kind": "map", "plan": self._plan.model_dump()}
        manifest = {
            "schema": SCHEMA_VERSION, "identity": identity_of(asked), "asked": asked, "status": status,
            "version": triplepoint.__version__, "command": self._command, "name": self._plan.name,
            "parameters": PARAMETERS, "cells": [p.told() for p in self._planned], "failed": failed,
            "quarantined": self.quarantined(), "columns": {name: c.text for name, c in COLUMNS.items()},
            "unpaired": self._unpaired(),
        }  # fmt: skip
        write_json(self._out / "manifest.json", manifest)

    def _unpaired(self) -> list[str]:
        """Return the cells whose baseline is not in the plan: they are in the table, but in no pair."""
        there = {p.settings for p in self._planned}
        return [
            p.cell.path.name
            for p in self._planned
            if self._plan.baseline_of(p.settings) not in there
        ]

    def finish(self, results: Sequence[CellResult], failed: dict[str, str]) -> MapResult:
        """Write table, summary and curves, then the manifest that says so."""
        compared = Compared(self._plan, results)
        rows = rows_of(compared)
        summary = summarise(compared, rows)
        with _alone(self._out):
            write_rows(self._out / "table.parquet", rows, {n: c.type for n, c in COLUMNS.items()})
            write_json(self._out / "summary.json", summary)
            write_arrays(self._out / "arrays.npz", _curves(results))
            whole = len(results) == len(self._planned)
            self.write_manifest("finished" if whole else "incomplete", failed=failed)
        return MapResult(
            folder=self._out, plan=self._plan, rows=rows, summary=summary, failed=failed,
            quarantined=self.quarantined(), cells=len(self._planned),
        )  # fmt: skip


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the map's lock, waiting for another process that writes it at this moment."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(out))
                break
            except FolderInUseError:
                time.sleep(0.1)
        yield


def _curves(results: Sequence[CellResult]) -> dict[str, Any]:
    curves = {}
    for result in results:
        name = result.planned.identity
        curves[f"{name}|steps"] = result.steps
        for kind, losses in (("val_loss", result.val), ("train_loss", result.train)):
            curves[f"{name}|{kind}"] = losses.mean(axis=1) if losses.size else losses[:0, 0]
    return curves
