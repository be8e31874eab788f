"""What a verdict adds to the records of its arms: differences, speed and offset, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from triplepoint.records import Record
from triplepoint.screening.arms import Arms
from triplepoint.screening.clocks import delay
from triplepoint.screening.verdicts import Verdict
from triplepoint.statistics import paired_relative_interval

VERDICT_DEFINITIONS = {
    "delta_rel": {
        "definition": (
            "(candidate - baseline) / baseline of the validation loss; positive = worse. The nominal 95 % interval "
            "resamples the fixed windows jointly and the seeds"
        ),
        "unit": "fraction",
        "source": "triplepoint; pigeonhole bootstrap, Owen (2007)",
    },
    "delta_rel_ema": {
        "definition": "delta_rel of the averaged weights of both arms",
        "unit": "fraction",
        "source": "triplepoint",
    },
    "speed_ratio": {
        "definition": (
            "S1 at which the baseline had the candidate's train loss, over the candidate's S1; below 1 is slower. "
            "On the plateau it says when the arm will leave it, not how fast it is"
        ),
        "unit": "1",
        "source": "triplepoint",
    },
    "offset": {
        "definition": "candidate's validation loss minus the baseline's at equal train loss",
        "unit": "nats/token",
        "source": "triplepoint",
    },
}
"""Definition, unit and source of each."""


def verdict_records(
    verdict: Verdict, baseline: Arms, candidates: Sequence[Arms]
) -> Iterator[Record]:
    """Yield the comparisons at both endpoints, and along the calibration where no arm diverged."""
    step = verdict.plan["calibration_steps"]
    for judged, arm in zip(verdict.candidates, candidates, strict=True):
        for endpoint, found in judged.endpoints.items():
            if found is not None and endpoint != "matched_train_loss":
                yield _record(
                    "delta_rel",
                    (found.delta_rel, *found.interval),
                    step,
                    arm,
                    endpoint=endpoint,
                    n=len(found.by_seed),
                )
        if judged.endpoints["fixed_step"] is not None:
            yield from _along(baseline, arm)


def _along(baseline: Arms, arm: Arms) -> Iterator[Record]:
    ours, theirs = arm.losses("val_loss"), baseline.losses("val_loss")
    yield from _differences("delta_rel", arm.steps, ours, theirs, arm)
    steps, averaged = arm.averaged()
    if steps:
        yield from _differences("delta_rel_ema", steps, averaged, baseline.averaged()[1], arm)
    train_b, train_c = baseline.curve("train_loss"), arm.curve("train_loss")
    val_b, val_c = baseline.curve("val_loss"), arm.curve("val_loss")
    s_b, s_c = baseline.clock(), arm.clock()
    for i in range(2, len(arm.steps) + 1):
        found = delay(s_b[:i], train_b[:i], val_b[:i], train_c[:i], val_c[:i], s_c[:i])
        for metric, value in zip(("speed_ratio", "offset"), found, strict=True):
            if value is not None:
                yield _record(metric, (value,), arm.steps[i - 1], arm)


def _differences(
    metric: str, steps: Sequence[int], ours: np.ndarray, theirs: np.ndarray, arm: Arms
) -> Iterator[Record]:
    for i, step in enumerate(steps):
        yield _record(
            metric, paired_relative_interval(ours[:, i], theirs[:, i]), step, arm, n=len(ours)
        )


def _record(
    metric: str,
    value: Iterable[float],
    step: int,
    arm: Arms,
    *,
    endpoint: str | None = None,
    n: int | None = None,
) -> Record:
    middle, low, high = (*value, None, None)[:3]
    unit = VERDICT_DEFINITIONS[metric]["unit"]
    return Record(
        metric=metric,
        value=middle,
        low=low,
        high=high,
        n=n,
        unit=unit,
        endpoint=endpoint,
        step=step,
        arm=arm.name,
    )
