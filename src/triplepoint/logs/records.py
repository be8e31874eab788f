"""Our own records, a number a row -> rows with a column per metric, of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from triplepoint.errors import LogError
from triplepoint.logs.rows import Row


def widened(
    rows: Iterable[Row], path: Path, run: str | None, wanted: Callable[[str], bool]
) -> Iterator[Row]:
    """Yield rows as they are, and those of records as ``{"step": ..., metric: value}``.

    Numbers of one site, at an endpoint or without a step are no part of a curve and left out.

    Args:
        rows: As read.
        path: For the messages.
        run: Which of several arms and seeds, as :func:`run_of` names them; None where there is one.
        wanted: Whether a metric may be used; a run without any is none.

    Raises:
        LogError: After the last row, if there are several runs and none is named, or no such run.
    """
    runs: dict[str, None] = {}
    for row in rows:
        if "metric" not in row or "value" not in row:
            yield row
            continue
        if row.get("site") is not None or row.get("endpoint") is not None or "step" not in row:
            continue
        if not wanted(str(row["metric"])):
            continue
        own = run_of(row)
        runs.setdefault(own)
        if run is None or own == run:
            yield {"step": row["step"], str(row["metric"]): row["value"]}
    check_run(path, list(runs), run)


def run_of(row: Row) -> str:
    """Return the name of the run that a record is of.

    Example:
        >>> run_of({"metric": "val_loss", "arm": "dyt", "seed": 0}), run_of({"metric": "val_loss"})
        ('dyt, seed 0', '')
    """
    arm, seed = row.get("arm"), row.get("seed")
    parts = [str(arm)] if arm is not None else []
    return ", ".join([*parts, f"seed {seed}"] if seed is not None else parts)


def check_run(path: Path, runs: list[str], run: str | None) -> None:
    """Refuse several runs of which none is named, and a name that is no run's.

    Raises:
        LogError: In both cases, with the names that there are.
    """
    listed = "; ".join(runs[:8]) + ("; ..." if len(runs) > 8 else "")
    if run is None and len(runs) > 1:
        raise LogError(f"{path} holds {len(runs)} runs: {listed}.\nName one: --run '{runs[0]}'.")
    if run is not None and run not in runs:
        raise LogError(
            f"{path} has no run '{run}'.\n"
            + (f"Its runs are: {listed}." if any(runs) else "It holds one run: leave out --run.")
        )
