"""Rules, and predicting every cell by a rule that was fitted without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from triplepoint.errors import StatisticsError
from triplepoint.evidence.cells import BenchmarkCell, Endpoint

By = Literal["group", "scale", "op", "corpus"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a rule says of a cell."""

    p: Mapping[Endpoint, float]
    """P(candidate ends lower), inside (0, 1)."""
    answered: Mapping[Endpoint, bool]
    """Whether it commits itself; else it is undecided."""


class Fitted(Protocol):
    """A rule with its constants."""

    def predict(self, seen: BenchmarkCell) -> Prediction:
        """Predict a cell from its beginning; its truth is None."""


class Rule(Protocol):
    """A way to decide."""

    name: str
    trains: bool
    """Whether it needs more training than the calibration of both arms."""

    def fit(self, cells: Sequence[BenchmarkCell], look: int) -> Fitted:
        """Fit on cells whose truth is known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """A cell, predicted by a rule that was fitted without its fold."""

    cell: BenchmarkCell
    prediction: Prediction
    fold: str


KEYS: Mapping[By, Callable[[BenchmarkCell], str]] = {
    "group": lambda cell: cell.setting.group,
    "scale": lambda cell: cell.setting.scale,
    "op": lambda cell: cell.op.partition(":")[0],
    "corpus": lambda cell: cell.setting.corpus,
}


def held_out(rule: Rule, cells: Sequence[BenchmarkCell], *, look: int, by: By) -> list[Held]:
    """Predict every cell whose truth is known by a rule fitted without its fold.

    Args:
        rule: To test.
        cells: Those of which an arm diverged are left out.
        look: Step up to which the rule may see.
        by: What a fold has in common.

    Raises:
        StatisticsError: If all cells are in one fold.
    """
    known = [cell for cell in cells if cell.truth is not None]
    folds = sorted({KEYS[by](cell) for cell in known})
    if len(folds) < 2:
        raise StatisticsError(
            f"Holding out by {by} needs two folds at least, got {len(folds)}.\nTry another --by, or more cells."
        )
    held = []
    for fold in folds:
        fitted = rule.fit([cell for cell in known if KEYS[by](cell) != fold], look)
        held += [
            Held(cell=cell, prediction=fitted.predict(cell.seen(look)), fold=fold)
            for cell in known if KEYS[by](cell) == fold
        ]  # fmt: skip
    return held
