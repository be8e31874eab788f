"""Which cell runs next, and what is done about those that fail. Nothing is pruned: a flat curve is data."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from triplepoint.runs import in_use
from triplepoint.sweeps.cells import Cell
from triplepoint.sweeps.executors import Event, Executor

RECHECK_S = 1.0
"""Seconds after which a cell that another process holds is looked at again."""


def run_all(
    cells: Sequence[Cell],
    executor: Executor,
    *,
    fail_fast: bool = True,
    retries: int = 0,
    share: bool = False,
    watch: Callable[[Event], None] = lambda event: None,
) -> dict[int, BaseException]:
    """Run cells on an executor until each is done or has failed, and close the executor.

    Args:
        cells: What to run, in the order in which it is worth having.
        executor: Where.
        fail_fast: Whether the first failure is raised, stopping the rest; what has finished stays finished, what
            was interrupted resumes. Else the others go on.
        retries: How often a cell is started again whose worker was lost.
        share: Whether to wait for cells that another process holds, and take its results; else an error.
        watch: Called with every event.

    Returns:
        Index and error of each cell that failed.
    """
    schedule = _Schedule(cells, executor, fail_fast, retries, share, watch)
    try:
        schedule.run()
    finally:
        executor.close()
    return schedule.failed


class _Schedule:
    def __init__(
        self,
        cells: Sequence[Cell],
        executor: Executor,
        fail_fast: bool,
        retries: int,
        share: bool,
        watch: Callable[[Event], None],
    ):
        self._cells, self._executor, self._watch = cells, executor, watch
        self._fail_fast, self._retries, self._share = fail_fast, retries, share
        self.failed: dict[int, BaseException] = {}
        self._waiting = deque(range(len(cells)))
        self._running: set[int] = set()
        self._not_before: dict[int, float] = {}
        self._losses: Counter[int] = Counter()

    def run(self) -> None:
        while self._waiting or self._running:
            self._start()
            for event in self._executor.events(timeout=0.2):
                self._handle(event)

    def _start(self) -> None:
        for index in list(self._waiting):
            if len(self._running) >= self._executor.slots:
                return
            if self._not_before.get(index, 0.0) > time.monotonic():
                continue
            if self._share and in_use(self._cells[index].path):
                self._postpone(index)
                continue
            self._waiting.remove(index)
            self._running.add(index)
            self._executor.start(index, self._cells[index])

    def _postpone(self, index: int) -> None:
        if index not in self._not_before:
            self._watch(Event(index, "waiting"))
        self._not_before[index] = time.monotonic() + RECHECK_S

    def _handle(self, event: Event) -> None:
        if event.kind in ("step", "quarantined"):
            self._watch(event)
            return
        self._running.discard(event.index)
        if event.kind == "done":
            self._watch(event)
        elif event.kind == "busy" and self._share:
            self._postpone(event.index)
            self._waiting.append(event.index)
        elif event.kind == "died" and self._losses[event.index] < self._retries:
            self._losses[event.index] += 1
            self._waiting.appendleft(event.index)
            self._watch(Event(event.index, "retried", text=_first_line(event)))
        else:
            self._fail(event)

    def _fail(self, event: Event) -> None:
        if self._fail_fast:
            raise event.error
        self.failed[event.index] = event.error
        self._watch(Event(event.index, "failed", error=event.error, text=_first_line(event)))


def _first_line(event: Event) -> str:
    return (str(event.error).splitlines() or [type(event.error).__name__])[0]
