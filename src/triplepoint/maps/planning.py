"""A plan, checked whole before anything starts: impossible cells, too little data, disk or memory."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from triplepoint.blueprints import Shape
from triplepoint.blueprints.sizes import config_for
from triplepoint.errors import PlanError, TriplepointError
from triplepoint.maps.plans import MapPlan
from triplepoint.models import config_of, parameter_counts
from triplepoint.resources import available_memory
from triplepoint.runs import read_json
from triplepoint.sweeps.building import build_model
from triplepoint.sweeps.cells import Cell, DataSpec, ImageSpec, identity_of_cell, shape_of
from triplepoint.sweeps.grid import OWN_NORM, CellSettings
from triplepoint.sweeps.needs import Need, need_of

TOLD = 5
"""So many impossible cells are named in the error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """One cell of a map, checked."""

    settings: CellSettings
    arm: str
    cell: Cell
    identity: str
    need: Need

    @property
    def finished(self) -> bool:
        """Whether its folder says that it is finished; reading its results may still find it damaged."""
        manifest = self.cell.path / "manifest.json"
        try:
            return read_json(manifest).get("status") == "finished"
        except TriplepointError:
            return False

    def told(self) -> dict[str, object]:
        """Return what the map's manifest says of the cell."""
        return {
            "folder": f"cells/{self.cell.path.name}",
            "arm": self.arm,
            "identity": self.identity,
            "steps": self.settings.steps,
            "work": self.need.work,
            "settings": self.settings.model_dump(exclude_defaults=True),
        }


def plan_cells(plan: MapPlan, out: Path) -> list[PlannedCell]:
    """Return the cells of a plan under ``out``, all of them possible.

    Raises:
        PlanError: If any cell cannot run; the message names them and says why.
    """
    planned, impossible = [], []
    loaded: dict[DataSpec | ImageSpec, tuple[str, Shape]] = {}
    for settings in plan.cells():
        try:
            planned.append(_planned(plan, settings, out, loaded))
        except TriplepointError as error:
            impossible.append((settings, error))
    if impossible:
        total = len(planned) + len(impossible)
        lines = [f"  {s.told()}: {str(e).splitlines()[0]}" for s, e in impossible[:TOLD]]
        more = [f"  and {len(impossible) - TOLD} more"] if len(impossible) > TOLD else []
        raise PlanError(
            "\n".join([f"{len(impossible)} of {total} cells cannot run:", *lines, *more])
            + "\nTake them out of the grid, or change them with [[where]]."
        )
    _check_once(planned)
    return planned


def _planned(
    plan: MapPlan,
    settings: CellSettings,
    out: Path,
    loaded: dict[DataSpec | ImageSpec, tuple[str, Shape]],
) -> PlannedCell:
    own = config_of(settings.size, context=settings.context)
    text = settings.family != "vit"
    spec = _data_of(plan, settings, context=own.context if text else None)
    if spec not in loaded:
        source = spec.load()
        loaded[spec] = (source.sha256, shape_of(source, spec))
    sha256, shape = loaded[spec]
    op = None if settings.op == OWN_NORM[settings.family] else settings.op
    params = _parameters(
        settings.size, op, settings.alpha, tuple(sorted(settings.changes.items())), shape
    )
    cell = Cell(
        path=out, arm=_cell_arm(settings), op=op, size=settings.size, data=spec,
        recipe=plan.recipe_of(settings), dropout=settings.dropout, must_start=False,
        alpha=settings.alpha, changes=settings.changes,
    )  # fmt: skip
    identity = identity_of_cell(cell, sha256)
    return PlannedCell(
        settings=settings,
        arm=plan.arm_of(settings),
        cell=dataclasses.replace(cell, path=out / "cells" / _folder(settings, identity)),
        identity=identity,
        need=need_of(
            config_for(
                settings.size,
                dataclasses.replace(shape, dropout=settings.dropout),
                settings.changes,
            ),
            params=params,
            steps=settings.steps,
            batch=settings.batch,
        ),
    )


@functools.cache  # cells that differ in seed or rate are one model
def _parameters(
    size: str, op: str | None, alpha: float | None, changes: tuple, shape: Shape
) -> int:
    """Build a cell's model without memory for its weights, which refuses an impossible one, and count them."""
    with torch.device("meta"):
        model = build_model(size, op=op, alpha=alpha, changes=dict(changes), shape=shape)
    return parameter_counts(model)["params_total"]


def _data_of(plan: MapPlan, settings: CellSettings, *, context: int | None) -> DataSpec | ImageSpec:
    if context is None:
        return ImageSpec(
            path=_absolute(plan.images), train_images=settings.unique_tokens, windows=plan.windows
        )
    return DataSpec(
        path=_absolute(plan.data), tokenizer=_absolute(plan.tokenizer), vocab=plan.vocab,
        train_tokens=settings.unique_tokens, context=context, windows=plan.windows,
    )  # fmt: skip


def _absolute(path: str | None) -> str | None:
    # workers on other machines start in another folder
    return None if path is None else os.path.abspath(path)


def _cell_arm(settings: CellSettings) -> str:
    """Name the arm in the cell's own records: independent of what the map compares it with."""
    return settings.op + (f" alpha={settings.alpha:g}" if settings.alpha is not None else "")


def _folder(settings: CellSettings, identity: str) -> str:
    parts = [settings.size, settings.op, settings.unique_tokens or "all", f"seed{settings.seed}"]
    return "_".join(re.sub(r"[^a-zA-Z0-9.-]+", "-", str(p)) for p in (*parts, identity[:8]))


def _check_once(planned: Sequence[PlannedCell]) -> None:
    seen: dict[str, CellSettings] = {}
    for cell in planned:
        other = seen.setdefault(cell.identity, cell.settings)
        if other is not cell.settings:
            raise PlanError(
                f"Two cells are the same run: {other.told()}; and {cell.settings.told()}.\n"
                "Leave one out; unique_tokens may name all that the text has."
            )


def check_resources(
    planned: Sequence[PlannedCell], out: Path, *, workers: int | None, local: bool
) -> None:
    """Refuse what would end in a full disk or memory.

    Raises:
        PlanError: If the unfinished cells need more than is free.
    """
    left = [p for p in planned if not p.finished]
    if not left:
        return
    existing = next(p for p in (out, *out.absolute().parents) if p.exists())
    disk, free = sum(p.need.disk for p in left), shutil.disk_usage(existing).free
    if disk > free:
        raise PlanError(
            f"The {len(left)} cells to run may take {_size(disk)} of disk, {_size(free)} are free at {existing}.\n"
            "Choose another disk with --out, or smaller sizes: checkpoints hold 13 floats per parameter."
        )
    largest, memory = max(left, key=lambda p: p.need.memory), available_memory()
    if local and 0 <= memory < largest.need.memory:
        raise PlanError(
            f"The cell {largest.settings.told()} needs about {_size(largest.need.memory)} of memory, "
            f"{_size(memory)} are available.\nTake a smaller size, batch or context, or a larger machine with --executor ray."
        )
    if local and workers is not None and 0 <= memory < workers * largest.need.memory:
        raise PlanError(
            f"{workers} workers need about {_size(workers * largest.need.memory)} of memory, {_size(memory)} are available.\n"
            f"Use --workers {max(1, memory // largest.need.memory)}, or leave it out."
        )


def affordable_workers(planned: Sequence[PlannedCell], cores: int) -> int:
    """Return how many cells fit side by side: one per core, as far as memory reaches, at least one."""
    memory, largest = available_memory(), max(p.need.memory for p in planned)
    return max(1, min(cores, memory // largest if memory >= 0 else cores))


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
