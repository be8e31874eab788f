"""Finished cells whose curves are given, without training any."""

from pathlib import Path

import numpy as np

from triplepoint.maps.planning import PlannedCell
from triplepoint.maps.results import CellResult
from triplepoint.recipes import Recipe
from triplepoint.runs import identity_of
from triplepoint.sweeps import Cell, DataSpec
from triplepoint.sweeps.needs import Need


def planned(plan, settings):
    identity = identity_of(settings.model_dump())
    cell = Cell(
        path=Path("map/cells") / f"cell-{identity[:6]}", arm=settings.op, op=settings.op, size=settings.size,
        data=DataSpec(), recipe=Recipe(steps=settings.steps),
    )  # fmt: skip
    need = Need(params=100, work=float(settings.steps), memory=1, disk=1)
    return PlannedCell(
        settings=settings, arm=plan.arm_of(settings), cell=cell, identity=identity, need=need
    )


def result(plan, settings, val, train=None, *, windows=4, **facts):
    """A finished cell with these losses at its evaluations, equal in all windows but for a little."""
    val = np.asarray(val, dtype=float)
    train = val if train is None else np.asarray(train, dtype=float)
    spread = 0.01 * (np.arange(windows) - (windows - 1) / 2)
    given = {
        "params": {"params_total": 110, "params_no_positions": 100, "params_non_embedding": 80},
        "train_tokens": 50, "tokens_per_step": 2, "plateau": 3.0, "diverged_at": None, "last_step": settings.steps,
        "saturation_end": None, "saturation_500": None, "alpha_drift_std": None, "prediction_kl": 1.0, "report": {},
    }  # fmt: skip
    return CellResult(
        planned=planned(plan, settings),
        steps=np.arange(1, len(val) + 1) * settings.steps // len(val),
        val=val[:, None] + spread,
        train=train[:, None] + spread,
        **{**given, **facts},
    )
