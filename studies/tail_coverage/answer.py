"""Stored records -> tables and figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from triplepoint.records import Record
from triplepoint.statistics import wilson

Figures = dict[str, object]


def answer(cells: Mapping[str, list[Record]]) -> Figures:
    """Print both tables and return their figures."""
    records = [record for cell in cells.values() for record in cell]
    return {"coverage": _coverage(records), "claims": _claims(records)}


def _coverage(records: list[Record]) -> Figures:
    print(
        "| law | samples | refused | covered [95 %] | too high | too low | mean exponent | mean width |"
    )
    print("|---|---|---|---|---|---|---|---|")
    found: Figures = {}
    for law in _in_order(
        r.arm for r in records if r.metric in ("tail_exponent", "refused") and r.site is None
    ):
        fits = [r for r in records if r.arm == law and r.metric == "tail_exponent"]
        refused = sum(r.arm == law and r.metric == "refused" for r in records)
        truth = float(law.partition("-")[2].partition("_")[0])
        inside = sum(r.low <= truth <= r.high for r in fits)
        over, under = sum(r.low > truth for r in fits), sum(r.high < truth for r in fits)
        low, high = wilson(inside, len(fits))
        width = float(np.mean([r.high - r.low for r in fits]))
        mean = float(np.mean([r.value for r in fits]))
        print(
            f"| {law} | {len(fits) + refused} | {refused} | {inside / len(fits):.1%} [{low:.1%}, {high:.1%}] "
            f"| {over / len(fits):.1%} | {under / len(fits):.1%} | {mean:.3f} | {width:.2f} |"
        )
        found[law] = {
            "samples": len(fits) + refused,
            "refused": refused,
            "covered": round(inside / len(fits), 4),
            "interval": [round(low, 4), round(high, 4)],
            "mean": round(mean, 4),
            "width": round(width, 4),
        }
    return found


def _claims(records: list[Record]) -> Figures:
    print(
        "\n| matrices | shape | called heavy-tailed | refused | exponent | most beyond | of the top | shuffled, of the top |"
    )
    print("|---|---|---|---|---|---|---|---|")
    found: Figures = {}
    claimed = [r for r in records if r.metric == "heavy_tailed"]
    for kind in _in_order(r.arm for r in claimed):
        for shape in _in_order(r.site for r in claimed if r.arm == kind):
            here = [r for r in records if (r.arm, r.site) == (kind, shape)]
            heavy = [r.value for r in here if r.metric == "heavy_tailed"]
            own, beyond, top, null = (
                [r.value for r in here if r.metric == metric]
                for metric in ("tail_exponent", "beyond", "top", "top_null")
            )
            print(
                f"| {kind} | {shape} | {int(sum(heavy))} of {len(heavy)} | {len(heavy) - len(own)} | {_range(own)} "
                f"| {max(beyond):.0f} | {_range(top)} | {_range(null)} |"
            )
        heavy = [r.value for r in claimed if r.arm == kind]
        low, high = wilson(int(sum(heavy)), len(heavy))
        print(
            f"| **{kind}** | all | **{int(sum(heavy))} of {len(heavy)}** [{low:.1%}, {high:.1%}] | | | | | |"
        )
        found[kind] = {
            "matrices": len(heavy),
            "heavy_tailed": int(sum(heavy)),
            "interval": [round(low, 4), round(high, 4)],
        }
    return found


def _in_order(names) -> list[str]:
    return list(dict.fromkeys(names))


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else "none"
