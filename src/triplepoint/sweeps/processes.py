"""Cells side by side, one thread each, in processes that end with this one."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from triplepoint.errors import (
    RunFolderError,
    TriplepointError,
)
from triplepoint.sweeps.arms import ArmRun, load_arm
from triplepoint.sweeps.cells import Cell, run_cell


@dataclasses.dataclass(frozen=True)
class Event:
    """News of a cell that runs in another process."""

    index: int
    kind: Literal["step", "done", "error"]
    step: int = 0
    loss: float = float("nan")
    error: BaseException | None = None


def run_cells(
    cells: Sequence[Cell], *, workers: int = 1, watch: Callable[[Event], None] = lambda event: None
) -> list[ArmRun]:
    """Run cells side by side, one thread each, and return them in order.

    The first error stops the rest; what has finished stays finished, and what was interrupted resumes.

    Args:
        cells: What to run.
        workers: Processes at a time; 1 runs all in this process.
        watch: Called with every step of every cell.
    """
    if workers <= 1 or len(cells) == 1:
        runs = []
        with _threads(1):
            for index, cell in enumerate(cells):
                runs.append(run_cell(cell, lambda s, x, i=index: watch(Event(i, "step", s, x))))
                watch(Event(index, "done"))
        return runs
    _run_in_processes(cells, workers, watch)
    return [load_arm(cell.path) for cell in cells]


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    # two threads in one process wait for each other at every op; on a busy machine that is 16 x slower
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_in_processes(cells: Sequence[Cell], workers: int, watch: Callable[[Event], None]) -> None:
    context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload(["triplepoint.sweeps"])
    events = context.Queue()
    waiting = list(enumerate(cells))
    running: dict[int, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                index, cell = waiting.pop(0)
                running[index] = context.Process(
                    target=_work, args=(index, cell, events), daemon=True
                )
                running[index].start()
            _handle(_next_event(events, running), running, watch)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _next_event(events: Any, running: Mapping[int, Any]) -> Event | None:
    try:
        return events.get(timeout=0.5)
    except queue.Empty:
        pass
    for index, process in running.items():
        if not process.is_alive():
            with contextlib.suppress(queue.Empty):
                return events.get(timeout=1.0)
            error = RunFolderError(
                f"A worker process ended without a word (exit code {process.exitcode}).\n"
                "It may have run out of memory: use fewer --workers; run the same command again to resume."
            )
            return Event(index, "error", error=error)
    return None


def _handle(event: Event | None, running: dict[int, Any], watch: Callable[[Event], None]) -> None:
    if event is None:
        return
    if event.kind == "error":
        raise event.error
    if event.kind == "done":
        running.pop(event.index).join()
    watch(event)


def _work(index: int, cell: Cell, events: Any) -> None:
    """Run one cell in a process of its own, which ends when its parent does."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    last = 0.0

    def progress(step: int, loss: float) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            events.put(Event(index, "step", step, loss))

    try:
        run_cell(cell, progress)
        events.put(Event(index, "done"))
    except TriplepointError as error:
        events.put(Event(index, "error", error=error))
    except BaseException as error:
        traceback.print_exc(file=sys.stderr)
        events.put(Event(index, "error", error=RuntimeError(f"{cell.arm}: {error}")))


def _end_with_parent() -> None:
    # waits on a pipe that the parent's end closes, however it ends
    multiprocessing.parent_process().join()
    os._exit(1)
