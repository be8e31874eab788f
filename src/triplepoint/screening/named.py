"""Screen MODEL on a text: the command line's form, its calibrations in processes side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from triplepoint.blueprints import Shrunk, blueprint_of
from triplepoint.data import Corpus
from triplepoint.errors import PlanError
from triplepoint.models import parameter_counts
from triplepoint.runs import RunFolder
from triplepoint.screening.baseline_run import load_baseline_run
from triplepoint.screening.calibrating import Screen, checked_settings
from triplepoint.screening.candidates import Candidates, as_arms
from triplepoint.screening.learning import learned_book
from triplepoint.screening.looks import Look, Looks
from triplepoint.screening.miniatures import miniatures_of
from triplepoint.screening.plans import TIE_MARGIN, Plan, calibration_recipe
from triplepoint.screening.shrinking import ShrunkPlan
from triplepoint.screening.trials import Trial
from triplepoint.screening.verdicts import Verdict
from triplepoint.sweeps import ArmRun, Cell, DataSpec, Event, build_model, own_norm, run_cells
from triplepoint.sweeps.cells import shape_of


def screen_model(
    model: str,
    *,
    data: DataSpec,
    candidates: Sequence[str],
    plan: Plan,
    steps: int | None = None,
    until_confident: float | None = None,
    max_steps: int | None = None,
    seeds: int = 2,
    criterion: str = "best_checkpoint",
    lr_grid: bool = False,
    own_schedule: bool = False,
    dropout: float = 0.0,
    tie_margin: float = TIE_MARGIN,
    baseline_run: Path | None = None,
    learned: Path | None = None,
    miniature: bool = False,
    out: Path,
    workers: int = 1,
    command: str = "",
    watch: Callable[[Event, Sequence[Trial]], None] = lambda event, trials: None,
    looked: Callable[[Look], None] = lambda look: None,
    shrunk: Callable[[Shrunk, ShrunkPlan], None] = lambda model, planned: None,
) -> tuple[Verdict | None, Path]:
    """Screen MODEL on a text, its calibrations in processes side by side.

    Args:
        model: As :func:`triplepoint.blueprints.blueprint_of` takes it; of a run its architecture.
        data: Which text.
        candidates: Op names, with or without preset.
        plan: What is about to be trained.
        steps: Length of the calibration; 500 where nothing else is said.
        until_confident: Look at 100, 250, 500, 1000 steps, then x 2, and stop as soon as every candidate is judged with
            at least this probability; instead of ``steps``.
        max_steps: The last of these looks; by default 2000, or the plan's end if that comes first.
        seeds: How many.
        criterion: ``best_checkpoint`` or ``fixed_step``.
        lr_grid: Whether each arm runs at its own best of 1/3, 1 and 3 times the rate.
        own_schedule: Whether the calibration has the plan's warm-up and schedule.
        dropout: The model's, in both arms.
        tie_margin: Fraction of the baseline's loss that counts as a tie.
        baseline_run: Folder of an earlier run of the baseline to the plan's end: then only the candidates are forecast.
        learned: Folder of finished runs that the rule learns from as well, as a map's.
        miniature: Whether the whole plan is trained at about 1/16 and 1/4 of its parameters and tokens as well.
        out: The run folder; a longer calibration goes on where a shorter one in it stopped.
        workers: Processes at a time.
        command: Kept in the manifest.
        watch: Called with every event and the trials that its index counts in.
        looked: Called after every look.
        shrunk: Called with model and plan before each small size is trained.

    Returns:
        The verdict and the folder; no verdict where the folder was finished before, as far as this or farther.

    Raises:
        PlanError: If plan, candidates or numbers contradict each other.
        RunFolderError: If a folder is another run's, or ``baseline_run`` is not the baseline's.
    """
    looks = Looks.of(plan.steps, steps=steps, until_confident=until_confident, max_steps=max_steps)
    blueprint, corpus = blueprint_of(model).architecture, data.load()
    how = {"size": blueprint.name, "changes": getattr(blueprint, "changes", {})}
    with torch.random.fork_rng():
        built = build_model(
            blueprint.name,
            op=None,
            shape=shape_of(corpus, data, dropout),
            changes=how["changes"],
        )
    norm = own_norm(built)
    checked = checked_settings(Candidates(norm, as_arms(candidates)), seeds, criterion, tie_margin)
    if workers < 1:
        raise PlanError(f"--workers must be at least 1, got {workers}.\nTry --workers 2.")
    base = calibration_recipe(plan, looks, own_schedule=own_schedule)
    asked = {
        "size": blueprint.name, "data": corpus.sha256, "candidates": list(checked.arms), "plan": dataclasses.asdict(plan),
        "recipe": dataclasses.asdict(base), "context": data.context, "windows": data.windows, "seeds": seeds,
        "criterion": criterion, "lr_grid": lr_grid, "dropout": dropout, "tie_margin": tie_margin,
        **({"model": blueprint.identity} if blueprint.identity else {}), **({"changes": how["changes"]} if how["changes"] else {}),
        **looks.asked,
    }  # fmt: skip

    def run_trials(trials: Sequence[Trial]) -> list[ArmRun]:
        cells = [
            Cell(
                path=t.folder(out), arm=t.arm, op=checked.arms[t.arm].op if t.arm in checked.arms else None,
                data=data, recipe=t.recipe, dropout=dropout, must_start=t.arm == checked.baseline, until=t.until, **how,
            )
            for t in trials
        ]  # fmt: skip
        return run_cells(cells, workers=workers, watch=lambda event: watch(event, trials))

    plan = dataclasses.replace(plan, unique_tokens=plan.unique_tokens or corpus.train.numel())
    earlier = baseline_run and load_baseline_run(
        baseline_run, plan=plan, baseline=_baseline_facts(built, corpus, data, plan, dropout)
    )
    if miniature:
        _need_miniatures(plan, looks, lr_grid=lr_grid)
    small = miniature and miniatures_of(
        model, data=data, candidates=list(candidates), plan=plan, dropout=dropout, out=out, workers=workers, watch=watch, started=shrunk,
    )  # fmt: skip
    book = learned_book(learned)
    with RunFolder(out, asked=asked, kind="screen") as folder:
        run = Screen(
            folder=folder, candidates=checked, plan=plan, base=base, looks=looks, seeds=seeds, lr_grid=lr_grid,
            criterion=criterion, tie_margin=tie_margin, command=command, book=book, baseline_run=earlier, learned=learned,
            miniatures=small.train if small else None, looked=looked,
        )  # fmt: skip
        return None if run.answered else run.run(run_trials), folder.path


def _need_miniatures(plan: Plan, looks: Looks, *, lr_grid: bool) -> None:
    """Refuse miniatures that could tell nothing, or would answer another question."""
    if plan.steps <= looks.last:
        raise PlanError(
            f"The calibration is the whole plan of {plan.steps} steps: there is nothing left for a miniature to tell.\n"
            "Leave --miniature out, or give a shorter --steps."
        )
    if lr_grid:
        raise PlanError(
            "--miniature trains every arm at the plan's rate, --lr-grid gives each its own: they answer two questions.\n"
            "Leave one of them out."
        )


def _baseline_facts(
    model: nn.Module, corpus: Corpus, data: DataSpec, plan: Plan, dropout: float
) -> dict[str, object]:
    """Return what an earlier run of the baseline must have in its manifest."""
    return {
        "op": None,
        "text (SHA-256)": corpus.sha256,
        "parameters": parameter_counts(model)["params_total"],
        "tokens per step": plan.batch * data.context,
        "dropout": dropout,
    }
