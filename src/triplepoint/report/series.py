"""Records -> the series a picture is drawn from: by arm, site and seed along step, and their means."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from triplepoint.records import Record
from triplepoint.report.formats import known

Curve = dict[int, float]
"""Step -> value, ascending; a value may be NaN or infinite."""

BASELINE_COLOUR = "#2b2b2b"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, readable under the common colour blindnesses, without its yellow (too faint as a
line on white); black is the baseline's. More candidates than colours share them."""


class Arm(NamedTuple):
    """One of the compared trainings, as the page shows it."""

    name: str
    is_baseline: bool
    colour: str
    key: str | None
    """What its records carry as ``arm``; None for a single training, whose records name none."""


@dataclasses.dataclass(frozen=True)
class Series:
    """All records of a run, indexed once."""

    whole: Mapping[tuple, Mapping[int | None, Curve]]
    """(metric, arm) -> seed -> curve of the whole model."""
    by_site: Mapping[tuple, Mapping[str, Mapping[int | None, Curve]]]
    """(metric, arm) -> site -> seed -> curve; sites in the order of their records, the model's own."""
    ends: Mapping[tuple, Mapping[int | None, Record]]
    """(metric, arm, endpoint) -> seed -> record."""
    arms: tuple[Arm, ...]

    def mean(self, metric: str, arm: Arm) -> Curve:
        """Return the mean over seeds of a whole-model metric."""
        return mean_over_seeds(self.whole.get((metric, arm.key), {}).values())

    def site_means(self, metric: str, arm: Arm) -> dict[str, Curve]:
        """Return the mean over seeds at each site."""
        sites = self.by_site.get((metric, arm.key), {})
        return {site: mean_over_seeds(seeds.values()) for site, seeds in sites.items()}

    def seeds(self, arm: Arm) -> list[int | None]:
        """Return the seeds of an arm that have a loss, ascending."""
        found = {s for m in ("val_loss", "train_loss") for s in self.whole.get((m, arm.key), {})}
        return sorted(found, key=lambda seed: -1 if seed is None else seed)


def index(records: Iterable[Record], arms: Mapping[str, Mapping] | None) -> Series:
    """Index ``records``; ``arms`` as the manifest has them."""
    whole: dict = defaultdict(lambda: defaultdict(dict))
    by_site: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    ends: dict = defaultdict(dict)
    keys: dict[str | None, None] = {}
    for row in records:
        keys.setdefault(row.arm)
        if row.endpoint is not None:
            ends[row.metric, row.arm, row.endpoint][row.seed] = row
        elif row.site is not None and row.step is not None:
            by_site[row.metric, row.arm][row.site][row.seed][row.step] = row.value
        else:
            # measured once, at the end: step None sorts as the only point of its curve
            whole[row.metric, row.arm][row.seed][row.step or 0] = row.value
    return Series(whole, by_site, ends, arms_of(arms or {}, list(keys)))


def arms_of(declared: Mapping[str, Mapping], measured: Sequence[str | None]) -> tuple[Arm, ...]:
    """Return the arms with their colours: the declared ones in order, the baseline first, then others."""
    names = [name for name in measured if name is not None and name not in declared]
    roles = {**{name: (arm or {}).get("role") for name, arm in declared.items()}}
    roles.update(dict.fromkeys(names))
    unnamed = None in measured
    if unnamed and len(roles) == 1:
        return (Arm(next(iter(roles)), False, COLOURS[0], None),)
    ordered = sorted(roles, key=lambda name: roles[name] != "baseline")
    # the baseline is told by its role; a run without one (a single training) has candidates' colours
    others = [name for name in ordered if roles[name] != "baseline"]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(others)}
    arms = [
        Arm(name, name not in colours, colours.get(name, BASELINE_COLOUR), name) for name in ordered
    ]
    return (*arms, Arm("this run", False, COLOURS[0], None)) if unnamed else tuple(arms)


def mean_over_seeds(curves: Iterable[Curve]) -> Curve:
    """Return the mean at the steps that every curve has; not finite where one of them is not.

    Example:
        >>> mean_over_seeds([{0: 4.0, 10: 2.0}, {0: 3.0, 10: 1.0, 20: 0.5}])
        {0: 3.5, 10: 1.5}
    """
    curves = list(curves)
    if not curves:
        return {}
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    return {step: sum(curve[step] for curve in curves) / len(curves) for step in common}


def last(curve: Curve) -> tuple[int, float] | None:
    """Return the last step and its value; None for an empty curve."""
    return (max(curve), curve[max(curve)]) if curve else None


def lowest(curve: Curve) -> tuple[int, float] | None:
    """Return the step of the lowest finite value and the value; None where none is finite."""
    finite = [(value, step) for step, value in curve.items() if known(value)]
    return min(finite)[::-1] if finite else None


def at(curve: Curve, step: int) -> float | None:
    """Return the value at ``step``, linear between neighbours; None outside the curve.

    Example:
        >>> at({0: 1.0, 10: 3.0}, 5)
        2.0
    """
    if step in curve or not curve:
        return curve.get(step)
    before = max((s for s in curve if s < step), default=None)
    after = min((s for s in curve if s > step), default=None)
    if before is None or after is None:
        return None
    return curve[before] + (curve[after] - curve[before]) * (step - before) / (after - before)


def thinned(steps: Iterable[int], limit: int) -> list[int]:
    """Return at most ``limit`` of ``steps``, evenly, first and last included.

    Example:
        >>> thinned(range(0, 101, 10), 3)
        [0, 50, 100]
    """
    steps = sorted(steps)
    if len(steps) <= limit:
        return steps
    return [steps[round(i * (len(steps) - 1) / (limit - 1))] for i in range(limit)]
