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
    for name, ours in baseline.items():
        if found.get(name) != ours:
            raise RunFolderError(
                f"--baseline-run {path} is another baseline's: its {name} was {found.get(name)}, here {ours}.\n"
                "Give a run of the same model on the same text, with the same --batch and --context."
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
    return run


def told_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells one baseline from another, from a run's manifest: name -> value."""
    asked, data = facts.get("asked", {}), facts.get("data") or {}
    counts = {k: v for k, v in facts.get("model", {}).items() if k.startswith("params_")}
    return {
        "op": asked.get("op"),
        "text (SHA-256)": data.get("sha256"),
        "source": asked.get("source"),
        "changes": asked.get("changes"),
        "parameters": counts.get("params_total"),
        "tokens per step": facts.get("tokens_per_step"),
    }
