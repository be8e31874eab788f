"""What every benchmark prints: a table of ratios, and one line of JSON at the end."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping, Sequence

import torch


def summary(ratios: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum of some runs, and how many there were."""
    return {
        "median": round(statistics.median(ratios), 4),
        "min": round(min(ratios), 4),
        "max": round(max(ratios), 4),
        "runs": len(ratios),
    }


def finish(
    name: str, figures: Mapping[str, Mapping[str, float]], targets: Mapping[str, float]
) -> None:
    """Print the figures beside their targets, then the line of JSON."""
    print(f"{'figure':<28}{'median':>9}{'min':>9}{'max':>9}{'runs':>6}{'target':>9}")
    for figure, values in figures.items():
        target = f"<= {targets[figure]:.2f}" if figure in targets else "-"
        print(
            f"{figure:<28}{values['median']:>9.3f}{values['min']:>9.3f}{values['max']:>9.3f}"
            f"{values['runs']:>6}{target:>9}"
        )
    machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}, 1 thread, CPU"
    print(json.dumps({"name": name, "figures": figures, "targets": targets, "machine": machine}))
