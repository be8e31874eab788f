"""What the rule "replace iff saturation > 0.43" was worth on the paper's cells, and its linear fit."""

from __future__ import annotations

import functools
import math

import numpy as np

from studies.published_numbers import values as v
from studies.published_numbers.values import Values
from triplepoint.published import Cell, load_cells, load_printed, published_rules, record
from triplepoint.published.rules import PUBLISHED_SATURATION
from triplepoint.statistics import auc as area
from triplepoint.statistics import best_threshold, leave_one_group_out, wilson

MILLIONS = {"S1": 64, "S2": 124, "S3": 354, "S4": 1310}
"""Parameters as the linear fit took them: the labels, in millions."""


def _scores(cells: tuple[Cell, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return saturation, and whether DyT was better at the fixed endpoint."""
    return np.array([c.mean("saturation_2") for c in cells]), np.array([c.helps for c in cells])


def _table(predictions: np.ndarray, labels: np.ndarray) -> dict[str, int]:
    return {
        "tp": int((predictions & labels).sum()),
        "fn": int((~predictions & labels).sum()),
        "fp": int((predictions & ~labels).sum()),
        "tn": int((~predictions & ~labels).sum()),
    }


def _at_the_cut(groups: tuple[str, ...]) -> dict[str, int]:
    scores, labels = _scores(load_cells(*groups))
    return _table(scores > PUBLISHED_SATURATION, labels)


def _accuracy(table: dict[str, int]) -> float:
    return (table["tp"] + table["tn"]) / sum(table.values())


def _balanced(table: dict[str, int]) -> float:
    """Return the mean accuracy of the classes that are there."""
    classes = [(table["tp"], table["fn"]), (table["tn"], table["fp"])]
    there = [right / (right + wrong) for right, wrong in classes if right + wrong]
    return sum(there) / len(there)


def accuracy(values: Values, *groups: str) -> float:
    """Return the share of cells that the rule is right about."""
    return _accuracy(_at_the_cut(groups))


def right(values: Values, *groups: str) -> float:
    """Count the cells that the rule is right about."""
    table = _at_the_cut(groups)
    return table["tp"] + table["tn"]


def balanced(values: Values, *groups: str) -> float:
    """Return the mean of the rule's accuracies on helped and other cells."""
    return _balanced(_at_the_cut(groups))


def count(values: Values, entry: str, *groups: str) -> float:
    """Return one entry of the rule's confusion table: ``tp``, ``fn``, ``fp`` or ``tn``."""
    return _at_the_cut(groups)[entry]


def auc(values: Values, *groups: str) -> float:
    """Return the area under the ROC curve of saturation."""
    return area(*_scores(load_cells(*groups)))


def held_out(values: Values, wanted: str) -> float:
    """Return a pooled result with each scale held out in turn."""
    cells = load_cells("calibration")
    scores, labels = _scores(cells)
    fold = leave_one_group_out(scores, labels, [c.scale for c in cells])
    table = _table(fold.predictions, labels)
    low, high = wilson(fold.correct, fold.n)
    found = {"accuracy": _accuracy(table), "balanced": _balanced(table), "low": low, "high": high}
    return (found | table)[wanted]


@functools.cache
def _trained_elsewhere(tested: frozenset[str], trained: frozenset[str]) -> dict[str, float]:
    cells = load_cells("calibration", "stress")
    scores, labels = _scores(tuple(c for c in cells if c.scale in trained))
    threshold, training_accuracy = best_threshold(scores, labels)
    scores, labels = _scores(tuple(c for c in cells if c.scale in tested))
    table = _table(scores > threshold, labels)
    return {
        "threshold": threshold,
        "train_accuracy": training_accuracy,
        "test_accuracy": _accuracy(table),
        "test_balanced": _balanced(table),
    }


def fold(values: Values, scale: str, wanted: str) -> float:
    """Return a result of the fold that holds out ``scale``."""
    return _trained_elsewhere(frozenset({scale}), frozenset(MILLIONS) - {scale})[wanted]


def extrapolation(values: Values, wanted: str) -> float:
    """Return a result of the threshold from S1 and S2 on the larger scales."""
    return _trained_elsewhere(frozenset({"S3", "S4", "S5"}), frozenset({"S1", "S2"}))[wanted]


def linear_fit(values: Values, wanted: str, s2_10m: str) -> float:
    """Return a result of the paper's older fit: delta = a saturation + b log10 P + c, least squares.

    Its threshold is the middle between the least saturated cell that was helped and the most saturated of the
    others; a cell at or above it is called helped.

    Args:
        values: By name.
        wanted: ``saturation``, ``log10_params``, ``intercept``, ``r_squared``, ``threshold`` or ``accuracy``.
        s2_10m: The delta of S2/10M, per cent: 6.1 when the fit was made, -12.3 later.
    """
    cells = load_cells("calibration")
    delta = np.array(
        [float(s2_10m) if c.name == "S2/10M" else round(100 * c.delta_rel, 1) for c in cells]
    )
    saturation = np.array([v.mean(values, f"{c.name} dyt saturation") for c in cells])
    size = np.array([math.log10(1e6 * MILLIONS[c.scale]) for c in cells])
    x = np.stack([saturation, size, np.ones(len(cells))], axis=1)
    fitted = np.linalg.lstsq(x, delta)[0]
    rest = delta - x @ fitted
    helped = delta < 0
    threshold = (saturation[helped].min() + saturation[~helped].max()) / 2
    return {
        **dict(zip(("saturation", "log10_params", "intercept"), fitted.tolist(), strict=True)),
        "r_squared": float(1 - rest @ rest / ((delta - delta.mean()) @ (delta - delta.mean()))),
        "threshold": float(threshold),
        "accuracy": float(((saturation >= threshold) == helped).mean()),
    }[wanted]


def rule_record(values: Values, rule: str, field: str, *groups: str) -> float:
    """Return a field of a published rule's record on some cells: correct, auc, wilson_low."""
    (found,) = (r for r in published_rules() if r.name == rule)
    return getattr(record(found, cells=load_cells(*groups)), field)


def collapse_share(values: Values, wanted: str) -> float:
    """Return the share of the paper's six Llama style DyT runs on 118M tokens that collapsed, with Wilson's limits."""
    names = [f"Llama_{scale}/118M dyt loss" for scale in ("S1", "S2")]
    lost = int(sum(v.collapsed(values, name) for name in names))
    n = sum(len(values[name]) for name in names)
    low, high = wilson(lost, n)
    return {"share": lost / n, "low": low, "high": high}[wanted]


def significant(values: Values, tests: str) -> float:
    """Count the paper's paired tests with ``tests`` times p below 0.05."""
    rows = [row for row in load_printed() if row.quantity == "paired_p"]
    return sum(float(tests) * v.paired_p(values, *row.of) < 0.05 for row in rows)
