"""Run folders that something else than their run has changed: found, and set aside."""

from __future__ import annotations

from pathlib import Path

from triplepoint.checkpoints import Checkpoints
from triplepoint.errors import FolderInUseError, TriplepointError
from triplepoint.runs import locked, read_json
from triplepoint.sweeps.arms import load_arm
from triplepoint.sweeps.cells import Cell, identity_of_cell

MARK = ".damaged-"
"""Between a folder's name and its number, where it was set aside."""


def damage_of(path: Path, identity: str) -> str | None:
    """Say what is wrong with a cell's folder, or None for one that is new, whole or can be resumed.

    Args:
        path: The folder.
        identity: Of the run that it is for.
    """
    manifest = path / "manifest.json"
    if not manifest.exists():
        others = sorted(p.name for p in path.glob("[!.]*"))
        return f"it has no manifest.json but {', '.join(others[:3])}" if others else None
    # whatever reading back raises, the folder is not what its run wrote
    try:
        facts = read_json(manifest)
        if facts.get("identity") != identity:
            return "its manifest is that of another run"
        if facts.get("status") == "finished":
            load_arm(path)
        else:
            _check_interrupted(path)
    except Exception as error:
        return str(error).splitlines()[0] or type(error).__name__
    return None


def _check_interrupted(path: Path) -> None:
    snapshot = Checkpoints(path / "checkpoints").latest()
    if snapshot is None:
        return
    records, needed = path / "records.jsonl", snapshot.counts["records"]
    size = records.stat().st_size if records.exists() else 0
    if size < needed:
        raise ValueError(f"records.jsonl has {size} bytes, its checkpoint counts on {needed}")


def quarantine(cell: Cell) -> str | None:
    """Rename a cell's folder if it is damaged; returns what was done, or None where nothing is wrong with it."""
    try:
        identity = identity_of_cell(cell, cell.data.load().sha256)
    except TriplepointError:  # data or model that are not there are no fault of the folder
        return None
    try:
        with locked(cell.path):
            reason = damage_of(cell.path, identity)
            if reason is None:
                return None
            aside = _free_name(cell.path)
            cell.path.rename(aside)
    except (FolderInUseError, FileNotFoundError):
        return None
    return f"{cell.path.name} was damaged ({reason}) and is now {aside.name}"


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}{MARK}{number}")).exists():
        number += 1
    return aside
