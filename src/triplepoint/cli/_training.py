"""Shared by ``train``: evaluation steps, progress, and the end of a run on a terminal."""

from __future__ import annotations

from triplepoint.blueprints import Blueprint
from triplepoint.blueprints.sizes import SizeBlueprint
from triplepoint.cli._output import Bars, console
from triplepoint.cli._streams import documents
from triplepoint.errors import PlanError
from triplepoint.records import to_line
from triplepoint.report import write_report
from triplepoint.sweeps import ArmRun, Cell, is_main_process, run_cells
from triplepoint.sweeps.grid import canonical_op


def evaluation_steps(steps: int, every: int) -> tuple[int, ...]:
    """Return every ``every``-th step.

    Raises:
        PlanError: If ``every`` is not positive.
    """
    if every < 1:
        raise PlanError(f"--eval-every must be at least 1, got {every}.\nTry --eval-every 50.")
    return tuple(range(every, steps + 1, every))


def arm_of(blueprint: Blueprint, op: str) -> tuple[str, str | None]:
    """Return the arm's name and the op to swap in: None for the model's own norm, by its name or as ``norm``."""
    own = "norm"
    if isinstance(blueprint, SizeBlueprint):
        own = canonical_op("norm", blueprint.name.partition("-")[0])
    return (own, None) if op in ("norm", own) else (op, op)


def run_with_bar(cell: Cell) -> ArmRun:
    """Run one cell in this process, showing its progress on the main one."""
    if not is_main_process():
        return run_cells([cell])[0]
    with Bars([cell.arm], cell.recipe.steps) as bars:

        def watch(event):  # noqa: ANN001, ANN202
            if event.kind == "step":
                bars.step(0, event.step, event.loss)

        return run_cells([cell], watch=watch)[0]


def show_run(run: ArmRun, *, json: bool) -> None:
    """Print the records, or how the run ended and where its report is."""
    if not is_main_process():
        return
    page = write_report(run.path)
    if json:
        documents().writelines(f"{to_line(r)}\n" for r in run.records)
        return
    out = console(to_stderr=False)
    if run.outcome == "diverged":
        out.print(
            f"{run.arm} diverged at step {run.diverged_at}: try a lower rate or a longer warm-up."
        )
    else:
        ends = {r.endpoint: r for r in run.records if r.metric == "val_loss" and r.endpoint}
        last, best = ends["fixed_step"], ends["best_checkpoint"]
        out.print(
            f"{run.arm}: validation loss {last.value:.4f} nats/token at step {last.step}; best {best.value:.4f} at step {best.step}."
        )
    out.print(f"Report: {page}", soft_wrap=True)
