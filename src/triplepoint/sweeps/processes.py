"""Cells side by side, one thread each, in processes that end with this one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from triplepoint.sweeps.arms import ArmRun, load_arm
from triplepoint.sweeps.cells import Cell, run_cell
from triplepoint.sweeps.executors import Event, attempt, lost_worker
from triplepoint.sweeps.scheduling import run_all

STARTS = 10
"""So often a worker is tried to be started, ``START_AGAIN_S`` seconds apart, before it counts as lost."""
START_AGAIN_S = 0.3
ENDING = ("done", "error", "busy")
"""Events after which a worker says no more."""


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
    run_all(cells, LocalExecutor(workers), watch=watch)
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


class LocalExecutor:
    """A process per cell on this machine; each ends with its parent, however that ends.

    Every worker has a pipe of its own: one that is killed while it writes leaves the others' whole.

    Args:
        workers: Processes at a time.
        mend: Whether a damaged folder is set aside and its cell started anew.
    """

    def __init__(self, workers: int, *, mend: bool = False):
        self.slots, self._mend = workers, mend
        self._context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
        if hasattr(self._context, "set_forkserver_preload"):
            self._context.set_forkserver_preload(["triplepoint.sweeps"])
        self._running: dict[Connection, tuple[int, Any]] = {}
        self._lost: list[Event] = []

    def start(self, index: int, cell: Cell) -> None:
        """Begin a cell."""
        told = ""
        for _ in range(STARTS):
            receiver, sender = self._context.Pipe(duplex=False)
            process = self._context.Process(
                target=_work, args=(index, cell, self._mend, sender), daemon=True
            )
            try:
                process.start()
            except (OSError, EOFError) as error:
                # the server that forks was killed; once it is gone, the next start makes a new one
                receiver.close()
                told = f"it could not be started: {error}"
                time.sleep(START_AGAIN_S)
            else:
                self._running[receiver] = (index, process)
                return
            finally:
                sender.close()  # now only the worker's copy keeps the pipe open
        self._lost.append(lost_worker(index, told))

    def events(self, timeout: float) -> list[Event]:
        """Return what the workers have said."""
        told, self._lost = self._lost, []
        if not self._running:
            if not told:
                time.sleep(timeout)
            return told
        return told + [self._receive(pipe) for pipe in wait(list(self._running), timeout)]

    def _receive(self, pipe: Connection) -> Event:
        index, process = self._running[pipe]
        try:
            event = pipe.recv()
        except Exception:  # a killed worker's last message may be cut anywhere
            event = None
        if event is None or event.kind in ENDING:
            del self._running[pipe]
            pipe.close()
            process.join()
        return event or lost_worker(index, f"exit code {process.exitcode}")

    def close(self) -> None:
        """Stop the workers."""
        for _, process in self._running.values():
            process.terminate()
        for pipe, (_, process) in self._running.items():
            process.join()
            pipe.close()
        self._running = {}


def _work(index: int, cell: Cell, mend: bool, pipe: Connection) -> None:
    """Run one cell in a process of its own, which ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    os.dup2(2, 1)  # what a model's code prints is no result: stdout is the parent's
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(attempt(index, cell, pipe.send, mend=mend))
    pipe.close()


def _end_with_parent() -> None:
    # waits on a pipe that the parent's end closes, however it ends
    multiprocessing.parent_process().join()
    os._exit(1)
