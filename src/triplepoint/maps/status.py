"""How far a map is, from its folder; changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from triplepoint.errors import RunFolderError
from triplepoint.runs import in_use, read_json

CellState = Literal["finished", "running", "interrupted", "failed", "waiting"]


def status_of(out: Path) -> dict[str, Any]:
    """Return what ``map status --json`` prints: counts by state, the share of the work done, and each cell.

    ``running`` is a cell whose folder is held by a process at this moment (on this machine, or on one whose locks
    are shared), ``interrupted`` one that will resume.

    Raises:
        RunFolderError: If the folder is not a map's.
    """
    manifest = read_json(out / "manifest.json")
    if (manifest.get("asked") or {}).get("kind") != "map":
        raise RunFolderError(
            f"{out} is not the folder of a map.\nGive the folder that `triplepoint map run --out` named."
        )
    failed = manifest["failed"]
    cells = [_cell(out, planned, failed) for planned in manifest["cells"]]
    total = sum(planned["work"] for planned in manifest["cells"])
    done = sum(
        planned["work"] * cell["step"] / planned["steps"]
        for planned, cell in zip(manifest["cells"], cells, strict=True)
    )
    return {
        "folder": str(out),
        "name": manifest["name"],
        "status": manifest["status"],
        "cells": len(cells),
        **{state: Counter(c["state"] for c in cells)[state] for state in CellState.__args__},
        "work_done": done / total,
        "quarantined": manifest["quarantined"],
        "by_cell": cells,
    }


def _cell(out: Path, planned: dict[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    path = out / planned["folder"]
    state, step = _state_of(path, planned)
    error = failed.get(path.name)
    if error is not None and state in ("waiting", "interrupted"):
        state = "failed"
    return {
        "folder": planned["folder"], "arm": planned["arm"], "state": state, "step": step,
        "steps": planned["steps"], "error": error,
    }  # fmt: skip


def _state_of(path: Path, planned: dict[str, Any]) -> tuple[CellState, int]:
    if not (path / "manifest.json").exists():
        return ("running" if path.exists() and in_use(path) else "waiting"), 0
    try:
        manifest = read_json(path / "manifest.json")
    except RunFolderError:
        return "interrupted", 0
    if manifest.get("status") == "finished":
        return "finished", planned["steps"]
    saved = [p.name.removeprefix("step-") for p in path.glob("checkpoints/step-*")]
    step = max((int(s) for s in saved if s.isdigit()), default=0)
    return ("running" if in_use(path) else "interrupted"), step
