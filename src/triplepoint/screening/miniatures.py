"""Train a plan in miniature: baseline and candidates, whole, at several small sizes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from triplepoint.blueprints import Blueprint, Shrunk, blueprint_of, shrink
from triplepoint.errors import PlanError
from triplepoint.recipes import Recipe
from triplepoint.screening.arms import Arms
from triplepoint.screening.candidates import Candidates, as_arms
from triplepoint.screening.miniature_evidence import Miniature, MiniatureEvidence, miniature_of
from triplepoint.screening.plans import Plan
from triplepoint.screening.shrinking import ShrunkPlan, shrink_plan
from triplepoint.screening.trials import Trial, spent_seconds
from triplepoint.sweeps import ArmRun, Cell, DataSpec, Event, own_norm, run_cells
from triplepoint.sweeps.cells import shape_of

SIZES = (16, 4)
"""How many times smaller, smallest first: together under a tenth of one full arm's training."""
EVALUATIONS = 40
"""Of a plan; the best checkpoint is the best of these."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Miniatures:
    """A plan at several small sizes, ready to be trained."""

    sizes: tuple[tuple[Shrunk, ShrunkPlan], ...]
    """Smallest first."""
    full_tokens: int
    """The original's tokens per step."""

    blueprint: Blueprint
    data: DataSpec
    candidates: Candidates
    seeds: int
    dropout: float
    out: Path
    workers: int
    watch: Callable[[Event, Sequence[Trial]], None]
    started: Callable[[Shrunk, ShrunkPlan], None]

    def train(self) -> MiniatureEvidence:
        """Train every size, baseline and candidates, and say what they show; what is finished is read."""
        found = []
        for model, planned in self.sizes:
            self.started(model, planned)
            found.append(_run(self, model, planned))
        return MiniatureEvidence(tuple(found))


def miniatures_of(
    model: str,
    *,
    data: DataSpec,
    candidates: Sequence[str],
    plan: Plan,
    out: Path,
    ks: Sequence[float] = SIZES,
    seeds: int = 1,
    dropout: float = 0.0,
    workers: int = 1,
    watch: Callable[[Event, Sequence[Trial]], None] = lambda event, trials: None,
    started: Callable[[Shrunk, ShrunkPlan], None] = lambda model, planned: None,
) -> Miniatures:
    """Return the whole plan at small sizes, baseline and candidates; nothing is trained before :meth:`Miniatures.train`.

    For the *regime*: the baseline's course, and the sign of a difference where all sizes agree. NOT for speed, stability
    or collapse, which change with size: these are the real model's calibration's to tell.

    Runs are kept under ``out/miniatures/k16`` and so on; finished ones are read, interrupted ones resumed.

    Args:
        model: As :func:`triplepoint.blueprints.blueprint_of` takes it; of a run its architecture.
        data: Which text; its first unique tokens are used.
        candidates: Op names, with or without preset.
        plan: What is about to be trained, at full size.
        out: The screen's folder.
        ks: How many times smaller; the sizes reached are near.
        seeds: How many.
        dropout: The model's, in every arm.
        workers: Processes at a time.
        watch: Called with every event and the trials that its index counts in.
        started: Called with the model and the plan of a size before it is trained.

    Raises:
        PlanError: If the model or the plan has no form that small, or a setting is out of range.
    """
    blueprint, corpus = blueprint_of(model).architecture, data.load()
    shape = shape_of(corpus, data, dropout)
    with torch.random.fork_rng(devices=[]):
        norm = own_norm(blueprint.build(shape))
    plan = dataclasses.replace(plan, unique_tokens=plan.unique_tokens or corpus.train.numel())
    if not ks or min(seeds, workers) < 1:
        raise PlanError(
            f"Miniatures need a size, a seed and a worker, got ks={tuple(ks)}, seeds={seeds}, workers={workers}.\n"
            "Try ks=(16, 4), seeds=1, workers=1."
        )
    small = [shrink(blueprint, k, shape) for k in sorted(set(ks), reverse=True)]
    planned = [shrink_plan(plan, one, context=data.context) for one in small]
    return Miniatures(
        sizes=tuple(zip(small, planned, strict=True)), full_tokens=plan.batch * data.context, blueprint=blueprint,
        data=data, candidates=Candidates(norm, as_arms(candidates)), seeds=seeds, dropout=dropout, out=out,
        workers=workers, watch=watch, started=started,
    )  # fmt: skip


def _run(setting: Miniatures, model: Shrunk, planned: ShrunkPlan) -> Miniature:
    """Run one size."""
    start = time.monotonic()
    trials = [
        Trial(arm=name, recipe=whole_recipe(planned.plan, seed=seed))
        for seed in range(setting.seeds)
        for name in (setting.candidates.baseline, *setting.candidates.arms)
    ]
    cells = [_cell(setting, model, planned, trial) for trial in trials]
    runs = run_cells(cells, workers=setting.workers, watch=lambda e: setting.watch(e, trials))
    baseline, *others = _arms(setting.candidates, runs, planned.plan.lr)
    size = "params_no_positions"
    tokens = planned.plan.batch * planned.context / setting.full_tokens
    share = model.params[size] / model.original[size] * tokens
    return miniature_of(
        baseline, others, k=model.k, width=model.width, shrunk=planned, share=share * len(runs),
        seconds=spent_seconds([baseline, *others], time.monotonic() - start),
    )  # fmt: skip


def _cell(setting: Miniatures, model: Shrunk, planned: ShrunkPlan, trial: Trial) -> Cell:
    arm = setting.candidates.arms.get(trial.arm)
    return Cell(
        path=trial.folder(setting.out / "miniatures" / f"k{model.k:.3g}"), arm=trial.arm, op=arm.op if arm else None,
        size=setting.blueprint.name, changes=model.changes, recipe=trial.recipe, dropout=setting.dropout,
        data=dataclasses.replace(setting.data, train_tokens=planned.plan.unique_tokens, context=planned.context),
        must_start=arm is None,
    )  # fmt: skip


def whole_recipe(plan: Plan, *, seed: int) -> Recipe:
    """Return a plan's training from its first step to its last, evaluated forty times."""
    stride = max(1, plan.steps // EVALUATIONS)
    return dataclasses.replace(
        plan.recipe(),
        seed=seed,
        eval_steps=tuple(range(stride, plan.steps + 1, stride)),
        checkpoint_every=max(1, plan.steps // 5),
    )


def _arms(candidates: Candidates, runs: Sequence[ArmRun], lr: float) -> list[Arms]:
    names = (candidates.baseline, *candidates.arms)
    return [Arms(n, tuple(r for r in runs if r.arm == n), *candidates.op_of(n), lr) for n in names]
