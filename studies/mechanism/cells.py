"""Which runs are measured, at which of their steps, and the measurement.

The runs are cells of the phase map; the matched ones are its LayerNorm runs, made again up to the step at which
their train loss has come down to where DyT's ends.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from triplepoint.inspection import inspect_activations, inspect_weights
from triplepoint.maps import MapPlan
from triplepoint.maps.planning import PlannedCell, plan_cells
from triplepoint.records import Record
from triplepoint.sweeps import run_cell
from triplepoint.sweeps.building import build_model
from triplepoint.sweeps.cells import shape_of
from triplepoint.weights import load_into, load_tensors

MAP = Path(__file__).parents[1] / "phase_map" / "map.toml"
RUNS = Path("runs/map-phase_map")
MATCHED = Path("runs/mechanism")
SIZES = ("gpt2-0.4m", "gpt2-0.8m")
TOKENS = (20_000, 1_500_000)
ARMS = ("layernorm", "dyt:paper")
SEEDS = (0, 1)
ROWS = 32
"""Windows of 128 tokens per batch, four batches in all: every fixed window."""

Cells = Mapping[str, Callable[[], Iterator[Record]]]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in the plan: everything but the arm."""

    size: str
    tokens: int
    seed: int

    def __str__(self) -> str:
        return f"{self.size}_{self.tokens}_seed{self.seed}"


PLACES = [Place(size, tokens, seed) for size in SIZES for tokens in TOKENS for seed in SEEDS]


def cells(places: list[Place] = PLACES) -> Cells:
    """Return name -> measurement of every model: both arms at both ends, and LayerNorm at DyT's train loss."""
    found = {}
    for place in places:
        for arm in ARMS:
            for end in ("final", "best"):
                found[f"{place}_{arm.replace(':', '-')}_{end}"] = functools.partial(
                    at_end, place, arm, end
                )
        found[f"{place}_layernorm_matched"] = functools.partial(at_matched_loss, place)
    return found


def quick_cells() -> Cells:
    """Return one small run made for it, at its end."""
    return {"quick": _small}


def _small() -> Iterator[Record]:
    with tempfile.TemporaryDirectory() as folder:
        plan = MapPlan(
            grid=[{"op": ["dyt:paper"]}],
            defaults={"size": "gpt2-0.1m", "unique_tokens": 20_000, "steps": 10, "context": 32},
        )
        (cell,) = plan_cells(plan, Path(folder))
        yield from measured(cell, weights_at(cell, 5, Path(folder) / "again"), 5)


@functools.cache
def _phase_map() -> list[PlannedCell]:
    return plan_cells(MapPlan.from_toml(MAP.read_text()), RUNS)


def planned(place: Place, arm: str) -> PlannedCell:
    """Return the phase map's cell: the one at its usual rate."""
    wanted = (place.size, place.tokens, place.seed, arm, 1e-3)
    for cell in _phase_map():
        s = cell.settings
        if (s.size, s.unique_tokens, s.seed, s.op, s.lr) == wanted:
            return cell
    raise LookupError(f"The phase map has no cell {wanted}.")


def at_end(place: Place, arm: str, end: str) -> Iterator[Record]:
    """Measure a run's last weights, or those of its lowest validation loss."""
    cell = planned(place, arm)
    run = run_cell(cell.cell)
    steps, val = run.arrays["eval_steps"], run.arrays["val_loss"].mean(axis=1)
    step = int(steps[-1] if end == "final" else steps[np.argmin(val)])
    folder = "best" if end == "best" else f"step-{step:06d}"
    yield from measured(cell, run.path / "checkpoints" / folder / "model.safetensors", step)


def at_matched_loss(place: Place) -> Iterator[Record]:
    """Measure LayerNorm at the first evaluation whose train loss is not above DyT's last."""
    theirs, ours = (run_cell(planned(place, arm).cell) for arm in ("dyt:paper", "layernorm"))
    wanted = theirs.arrays["train_loss"][-1].mean()
    losses = ours.arrays["train_loss"].mean(axis=1)
    if losses.min() > wanted:
        return  # LayerNorm never gets there
    step = int(ours.arrays["eval_steps"][np.argmax(losses <= wanted)])
    cell = planned(place, "layernorm")
    records = list(measured(cell, weights_at(cell, step), step))
    again = next(r.value for r in records if r.metric == "train_loss")
    if not math.isclose(again, losses[losses <= wanted][0], rel_tol=1e-4):
        raise RuntimeError(
            f"{place}: the run that was made again has train loss {again} at {step}."
        )
    yield from records


class _Reached(Exception):
    """The step whose weights are wanted."""


def weights_at(cell: PlannedCell, step: int, out: Path = MATCHED) -> Path:
    """Train a cell again as far as ``step`` and return its weights there: runs repeat to the bit on a CPU."""
    path = out / cell.cell.path.name
    weights = path / "checkpoints" / f"step-{step:06d}" / "model.safetensors"
    if weights.exists():
        return weights

    def stop(now: int, loss: float) -> None:
        if now == step:
            raise _Reached

    recipe = dataclasses.replace(cell.cell.recipe, checkpoint_every=step)
    try:
        run_cell(dataclasses.replace(cell.cell, path=path, recipe=recipe), stop)
    except _Reached:
        return weights
    raise RuntimeError(f"{path} ended before step {step}.")


def measured(cell: PlannedCell, weights: Path, step: int) -> Iterator[Record]:
    """Inspect weights and activations on all fixed windows; of every matrix and site."""
    model, corpus = model_of(cell), cell.cell.data.load()
    load_into(model, load_tensors(weights), source=weights)
    yield from inspect_weights(model, step=step).records
    spec = cell.cell.data
    windows = {
        split: torch.as_tensor(
            corpus.windows(split, context=spec.context, count=spec.windows)
        ).split(ROWS)
        for split in ("train", "validation")
    }
    yield from inspect_activations(
        model, windows["train"], validation=windows["validation"], step=step
    )


def model_of(cell: PlannedCell) -> nn.Module:
    """Build a cell's model."""
    one = cell.cell
    corpus = one.data.load()
    return build_model(
        one.size, op=one.op, shape=shape_of(corpus, one.data), alpha=one.alpha, changes=one.changes
    )
