"""What the statistics ask of their input."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float

from triplepoint.errors import StatisticsError

Numbers = Sequence[float] | np.ndarray
Labels = Sequence[bool] | Sequence[int] | np.ndarray


def sequence(name: str, values: Numbers) -> Float[np.ndarray, " sample"]:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise StatisticsError(
            f"{name} needs one sequence of numbers, got shape {list(array.shape)}.\n"
            "Flatten it, or call once per row."
        )
    need_finite(name, array)
    return array


def scores_and_labels(
    name: str, scores: Numbers, labels: Labels
) -> tuple[Float[np.ndarray, " cell"], Bool[np.ndarray, " cell"]]:
    s, y = sequence(name, scores), np.asarray(labels)
    if len(s) == 0 or y.shape != s.shape:
        raise StatisticsError(
            f"{name} needs as many labels as scores and at least one, got {y.size} labels for "
            f"{s.size} scores.\nPass one score and one label per cell."
        )
    if not np.isin(y, (0, 1)).all():
        raise StatisticsError(
            f"{name} needs labels True or False, got {sorted(set(y.tolist()))[:4]}.\n"
            "Turn outcomes into labels first, e.g. `delta < 0`."
        )
    return s, y.astype(bool)


def need_both_classes(name: str, y: Bool[np.ndarray, " cell"]) -> None:
    if y.all() or not y.any():
        raise StatisticsError(
            f"{name} is undefined: all {len(y)} labels are {bool(y[0])}.\n"
            "Add cells with the other outcome, or report the plain accuracy."
        )


def per_class(name: str, predictions: Labels, labels: Labels) -> list[tuple[int, int]]:
    """Return ``(right, n)`` of the True cells, then of the False ones."""
    given, y = scores_and_labels(name, np.asarray(predictions, dtype=float), labels)
    need_both_classes(name, y)
    right = (given > 0.5) == y
    return [(int(right[of].sum()), int(of.sum())) for of in (y, ~y)]


def seeds_by_windows(name: str, values: np.ndarray) -> Float[np.ndarray, "seed window"]:
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise StatisticsError(
            f"{name} needs an array [seed, window] with at least 2 windows, got shape "
            f"{list(array.shape)}.\nFor one seed pass `x[None, :]`."
        )
    need_finite(name, array)
    return array


def need_finite(name: str, array: np.ndarray) -> None:
    bad = int((~np.isfinite(array)).sum())
    if bad:
        raise StatisticsError(
            f"{name} needs finite numbers; {bad} of {array.size} are inf or nan.\n"
            "Compare at a step where both arms are finite, or report the run as diverged."
        )


def normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"A confidence level lies between 0 and 1, got {confidence}.\nTry 0.95, the default."
        )
    return NormalDist().inv_cdf((1 + confidence) / 2)
