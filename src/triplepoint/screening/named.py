"""Screen MODEL on a text: the command line's form, its calibrations in processes side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from triplepoint.blueprints import blueprint_of
from triplepoint.errors import PlanError
from triplepoint.runs import RunFolder
from triplepoint.screening.calibrating import Candidates, Screen, Trial, as_arms, checked_settings
from triplepoint.screening.plans import TIE_MARGIN, Plan, calibration_recipe
from triplepoint.screening.verdicts import Verdict
from triplepoint.sweeps import ArmRun, Cell, DataSpec, Event, build_model, own_norm, run_cells
from triplepoint.sweeps.cells import shape_of


def screen_model(
    model: str,
    *,
    data: DataSpec,
    candidates: Sequence[str],
    plan: Plan,
    steps: int = 500,
    seeds: int = 2,
    criterion: str = "best_checkpoint",
    lr_grid: bool = False,
    own_schedule: bool = False,
    dropout: float = 0.0,
    tie_margin: float = TIE_MARGIN,
    out: Path,
    workers: int = 1,
    command: str = "",
    watch: Callable[[Event, Sequence[Trial]], None] = lambda event, trials: None,
) -> tuple[Verdict | None, Path]:
    """Screen MODEL on a text, its calibrations in processes side by side.

    Args:
        model: As :func:`triplepoint.blueprints.blueprint_of` takes it; of a run its architecture.
        data: Which text.
        candidates: Op names, with or without preset.
        plan: What is about to be trained.
        steps: Length of the calibration.
        seeds: How many.
        criterion: ``best_checkpoint`` or ``fixed_step``.
        lr_grid: Whether each arm runs at its own best of 1/3, 1 and 3 times the rate.
        own_schedule: Whether the calibration has the plan's warm-up and schedule.
        dropout: The model's, in both arms.
        tie_margin: Fraction of the baseline's loss that counts as a tie.
        out: The run folder.
        workers: Processes at a time.
        command: Kept in the manifest.
        watch: Called with every event and the trials that its index counts in.

    Returns:
        The verdict and the folder; no verdict where the folder was finished before.
    """
    blueprint, corpus = blueprint_of(model).architecture, data.load()
    how = {"size": blueprint.name, "changes": getattr(blueprint, "changes", {})}
    with torch.random.fork_rng():
        norm = own_norm(
            build_model(
                blueprint.name,
                op=None,
                shape=shape_of(corpus, data, dropout),
                changes=how["changes"],
            )
        )
    checked = checked_settings(Candidates(norm, as_arms(candidates)), seeds, criterion, tie_margin)
    if workers < 1:
        raise PlanError(f"--workers must be at least 1, got {workers}.\nTry --workers 2.")
    base = calibration_recipe(plan, steps, own_schedule=own_schedule)
    asked = {
        "size": blueprint.name, "data": corpus.sha256, "candidates": list(checked.arms), "plan": dataclasses.asdict(plan),
        "recipe": dataclasses.asdict(base), "context": data.context, "windows": data.windows, "seeds": seeds,
        "criterion": criterion, "lr_grid": lr_grid, "dropout": dropout, "tie_margin": tie_margin,
        **({"model": blueprint.identity} if blueprint.identity else {}), **({"changes": how["changes"]} if how["changes"] else {}),
    }  # fmt: skip

    def run_trials(trials: Sequence[Trial]) -> list[ArmRun]:
        cells = [
            Cell(
                path=t.folder(out), arm=t.arm, op=checked.arms[t.arm].op if t.arm in checked.arms else None,
                data=data, recipe=t.recipe, dropout=dropout, must_start=t.arm == checked.baseline, **how,
            )
            for t in trials
        ]  # fmt: skip
        return run_cells(cells, workers=workers, watch=lambda event: watch(event, trials))

    plan = dataclasses.replace(plan, unique_tokens=plan.unique_tokens or corpus.train.numel())
    with RunFolder(out, asked=asked, kind="screen") as folder:
        if folder.state == "finished" and (folder.path / "verdict.json").exists():
            return None, folder.path
        run = Screen(
            folder=folder, candidates=checked, plan=plan, base=base, seeds=seeds, lr_grid=lr_grid,
            criterion=criterion, tie_margin=tie_margin, command=command,
        )  # fmt: skip
        return run.run(run_trials), folder.path
