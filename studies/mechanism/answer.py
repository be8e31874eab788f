"""The study's table: DyT against LayerNorm, by size and data, at each of the three kinds of step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

from studies.mechanism.cells import PLACES, Place
from triplepoint.records import Record

PAIRS = {
    "final": ("final", "final"),
    "best checkpoint": ("best", "best"),
    "matched train loss": ("matched", "final"),
}
"""Comparison -> which of LayerNorm's and which of DyT's models."""

WHOLE = ("train_loss", "val_loss", "noise_stability@0.01", "noise_stability@0.1")
MEANS = (
    "activation_rank",
    "activation_rank_centred",
    "effective_rank",
    "stable_rank",
    "tail_exponent",
    "heavy_tailed",
)
"""Averaged over sites or matrices; the tail exponent over the matrices where both arms have one."""

Measured = Mapping[str, list[Record]]


def answer(records: Measured) -> Mapping[str, object]:
    """Print what DyT's models are relative to LayerNorm's, per seed; return it as figures."""
    print(
        "| size | bytes | at | metric | LayerNorm, by seed | DyT, by seed | DyT / LayerNorm - 1 |"
    )
    print("|---|---|---|---|---|---|---|")
    figures = []
    for size, tokens in dict.fromkeys((p.size, p.tokens) for p in PLACES):
        places = [p for p in PLACES if (p.size, p.tokens) == (size, tokens)]
        for at, ends in PAIRS.items():
            pairs = [pair for p in places if (pair := _pair(records, p, *ends)) is not None]
            for metric in (*WHOLE, *MEANS) if pairs else ():
                values = [_values(metric, *pair) for pair in pairs]
                figures.append(
                    {
                        "size": size,
                        "unique_tokens": tokens,
                        "at": at,
                        "metric": metric,
                        "layernorm": [v[0] for v in values],
                        "dyt": [v[1] for v in values],
                    }
                )
                ours, theirs = ("  ".join(_told(v[i]) for v in values) for i in (0, 1))
                print(
                    f"| {size} | {tokens} | {at} | {metric} | {ours} | {theirs} | {_change(values)} |"
                )
    print("\nExponents with interval and null, by matrix: in the records.")
    return {"cells": len(records), "rows": figures, "intervals": _apart(records)}


def _pair(
    records: Measured, place: Place, ours: str, theirs: str
) -> tuple[list[Record], list[Record]] | None:
    both = records.get(f"{place}_layernorm_{ours}"), records.get(f"{place}_dyt-paper_{theirs}")
    return both if all(both) else None


def _values(metric: str, ours: Iterable[Record], theirs: Iterable[Record]) -> tuple[float, float]:
    """Return the metric of both models: the model's own, or the mean over the sites that both have it at."""
    ours, theirs = ({r.site: r.value for r in one if r.metric == metric} for one in (ours, theirs))
    sites = ours.keys() & theirs.keys()
    if not sites:
        return math.nan, math.nan
    return tuple(statistics.fmean(one[site] for site in sites) for one in (ours, theirs))


def _told(value: float) -> str:
    return f"{value:.3g}"


def _change(values: Iterable[tuple[float, float]]) -> str:
    return "  ".join(
        f"{theirs / ours - 1:+.0%}" if ours and math.isfinite(ours) else "-"
        for ours, theirs in values
    )


def _apart(records: Measured) -> dict[str, list[int]]:
    """Count matrices whose exponents' 95 % intervals do not overlap: DyT lower, DyT higher, all with one in both arms."""
    counted: dict[str, list[int]] = {}
    for at, ends in PAIRS.items():
        for place in PLACES:
            pair = _pair(records, place, *ends)
            if pair is None:
                continue
            ours, theirs = (
                {r.site: r for r in one if r.metric == "tail_exponent" and r.low is not None}
                for one in pair
            )
            row = counted.setdefault(f"{place.size} {place.tokens} {at}", [0, 0, 0])
            sites = ours.keys() & theirs.keys()
            row[0] += sum(theirs[s].high < ours[s].low for s in sites)
            row[1] += sum(theirs[s].low > ours[s].high for s in sites)
            row[2] += len(sites)
    for where, (lower, higher, both) in counted.items():
        print(
            f"{where}: of {both} matrices DyT's exponent is clearly lower in {lower}, higher in {higher}"
        )
    return counted
