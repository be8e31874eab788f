"""Stored records -> the study's tables and figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from studies.appendix_d.cells import KINKS_AT
from triplepoint.records import Record

Curves = dict[str, dict[int, float]]
"""Metric -> step -> value, of one network."""

SHOWN = (300, 1000, 2000, 2500, 3000, 5000, 8000, 12_000, 16_000, 20_000)
PLAIN = ("cosine", "null_cosine", "tangent_share", "settling_distance",
         "train_accuracy", "test_accuracy", "test_loss")  # fmt: skip
DRIFTS = ("window", "kinks", "mean_gates")
KINK_COLUMNS = (
    "stuck_share",
    "rank",
    *(f"{d}_{m}" for d in DRIFTS for m in ("cosine", "speed_ratio")),
)
MEMORISED_BY = 3000
"""From this window on the fit is over in every network, and the drift is all that is left."""


def answer(stored: dict[str, list[Record]]) -> dict[str, object]:
    """Print the tables, and return the figures."""
    networks = [curves(rows) for rows in stored.values()]
    steps = set().union(*(c["cosine"] for c in networks))
    print(f"{len(networks)} networks: mean (lowest to highest)\n")
    _table(networks, PLAIN, [s for s in SHOWN if s in steps])
    print("\nWindows of 200 steps that end at the step, at their mean point\n")
    _table(networks, KINK_COLUMNS, [s for s in KINKS_AT if s in steps])
    peaks = [max(c["cosine"].items(), key=lambda at: at[1]) for c in networks]
    null = [max(c["null_cosine"].values()) for c in networks]
    print(f"\nPeak of the plain cosine: {_list([v for _, v in peaks], '.3f')}")
    print(
        f"at step: {_list([s for s, _ in peaks], 'd')}; of the cosine with -theta: {_list(null, '.3f')}"
    )
    late = [s for s in KINKS_AT if s in steps and s >= MEMORISED_BY]
    figures: dict[str, object] = {
        "networks": len(networks),
        "memorised_at": [memorised_at(c) for c in networks],
        "peak": [round(v, 3) for _, v in peaks],
        "peak_step": [s for s, _ in peaks],
        "null_peak": [round(v, 3) for v in null],
        "cosine": {s: [round(c["cosine"][s], 3) for c in networks] for s in SHOWN if s in steps},
        "test_accuracy_end": [round(c["test_accuracy"][max(steps)], 3) for c in networks],
    }
    for name in DRIFTS:
        seen = [c[f"{name}_cosine"][s] for c in networks for s in late]
        if seen:
            pace = [c[f"{name}_speed_ratio"][s] for c in networks for s in late]
            figures[f"{name}_cosine_late"] = _three(seen)
            figures[f"{name}_speed_ratio_late"] = _three(pace)
            figures[f"{name}_cosine_below_099"] = f"{sum(v < 0.99 for v in seen)} of {len(seen)}"
    return figures


def curves(rows: Sequence[Record]) -> Curves:
    """Return the records of one network by metric and step."""
    found: Curves = {}
    for r in rows:
        found.setdefault(r.metric, {})[r.step] = r.value
    return found


def memorised_at(network: Curves) -> int | None:
    """Return the first look from which on every training pair is right."""
    wrong = [s for s, a in network["train_accuracy"].items() if a < 1]
    later = [s for s in network["train_accuracy"] if s > max(wrong, default=-1)]
    return min(later, default=None)


def _table(networks: list[Curves], metrics: Sequence[str], steps: Sequence[int]) -> None:
    print("| step | " + " | ".join(metrics) + " |\n|---|" + "---|" * len(metrics))
    for step in steps:
        cells = []
        for metric in metrics:
            seen = [c[metric][step] for c in networks]
            form = ".0f" if metric == "rank" else ".3f"
            cells.append(
                f"{statistics.mean(seen):{form}} ({min(seen):{form}} to {max(seen):{form}})"
            )
        print(f"| {step} | " + " | ".join(cells) + " |")


def _three(values: Sequence[float]) -> list[float]:
    """Mean, lowest and highest."""
    return [round(v, 4) for v in (statistics.mean(values), min(values), max(values))]


def _list(values: Sequence[float], form: str) -> str:
    return ", ".join(f"{v:{form}}" for v in values)
