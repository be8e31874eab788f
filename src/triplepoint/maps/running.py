"""Run a map's cells, whatever is left of them, and write what they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from triplepoint.errors import PlanError
from triplepoint.maps.folders import MapFolder, MapResult, check_folder
from triplepoint.maps.planning import (
    PlannedCell,
    affordable_workers,
    check_resources,
    plan_cells,
)
from triplepoint.maps.plans import MapPlan
from triplepoint.runs import usable_cores
from triplepoint.sweeps import Event, Executor, LocalExecutor, run_all

EXECUTORS = ("local", "ray")


@dataclasses.dataclass(frozen=True, kw_only=True)
class News:
    """What has just happened in a map, and how far it is."""

    kind: str
    """As of :class:`~triplepoint.sweeps.Event`; ``start`` before the first."""
    cell: PlannedCell | None
    text: str
    finished: int
    """Cells, those of earlier runs included."""
    cells: int
    done: float
    """Work done since this run began: steps x parameters x tokens per step."""
    total: float
    """Work that there was to do, what resumed cells had done before not counted."""


def run_map(
    plan: MapPlan,
    out: Path,
    *,
    workers: int | None = None,
    executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    fail_fast: bool = False,
    retries: int = 2,
    command: str = "",
    watch: Callable[[News], None] = lambda news: None,
) -> MapResult:
    """Run the cells of a plan that have no result in ``out`` yet, and write the table.

    May be killed at any moment and run again; several processes may run the same map at the same time. A plan
    that has changed keeps the cells that it shares with the one before.

    Args:
        plan: Which cells.
        out: The map's folder; with Ray, one that all nodes share.
        workers: Cells at a time, one thread each; None for as many as cores and memory allow, or as the Ray
            cluster has CPUs.
        executor: ``local`` processes or ``ray``.
        ray_address: Of a running cluster; None to start one on this machine.
        fail_fast: Whether the first failed cell stops the rest and is raised; else it is reported at the end.
        retries: How often a cell whose worker was lost is started again.
        command: Kept in the manifest.
        watch: Called with all news.

    Raises:
        PlanError: If the plan is impossible, or there is too little disk or memory: before anything starts.
        RunFolderError: If ``out`` holds something else.
        ExecutorError: If the Ray cluster does not answer.
    """
    if executor not in EXECUTORS:
        raise PlanError(f"There is no executor '{executor}'.\nKnown: {', '.join(EXECUTORS)}.")
    if retries < 0 or (workers is not None and workers < 1):
        raise PlanError(
            f"--workers is at least 1 and --retries at least 0, got {workers} and {retries}.\nLeave them out."
        )
    out = out.absolute()
    planned = plan_cells(plan, out)
    check_resources(planned, out, workers=workers, local=executor == "local")
    check_folder(out)
    folder = MapFolder(out, plan, planned, command)
    results = folder.read_finished()
    pending = [p for p in planned if p.identity not in results]
    failed: dict[str, str] = {}
    if pending:
        runs_on = _executor(executor, planned, workers, ray_address)
        folder.begin()
        lost = run_all(
            [p.cell for p in pending], runs_on, fail_fast=fail_fast, retries=retries, share=True,
            watch=_Following(planned, pending, watch),
        )  # fmt: skip
        failed = {pending[i].cell.path.name: str(e).splitlines()[0] for i, e in lost.items()}
        results = folder.read_finished()
    return folder.finish([results[p.identity] for p in planned if p.identity in results], failed)


def _executor(
    name: str, planned: Sequence[PlannedCell], workers: int | None, ray_address: str | None
) -> Executor:
    if name == "ray":
        from triplepoint.sweeps.ray_executor import RayExecutor

        return RayExecutor(workers, address=ray_address, mend=True)
    return LocalExecutor(workers or affordable_workers(planned, usable_cores()), mend=True)


class _Following:
    """Turns events of the pending cells into news of the map."""

    def __init__(
        self,
        planned: Sequence[PlannedCell],
        pending: Sequence[PlannedCell],
        watch: Callable[[News], None],
    ):
        self._pending, self._watch, self._cells = pending, watch, len(planned)
        self._shares = [0.0] * len(pending)
        self._before: dict[int, float] = {}
        self._finished = len(planned) - len(pending)
        self._tell("start", None, "")

    def __call__(self, event: Event) -> None:
        cell = self._pending[event.index]
        if event.kind == "step":
            self._shares[event.index] = event.step / cell.settings.steps
            # a cell that resumes begins at its checkpoint: that is no work of this run
            self._before.setdefault(event.index, (event.step - 1) / cell.settings.steps)
        elif event.kind in ("done", "failed"):
            self._shares[event.index] = 1.0
            self._finished += event.kind == "done"
        step = f"step {event.step}, loss {event.loss:.3f}" if event.kind == "step" else event.text
        self._tell(event.kind, cell, step)

    def _tell(self, kind: str, cell: PlannedCell | None, text: str) -> None:
        done = total = 0.0
        for index, planned in enumerate(self._pending):
            before = self._before.get(index, 0.0)
            done += planned.need.work * max(0.0, self._shares[index] - before)
            total += planned.need.work * (1 - before)
        self._watch(
            News(kind=kind, cell=cell, text=text, finished=self._finished, cells=self._cells, done=done, total=total)
        )  # fmt: skip
