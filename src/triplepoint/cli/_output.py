"""What a person sees while a command works: bars on a terminal, plain lines elsewhere; all on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from triplepoint.cli._streams import documents

PLAIN_EVERY_S = 5.0
"""Without a terminal, a line every so many seconds."""


def console(*, to_stderr: bool) -> Console:
    """Return a console that wraps at the terminal's width, or at 100 columns where there is none."""
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 100, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document, the only thing on stdout."""
    documents().write(json.dumps(document, allow_nan=False) + "\n")


def _bar(where: Console, description: str, *texts: str) -> Progress:
    """Return a bar with these columns, the time spent and the time left."""
    columns = [TextColumn(description), BarColumn(), *map(TextColumn, texts)]
    clocks = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()]
    return Progress(*columns, *clocks, console=where)


class Bars:
    """Progress of several runs of equal length, as one bar each or as plain lines."""

    def __init__(self, names: list[str], steps: int):
        self._names, self._steps = names, steps
        self._at = [0] * len(names)
        self._loss = [float("nan")] * len(names)
        self._start = self._last = time.monotonic()
        self._console = console(to_stderr=True)
        self._progress: Progress | None = None
        if self._console.is_terminal:
            self._progress = _bar(
                self._console,
                "{task.description:<28}",
                "{task.completed}/{task.total}",
                "loss {task.fields[loss]:>6}",
            )
            self._tasks = [
                self._progress.add_task(n, total=steps, loss="", start=False) for n in names
            ]
            self._all = self._progress.add_task("all", total=steps * len(names), loss="")

    def step(self, index: int, step: int, loss: float) -> None:
        """Show that run ``index`` has done ``step`` steps."""
        self._at[index], self._loss[index] = step, loss
        if self._progress is not None:
            self._progress.start_task(self._tasks[index])
            self._progress.update(self._tasks[index], completed=step, loss=f"{loss:.3f}")
            self._progress.update(self._all, completed=sum(self._at))
        elif time.monotonic() - self._last > PLAIN_EVERY_S:
            self._last = time.monotonic()
            self._line(f"{self._names[index]}: step {step}/{self._steps}, loss {loss:.3f}")

    def done(self, index: int) -> None:
        """Show that run ``index`` has ended."""
        self._at[index] = self._steps
        if self._progress is not None:
            self._progress.update(self._tasks[index], completed=self._steps)
            self._progress.update(self._all, completed=sum(self._at))
        else:
            self._line(f"{self._names[index]}: done")

    def _line(self, text: str) -> None:
        done, total = sum(self._at), self._steps * len(self._names)
        spent = time.monotonic() - self._start
        left = f", about {spent * (total - done) / done:.0f} s left" if done else ""
        self._console.print(f"{text} ({done}/{total} steps in all{left})", soft_wrap=True)

    def __enter__(self) -> Bars:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


class Track:
    """Progress of one computation: a bar on a terminal, plain lines elsewhere; on stderr.

    Args:
        name: What is computed.
        total: Where it ends, in the unit of what :meth:`at` is told.
    """

    def __init__(self, name: str, total: float):
        self._name, self._total = name, total
        self._start = self._last = time.monotonic()
        self._console = console(to_stderr=True)
        self._progress: Progress | None = None
        if self._console.is_terminal:
            self._progress = _bar(
                self._console,
                "{task.description}",
                "{task.percentage:>3.0f}%",
                "{task.fields[text]}",
            )
            self._task = self._progress.add_task(name, total=total, text="")

    def at(self, done: float, text: str = "") -> None:
        """Show that ``done`` of the total is done, and a few words on how it stands."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, text=text)
        elif time.monotonic() - self._last > PLAIN_EVERY_S:
            self._last = time.monotonic()
            spent = self._last - self._start
            left = f", about {spent * (self._total - done) / done:.0f} s left" if done else ""
            line = f"{self._name}: {done / self._total:.0%}{left}; {text}"
            self._console.print(line.removesuffix("; "), soft_wrap=True)

    def __enter__(self) -> Track:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._progress is not None:
            if kind is None:  # what settles early is done as well
                self._progress.update(self._task, completed=self._total)
            self._progress.stop()


@contextlib.contextmanager
def resumable(command: str) -> Iterator[None]:
    """Turn Ctrl-C into a word about how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"\nInterrupted. What was done is kept; resume with:\n  {command}\n")
        sys.exit(130)


def command_line(out: Path | None = None) -> str:
    """Return the command as it was typed, with ``--out`` where it was left to a default."""
    import shlex

    words = ["triplepoint", *sys.argv[1:]]
    if out is not None and not any(w == "--out" or w.startswith("--out=") for w in words):
        words += ["--out", str(out)]
    return shlex.join(words)
