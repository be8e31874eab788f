"""What runs cells somewhere: the contract, and how one cell is attempted wherever that is."""

from __future__ import annotations

import dataclasses
import sys
import time
import traceback
from collections.abc import Callable
from typing import Literal, Protocol

import torch

from triplepoint.errors import ExecutorError, FolderInUseError, TriplepointError
from triplepoint.sweeps.cells import Cell, run_cell
from triplepoint.sweeps.damage import quarantine

PROGRESS_EVERY_S = 0.2
"""A cell tells its step so often: enough for a moving bar, little enough for a pipe."""


@dataclasses.dataclass(frozen=True)
class Event:
    """News of a cell that runs in another process.

    ``step done error`` speak for themselves. ``busy``: another process holds its folder. ``died``: its worker
    ended without a word. ``retried``, ``failed`` and ``waiting`` are what was made of these. ``quarantined``:
    its folder was damaged and set aside; it starts anew.
    """

    index: int
    kind: Literal[
        "step", "done", "error", "busy", "died", "retried", "failed", "waiting", "quarantined"
    ]
    step: int = 0
    loss: float = float("nan")
    error: BaseException | None = None
    text: str = ""


class Executor(Protocol):
    """Where cells run. It neither chooses nor repeats: :func:`~triplepoint.sweeps.scheduling.run_all` does."""

    slots: int
    """How many cells run at a time."""

    def start(self, index: int, cell: Cell) -> None:
        """Begin a cell, whose events carry ``index``."""

    def events(self, timeout: float) -> list[Event]:
        """Return what has happened, after ``timeout`` seconds at the latest; each cell ends with one event."""

    def close(self) -> None:
        """Stop what is running and let go of the workers."""


def attempt(index: int, cell: Cell, send: Callable[[Event], None], *, mend: bool) -> Event:
    """Run one cell in this process, one thread, and return the event that ends it.

    Args:
        index: Carried by the events.
        cell: What to run.
        send: Called with its steps, and when its folder was set aside.
        mend: Whether a damaged folder is set aside and the cell started anew; else it is an error.
    """
    torch.set_num_threads(1)
    last = 0.0

    def progress(step: int, loss: float) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_EVERY_S:
            last = time.monotonic()
            send(Event(index, "step", step, loss))

    try:
        run_cell(cell, progress)
    except FolderInUseError as error:
        return Event(index, "busy", error=error)
    except Exception as error:
        moved = quarantine(cell) if mend else None
        if moved is None:
            return _failure(index, cell, error)
        send(Event(index, "quarantined", text=moved))
        return attempt(index, cell, send, mend=False)
    return Event(index, "done")


def _failure(index: int, cell: Cell, error: Exception) -> Event:
    if isinstance(error, TriplepointError):
        return Event(index, "error", error=error)
    traceback.print_exc(file=sys.stderr)
    return Event(index, "error", error=RuntimeError(f"{cell.arm}: {error}"))


def lost_worker(index: int, told: str) -> Event:
    """Return the event of a worker that ended without a word."""
    error = ExecutorError(
        f"A worker process ended without a word ({told}).\n"
        "It may have run out of memory: use fewer --workers; run the same command again to resume."
    )
    return Event(index, "died", error=error)
