"""What every benchmark shares: the clock, a table of ratios, and one line of JSON at the end."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch


def cpu_seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the process's own CPU seconds of one call, the mean of ``times`` in a row."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def summary(ratios: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum of some runs, and how many there were."""
    return {
        "median": round(statistics.median(ratios), 4),
        "min": round(min(ratios), 4),
        "max": round(max(ratios), 4),
        "runs": len(ratios),
    }


def finish(
    name: str,
    figures: Mapping[str, Mapping[str, float]],
    targets: Mapping[str, float],
    *,
    at_least: Mapping[str, float] | None = None,
) -> None:
    """Print the figures beside their targets, then the line of JSON.

    Args:
        name: The benchmark.
        figures: Name -> what ``summary`` returns.
        targets: Name -> largest median wanted.
        at_least: Name -> smallest median wanted.
    """
    at_least = at_least or {}
    wanted = {k: f"<= {v:.2f}" for k, v in targets.items()}
    wanted |= {k: f">= {v:.2f}" for k, v in at_least.items()}
    print(f"{'figure':<28}{'median':>9}{'min':>9}{'max':>9}{'runs':>6}{'target':>9}")
    for figure, values in figures.items():
        print(
            f"{figure:<28}{values['median']:>9.3f}{values['min']:>9.3f}{values['max']:>9.3f}"
            f"{values['runs']:>6}{wanted.get(figure, '-'):>9}"
        )
    machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}, 1 thread, CPU"
    line = {"name": name, "figures": figures, "targets": targets, "machine": machine}
    print(json.dumps(line | ({"at_least": at_least} if at_least else {})))
