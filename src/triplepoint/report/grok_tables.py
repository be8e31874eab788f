"""The tables of a grokking page: when thresholds were met, and the numbers at the first and last step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from triplepoint.records import Record
from triplepoint.report import formats as as_
from triplepoint.report.grok_axes import Run, curve_of
from triplepoint.report.series import Curve, Series, at, last

TIMES = {
    "T_mem": ("Memorised", "train_accuracy", 0.99),
    "T_grok_0.5": (f"Validation 50{as_.NBSP}%", "val_accuracy", 0.5),
    "T_grok_0.9": (f"Validation 90{as_.NBSP}%", "val_accuracy", 0.9),
    "T_grok_0.99": (f"Validation 99{as_.NBSP}%", "val_accuracy", 0.99),
}
"""Name in the manifest -> how the page calls it, and the metric and threshold that it is read from."""
COLUMNS = 4
"""Runs side by side in one table."""

NUMBERS = {
    "train_accuracy": "Training accuracy", "val_accuracy": "Validation accuracy",
    "refit_train_accuracy": "Training accuracy, head refitted",
    "refit_val_accuracy": "Validation accuracy, head refitted",
    "train_loss": "Training loss", "val_loss": "Validation loss",
    "zero_loss_share": "Samples with exactly zero loss", "slow_time": "Slow time", "seconds": "Process time, seconds",
    "complexity": "Complexity C", "norm_sq": "Squared norm of all parameters",
    "weight_norm_sq": "Squared norm", "head_distance": "Head's distance from its optimum",
    "unit_imbalance": "Imbalance of the layers, mean over units",
    "cosine_tangent": "Cosine with the tangent drift", "cosine_kink": "Cosine, kinks included",
    "cosine_weights": "Cosine with the weights (null)", "speed_ratio": "Speed ratio",
    "validity": "eps, trusted below 0.02", "sigma_min": "Smallest singular value of J",
    "tangent_share_update": "Tangent share of the update",
    "tangent_share_gradient": "Tangent share of the loss gradient", "tau": "tau",
    "stuck_share": "Stuck pre-activations",
    "effective_frequencies": "Effective number of frequencies",
    "fourier_norm_cv": "Variation of the Fourier norms",
    "fourier_cosine_mean": "Mean cosine between features",
    "unit_concentration": "Concentration of a unit on its best frequency",
    "fourier_gini": "Gini coefficient of the power",
    "off_manifold_distance": "Distance from the zero-loss manifold",
    "restricted_loss": "Loss with only the key frequencies left",
    "excluded_loss": "Loss with the key frequencies taken out",
}  # fmt: skip
"""Metric -> how the table calls it, in its order."""
SHARES = {
    "train_accuracy", "val_accuracy", "refit_train_accuracy", "refit_val_accuracy", "zero_loss_share",
    "tangent_share_update", "tangent_share_gradient", "tau", "stuck_share", "unit_concentration",
}  # fmt: skip
UNLISTED = {"T_mem", "T_grok", "fourier_power"}
"""Have a place of their own on the page."""


class Time(NamedTuple):
    """When a threshold was met, or until when it was not."""

    step: int | None = None
    censored_at: int | None = None
    slow_time: float | None = None
    seconds: float | None = None


Times = Mapping[str, Time]


def times_of(
    manifest: Mapping, records: Iterable[Record], series: Series, runs: Sequence[Run]
) -> dict[Run, Times]:
    """Return the times of each run: from the manifest where there is one run, else from the records.

    A run whose records hold no such time, and no value that meets the threshold, is censored at its last value.
    """
    written: dict[tuple, float] = {}
    for row in records:
        if row.metric in ("T_mem", "T_grok") and as_.known(row.value):
            name = "T_mem" if row.metric == "T_mem" else f"T_grok_{row.site}"
            written[row.arm, row.seed, name] = row.value
    declared = manifest.get("times") or {}
    if len(runs) == 1 and declared:
        known = {name: declared[name] for name in TIMES if declared.get(name)}
        return {runs[0]: {n: Time(**{k: t.get(k) for k in Time._fields}) for n, t in known.items()}}
    return {run: _measured_times(series, run, written) for run in runs}


def _measured_times(series: Series, run: Run, written: Mapping[tuple, float]) -> Times:
    times = {}
    for name, (_, metric, threshold) in TIMES.items():
        step = written.get((run.arm.key, run.seed, name))
        curve = curve_of(series, run, metric)
        if step is not None:
            clock = at(curve_of(series, run, "slow_time"), int(step))
            times[name] = Time(step=int(step), slow_time=clock)
        elif curve and not any(value >= threshold for value in curve.values()):
            times[name] = Time(censored_at=max(curve))
    return times


def time_rows(times: Mapping[Run, Times]) -> list[dict]:
    """Return one row per run: its label and a (main, small print) cell for each threshold."""
    return [
        {"run": run, "cells": [_time_cell(of_run.get(name)) for name in TIMES]}
        for run, of_run in times.items()
        if of_run
    ]


def _time_cell(time: Time | None) -> tuple[str, str]:
    if time is None or (time.step is None and time.censored_at is None):
        return as_.DASH, ""
    if time.step is None:
        return f"> {as_.count(time.censored_at)}", "steps: not met by the end"
    parts = [slow_time(time.slow_time)] if as_.known(time.slow_time) else []
    parts += [as_.duration(time.seconds)] if as_.known(time.seconds) else []
    return as_.count(time.step), "\n".join(["steps", *parts])


def slow_time(value: float) -> str:
    """Format a slow time, which has no unit."""
    return f"slow time t = {value:.3g}"


def number_groups(series: Series, runs: Sequence[Run]) -> list[tuple[Sequence[Run], list[dict]]]:
    """Return (runs, rows) of each table of numbers: the last value and, in small print, the first."""
    size = -(-len(runs) // -(-len(runs) // COLUMNS)) if runs else 1
    groups = [runs[i : i + size] for i in range(0, len(runs), size)]
    return [(group, rows) for group in groups if (rows := _number_rows(series, group))]


def _number_rows(series: Series, runs: Sequence[Run]) -> list[dict]:
    keys = {run.arm.key for run in runs}
    whole = {metric for metric, key in series.whole if key in keys} - UNLISTED
    by_site = {metric for metric, key in series.by_site if key in keys} - UNLISTED - whole
    order = {metric: place for place, metric in enumerate(NUMBERS)}
    rows = []
    for metric in sorted(whole | by_site, key=lambda m: (order.get(m, len(order)), m)):
        sites = [None] if metric in whole else list(
            dict.fromkeys(s for key in keys for s in series.by_site.get((metric, key), ()))
        )  # fmt: skip
        for site in sites:
            cells = [_number_cell(metric, curve_of(series, run, metric, site)) for run in runs]
            if any(main != as_.DASH for main, _ in cells):
                rows.append({"label": NUMBERS.get(metric, metric), "site": site, "cells": cells})
    return rows


def _number_cell(metric: str, curve: Curve) -> tuple[str, str]:
    end = last(curve)
    if end is None:
        return as_.DASH, ""
    first = min(curve)
    before = f"{number(metric, curve[first])} at step {as_.count(first)}" if first != end[0] else ""
    return number(metric, end[1]), before


def number(metric: str, value: float | None) -> str:
    """Format a value of a metric: percent for shares, else four digits."""
    if metric in SHARES:
        return as_.share(value)
    if not as_.known(value):
        return as_.DASH if value is None else "not finite"
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("-", as_.MINUS)
    return as_.count(value) if abs(value) >= 1e4 else f"{value:.4g}".replace("-", as_.MINUS)
