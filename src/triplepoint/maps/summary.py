"""What a map's table says as a whole: how often arms collapse, whether saturation goes with the effect, and whether size does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from triplepoint.maps.pairs import ENDPOINTS
from triplepoint.maps.table import PARAMETERS, Compared, key_of
from triplepoint.statistics import (
    fisher_exact,
    odds_ratio_interval,
    spearman,
    spearman_p,
    t_slope,
    wilson,
)
from triplepoint.sweeps.grid import AXES, CellSettings

Row = dict[str, Any]

OUTCOMES = ("collapsed", "stalled", "diverged")
SIZES = 3
"""Sizes from which a slope is told: two give a line whatever the law."""
FEWEST = 4
"""Effects from which a rank correlation is told: below, no order can have p < 0.05."""


def summarise(compared: Compared, rows: Sequence[Row]) -> dict[str, Any]:
    """Return ``summary.json``: ``collapse_rates``, ``saturation_effect`` and ``size_slopes``.

    Each rate is over the seeds of one kind of cell (``level`` is ``cell``, all axes but the seed equal), or over all
    cells of an arm (``arm``): those differ in size and data, so that interval is descriptive. It has Wilson's
    95 % interval, and beside its baseline's rate Fisher's exact p and the exact conditional 95 % interval of the
    odds ratio (null for infinite).

    A slope is that of the effect in log10 parameters with everything but size and seed equal, one point per pair,
    with Student's 95 % interval: a fraction per tenfold size, told from three sizes on.

    Args:
        compared: The finished cells.
        rows: The table's rows, as :func:`~triplepoint.maps.table.rows_of` returns them.
    """
    cells = {row["identity"]: row for row in rows if row["row"] == "cell"}
    return {
        "collapse_rates": [
            told for level in ("cell", "arm") for told in _rates(compared, cells, level)
        ],
        "saturation_effect": list(_correlations([row for row in rows if row["row"] == "effect"])),
        "size_slopes": list(_slopes([row for row in rows if row["row"] == "pair"])),
    }


def _rates(compared: Compared, cells: dict[str, Row], level: str) -> Iterator[Row]:
    plan, groups, against = compared.plan, {}, {}

    def group_of(settings: CellSettings) -> tuple:
        return (plan.arm_of(settings),) if level == "arm" else key_of(settings, but="seed")

    for result in compared.results:
        settings = result.planned.settings
        group = group_of(settings)
        groups.setdefault(group, []).append(cells[result.planned.identity])
        against[group] = group_of(plan.baseline_of(settings))
    for group, rows in groups.items():
        others = groups.get(against[group], []) if against[group] != group else []
        for outcome in OUTCOMES:
            where = dict(group) if level == "cell" else None
            told = {"level": level, "arm": rows[0]["arm"], "settings": where, "outcome": outcome}
            count, n = _count(rows, outcome), len(rows)
            low, high = wilson(count, n)
            told |= {"count": count, "n": n, "wilson_low": low, "wilson_high": high}
            if others:
                told |= {"baseline": others[0]["arm"], **_against(rows, others, outcome)}
            yield told


def _count(rows: Sequence[Row], outcome: str) -> int:
    return sum(row[outcome] for row in rows)


def _against(rows: Sequence[Row], others: Sequence[Row], outcome: str) -> Row:
    counts = (_count(rows, outcome), len(rows), _count(others, outcome), len(others))
    low, high = odds_ratio_interval(*counts)
    return {
        "baseline_count": counts[2],
        "baseline_n": counts[3],
        "fisher_p": fisher_exact(*counts),
        "odds_ratio_low": low,
        "odds_ratio_high": high if math.isfinite(high) else None,
    }


def _correlations(effects: Sequence[Row]) -> Iterator[Row]:
    """Yield the rank correlation of saturation with the effect, one point per effect: seeds are averaged first."""
    for when in ("saturation_end", "saturation_500"):
        for endpoint in ENDPOINTS:
            known = [
                (row[when], row[endpoint])
                for row in effects
                if row[when] is not None and row.get(endpoint) is not None
            ]
            x, y = ([pair[side] for pair in known] for side in (0, 1))
            if len(known) < FEWEST or len(set(x)) < 2 or len(set(y)) < 2:
                continue
            yield {
                "saturation": when, "endpoint": endpoint, "n": len(known),
                "spearman": spearman(x, y), "permutation_p": spearman_p(x, y),
            }  # fmt: skip


def _slopes(pairs: Sequence[Row]) -> Iterator[Row]:
    """Yield how each arm's effect changes with the model's size."""
    groups: dict[tuple, list[Row]] = {}
    for row in pairs:
        fixed = tuple((axis, row[axis]) for axis in AXES if axis not in ("size", "seed"))
        groups.setdefault((row["arm"], row["baseline"], fixed), []).append(row)
    for (arm, baseline, fixed), rows in groups.items():
        for endpoint in ENDPOINTS:
            known = [row for row in rows if row.get(endpoint) is not None]
            if len({row["size"] for row in known}) < SIZES:
                continue
            slope, low, high = t_slope(
                [math.log10(row[PARAMETERS]) for row in known], [row[endpoint] for row in known]
            )
            yield {
                "arm": arm, "baseline": baseline, "settings": dict(fixed), "endpoint": endpoint,
                "sizes": len({row["size"] for row in known}), "n": len(known),
                "slope": slope, "t_low": low, "t_high": high,
            }  # fmt: skip
