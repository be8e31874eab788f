"""The growing file of a run that is watched in somebody else's loop: records, and the phase over steps.

JSON Lines, each written once. A line is a :class:`triplepoint.records.Record`, or a phase that holds from its
step on: ``{"step": 40, "phase": "generalising", "reason": "..."}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

from triplepoint.errors import RunFolderError
from triplepoint.records import Record, from_line, to_line
from triplepoint.runs import atomic_path


class PhaseLine(NamedTuple):
    """A phase, the step it was told at and the sentence that says why; it holds until the next one."""

    step: int
    phase: str
    reason: str


class Logbook:
    """Opens the file of a run and appends to it.

    A run that goes on from a checkpoint keeps the lines up to its step: what followed is measured again. One that
    starts at step 0 begins a new file; one that is there is renamed, ``NAME.1.jsonl``, and never overwritten.

    Args:
        path: The file; its folder is made.
        step: Optimiser steps that the run has done.

    Raises:
        RunFolderError: If the file cannot be written, or is not one of these.
    """

    def __init__(self, path: str | Path, *, step: int = 0):
        self.path = Path(path)
        self.records: list[Record] = []
        """Those that were kept."""
        self.phases: list[PhaseLine] = []
        """All so far."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self._keep(step)
            self._file: IO[str] = self.path.open("a")
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _keep(self, step: int) -> None:
        if step == 0:
            numbers = range(1, 10**6)
            names = (self.path.with_suffix(f".{n}{self.path.suffix}") for n in numbers)
            self.path.rename(next(name for name in names if not name.exists()))
            return
        records, phases = read_logbook(self.path)
        self.records = [r for r in records if (r.step or 0) <= step]
        self.phases = [p for p in phases if p.step <= step]
        with atomic_path(self.path) as beside:
            beside.write_text("".join(_lines(self.records, self.phases)))

    def write(self, records: Iterable[Record], phase: PhaseLine | None = None) -> None:
        """Append records, and the phase where it or its reason is another than before."""
        last = self.phases[-1][1:] if self.phases else None
        new = [phase] if phase is not None and phase[1:] != last else []
        self.phases += new
        try:
            self._file.writelines(_lines(records, new))
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines(records: Iterable[Record], phases: Iterable[PhaseLine]) -> list[str]:
    rows = [to_line(record) for record in records]
    return [f"{row}\n" for row in [*rows, *(json.dumps(p._asdict()) for p in phases)]]


def read_logbook(path: str | Path) -> tuple[list[Record], list[PhaseLine]]:
    """Read what a :class:`Logbook` wrote; a last line cut by a crash is dropped.

    Raises:
        RunFolderError: If a line is neither a record nor a phase.
    """
    records: list[Record] = []
    phases: list[PhaseLine] = []
    text = _text_of(Path(path))
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            row = json.loads(line)
            if "phase" in row:
                phases.append(PhaseLine(**row))
            else:
                records.append(from_line(line))
        except (ValueError, TypeError) as error:
            raise RunFolderError(
                f"{path}, line {number}: neither a record nor a phase ({error}).\n"
                "The file was changed by another program; restore it, or move it away to start a new one."
            ) from error
    return records, phases


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RunFolderError(
            f"{path} is no logbook: it is no text.\nMove it away to start a new one."
        ) from error


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    if isinstance(error, RunFolderError):
        return error
    return RunFolderError(
        f"{path} cannot be written: {error.strerror or error}.\n"
        "Free some space, or give the monitor another path."
    )
