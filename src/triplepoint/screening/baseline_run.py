"""An earlier run of the baseline to the plan's end: is it one, and is it this baseline?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triplepoint.errors import RunFolderError
from triplepoint.screening.plans import Plan
from triplepoint.sweeps import ArmRun, load_arm


def load_baseline_run(path: Path, *, plan: Plan, baseline: Mapping[str, Any]) -> ArmRun:
    """Read an earlier run of a screen's baseline.

    Args:
        path: Its run folder, as ``triplepoint train`` or a measured screen made it.
        plan: What is about to be trained.
        baseline: What the screen's own baseline has of :func:`told_of`; all of it must be equal.

    Raises:
        RunFolderError: If the folder is no finished run of one arm, or the run is another baseline's, diverged, or
            ended before the plan does.
    """
    run = load_arm(path)
    found = told_of(run.facts)
    for name, ours in {**baseline, **_planned(plan)}.items():
        if found.get(name) != ours:
            raise RunFolderError(
                f"--baseline-run {path} is another baseline's: its {name} was {_said(found.get(name))}, here {_said(ours)}.\n"
                "Give a run of the same model on the same text, trained as the plan is, or state its training as the plan."
            )
    if run.outcome == "diverged":
        raise RunFolderError(
            f"--baseline-run {path} diverged at step {run.diverged_at}: it has no end to compare with.\n"
            "Give one that did not, or leave it out."
        )
    if run.last_step < plan.steps:
        raise RunFolderError(
            f"--baseline-run {path} ended at step {run.last_step}, before the plan's {plan.steps}.\n"
            f"Give one of at least {plan.steps} steps, or --planned-steps {run.last_step}."
        )
    if plan.schedule != "constant" and run.facts["asked"]["recipe"]["steps"] != plan.steps:
        raise RunFolderError(
            f"--baseline-run {path} was planned for {run.facts['asked']['recipe']['steps']} steps, here {plan.steps}: "
            "its rate fell at another pace.\nGive one of as many steps, or state its steps as the plan's."
        )
    return run


def _planned(plan: Plan) -> dict[str, Any]:
    """Return what of a plan an earlier run of it must have."""
    return {
        "peak rate": plan.lr, "schedule": plan.schedule, "warm-up": plan.warmup, "weight decay": plan.weight_decay,
        "precision": plan.precision,
    }  # fmt: skip


def _said(value: Any) -> str:
    return "the model's own" if value is None else str(value)


def told_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells one baseline from another, from a run's manifest: name -> value."""
    asked, data = facts.get("asked", {}), facts.get("data") or {}
    recipe = asked.get("recipe", {})
    counts = {k: v for k, v in facts.get("model", {}).items() if k.startswith("params_")}
    return {
        "op": asked.get("op"),
        "text (SHA-256)": data.get("sha256"),
        "source": asked.get("source"),
        "changes": asked.get("changes"),
        "parameters": counts.get("params_total"),
        "tokens per step": facts.get("tokens_per_step"),
        "dropout": asked.get("dropout"),
        "peak rate": recipe.get("lr"),
        "schedule": recipe.get("schedule"),
        "warm-up": recipe.get("warmup"),
        "weight decay": recipe.get("weight_decay"),
        "precision": recipe.get("precision"),
    }
