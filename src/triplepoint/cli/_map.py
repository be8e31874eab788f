"""Shared by ``map``: the plan from its options, progress, and the end on a terminal."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from rich.table import Table

from triplepoint.cli._output import Track, console, print_json
from triplepoint.errors import PlanError
from triplepoint.maps import MapPlan, MapResult, News

TOLD = ("retried", "failed", "waiting", "quarantined")
"""News that get a line of their own."""


def plan_from(file: Path | None, grid: str | None) -> MapPlan:
    """Return the plan of a file, or of a grid on the command line.

    Raises:
        PlanError: If there is neither or both, or the file cannot be read.
    """
    if (file is None) == (grid is None):
        raise PlanError(
            "A map needs a plan: a TOML file or --grid, and not both.\n"
            'Try --grid "size=gpt2-0.1m;op=norm,dyt;seed=0,1".'
        )
    if grid is not None:
        return MapPlan.from_grid(grid)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(
            f"The plan {file} cannot be read: {error}.\nGive a TOML file, e.g. examples/map.toml."
        ) from error
    return MapPlan.from_toml(text)


class Watcher(contextlib.AbstractContextManager):
    """Shows how far the map is and how much time is left, and what went wrong on the way."""

    def __init__(self):
        self._track: Track | None = None
        self._console = console(to_stderr=True)

    def __call__(self, news: News) -> None:
        """Show one piece of news."""
        if self._track is None:
            self._track = Track("map", 1.0).__enter__()
        name = "" if news.cell is None else news.cell.cell.path.name
        if news.kind in TOLD:
            why = news.text or "another process has it; its result will be taken"
            self._console.print(f"{name}: {news.kind}: {why}", soft_wrap=True)
        self._track.at(
            news.done / news.total,
            f"{news.finished}/{news.cells} cells; {name} {news.text}".strip(),
        )

    def __exit__(self, *error: object) -> None:
        if self._track is not None:
            self._track.__exit__(*error)


def show_result(result: MapResult, *, json: bool) -> None:
    """Print the result as JSON, or its effects as a table."""
    if json:
        print_json(result.to_dict())
        return
    out = console(to_stderr=False)
    out.print(_effects(result))
    for folder, error in result.failed.items():
        out.print(f"failed: {folder}: {error}", soft_wrap=True)
    for folder in result.quarantined:
        out.print(f"set aside as damaged: cells/{folder}", soft_wrap=True)
    out.print(
        f"{result.finished} of {result.cells} cells. Table: {result.folder / 'table.parquet'}",
        soft_wrap=True,
    )


def _effects(result: MapResult) -> Table:
    table = Table(title=f"{result.plan.name}: relative difference, positive = worse")
    for name in ("size", "train tokens", "arm", "against", "seeds", "fixed step", "best checkpoint", "phase"):  # fmt: skip
        table.add_column(name)
    for row in result.rows:
        if row["row"] == "effect":
            ends = [_told(row, endpoint) for endpoint in ("fixed_step", "best_checkpoint")]
            table.add_row(
                row["size"], f"{row['train_tokens']:,}", row["arm"], row["baseline"], str(row["seeds"]), *ends, row["phase"]
            )  # fmt: skip
    return table


def _told(row: dict[str, Any], endpoint: str) -> str:
    if row.get(endpoint) is None:
        return "diverged"
    low, high = (row[f"{endpoint}_bootstrap_{end}"] for end in ("low", "high"))
    return f"{100 * row[endpoint]:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})"


def show_status(status: dict[str, Any], *, json: bool) -> None:
    """Print how far a map is."""
    if json:
        print_json(status)
        return
    out = console(to_stderr=False)
    counted = ", ".join(
        f"{status[s]} {s}" for s in ("finished", "running", "interrupted", "failed", "waiting") if status[s]
    )  # fmt: skip
    out.print(f"{status['name']}: {status['cells']} cells: {counted}; {status['work_done']:.0%} of the work is done.")  # fmt: skip
    for cell in status["by_cell"]:
        if cell["state"] not in ("finished", "waiting"):
            why = f": {cell['error']}" if cell["error"] else ""
            out.print(
                f"  {cell['state']}: {cell['folder']}, step {cell['step']} of {cell['steps']}{why}",
                soft_wrap=True,
            )
    for folder in status["quarantined"]:
        out.print(f"  set aside as damaged: cells/{folder}", soft_wrap=True)
