"""A candidate and its baseline with the same seed and all other axes, at three endpoints.

Axes: ``evaluation window``; a *row* is one loss per window at an endpoint, nats per token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from triplepoint.maps.results import CellResult
from triplepoint.statistics import isotonic, paired_relative_interval, t_interval

Endpoint = Literal["fixed_step", "best_checkpoint", "matched_train_loss"]
ENDPOINTS: tuple[Endpoint, ...] = ("fixed_step", "best_checkpoint", "matched_train_loss")
"""The last step; each arm's own best evaluation; equal train loss. The last is never a criterion."""

Row = Float[np.ndarray, " window"]


class Difference(NamedTuple):
    """``delta_rel`` = (candidate - baseline) / baseline, a fraction; positive = worse."""

    value: float
    bootstrap: tuple[float, float]
    """95 %, windows and seeds resampled; with one seed the windows only."""
    t: tuple[float, float] | None
    """95 %, Student's over the seeds' own differences; None with one seed."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two finished cells that differ in what the map compares only."""

    candidate: CellResult
    baseline: CellResult

    @property
    def usable(self) -> bool:
        """Whether neither diverged."""
        return self.candidate.usable and self.baseline.usable

    def rows(self, endpoint: Endpoint) -> tuple[Row, Row] | None:
        """Return candidate's and baseline's losses per window at an endpoint; None where it was not reached."""
        if not self.usable:
            return None
        if endpoint == "matched_train_loss":
            return matched_rows(self.candidate, self.baseline)
        return endpoint_row(self.candidate, endpoint), endpoint_row(self.baseline, endpoint)


def endpoint_row(result: CellResult, endpoint: Endpoint) -> Row:
    """Return a cell's validation losses per window at one of its own endpoints."""
    index = -1 if endpoint == "fixed_step" else int(result.val.mean(axis=1).argmin())
    return result.val[index]


def matched_rows(candidate: CellResult, baseline: CellResult) -> tuple[Row, Row] | None:
    """Return validation losses per window where both arms had the same train loss.

    The level is the lowest train loss that both reached: the end of the arm that is behind. Train curves are
    made monotone first; between two evaluations the losses are interpolated in the train loss.

    Returns:
        Candidate's and baseline's row; None where one arm starts below the other's end, so that the level was
        never measured in both.
    """
    falling = [isotonic(arm.train.mean(axis=1), increasing=False) for arm in (candidate, baseline)]
    level = max(curve[-1] for curve in falling)
    if any(curve[0] < level for curve in falling):
        return None
    rows = [
        _row_at(arm.val, curve, level)
        for arm, curve in zip((candidate, baseline), falling, strict=True)
    ]
    return rows[0], rows[1]


def _row_at(
    val: Float[np.ndarray, "evaluation window"],
    falling: Float[np.ndarray, " evaluation"],
    level: float,
) -> Row:
    if falling[-1] >= level:
        return val[-1]
    # the first place at the level; reversed because np.interp wants a rising abscissa
    place = float(np.interp(level, falling[::-1], np.arange(len(falling))[::-1]))
    before = int(place)
    after = min(before + 1, len(val) - 1)
    return val[before] + (place - before) * (val[after] - val[before])


def difference(pairs: Sequence[Pair], endpoint: Endpoint) -> Difference | None:
    """Return the relative difference over the seeds of one comparison, with both intervals.

    Args:
        pairs: One per seed.
        endpoint: Which.

    Returns:
        None where no seed has that endpoint in both arms. Seeds that have not are left out.
    """
    rows = [row for pair in pairs if (row := pair.rows(endpoint)) is not None]
    if not rows:
        return None
    ours, theirs = (np.stack(arm) for arm in zip(*rows, strict=True))
    value, low, high = paired_relative_interval(ours, theirs)
    each = (ours.mean(axis=1) - theirs.mean(axis=1)) / theirs.mean(axis=1)
    return Difference(value, (low, high), t_interval(each)[1:] if len(each) > 1 else None)
