"""Rules, and predicting every cell by a rule that was fitted without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from triplepoint.errors import StatisticsError, unknown_name
from triplepoint.evidence.cells import BenchmarkCell, Endpoint

By = Literal["group", "scale", "op", "corpus"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a rule says of a cell.

    Raises:
        StatisticsError: If a probability is not inside (0, 1).
    """

    p: Mapping[Endpoint, float]
    """P(candidate ends lower), inside (0, 1)."""
    answered: Mapping[Endpoint, bool]
    """Whether it commits itself; else it is undecided."""
    says: Mapping[Endpoint, bool] | None = None
    """Whether its answer is the candidate; None where that is p > 1/2. A rule that cuts for equal rights of both
    outcomes may answer the rarer one below 1/2."""

    def __post_init__(self):
        for endpoint, p in self.p.items():
            if not 0 < p < 1:
                raise StatisticsError(
                    f"A prediction's probability lies inside (0, 1), got {p} at {endpoint}.\n"
                    "Cap it: see triplepoint.statistics.probability_cap."
                )

    def candidate(self, endpoint: Endpoint) -> bool:
        """Return whether the answer is the candidate, given or not."""
        return self.p[endpoint] > 0.5 if self.says is None else self.says[endpoint]


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
    """With its truth."""
    prediction: Prediction
    fold: str


KEYS: Mapping[By, Callable[[BenchmarkCell], str]] = {
    "group": lambda cell: cell.setting.group,
    "scale": lambda cell: cell.setting.scale,
    # every preset of an op: what holds of one tells of the others
    "op": lambda cell: cell.op.partition(":")[0],
    "corpus": lambda cell: cell.setting.corpus,
}
"""What cells of one fold have in common."""


def held_out(rule: Rule, cells: Sequence[BenchmarkCell], *, look: int, by: By) -> list[Held]:
    """Predict every cell whose truth is known by a rule fitted without its fold.

    The rule is asked with ``cell.seen(look)``: no truth, and nothing of either arm after the look. Cells of a group
    share their baseline's runs. Folds by group, scale or corpus keep them together; by op they do not: the finished
    baseline of a held-out cell is among the cells that are fitted on, so that fold tests a new op alone.

    Args:
        rule: To test.
        cells: Those of which an arm diverged have no truth, and take no part.
        look: Step up to which the rule may see.
        by: What the cells of a fold have in common; an op's fold has all its presets.

    Returns:
        One entry per cell with a truth, fold by fold in the order of their names.

    Raises:
        StatisticsError: If all cells are in one fold, which leaves none to fit on.
        UnknownNameError: If there is no such ``by``.
    """
    if by not in KEYS:
        raise unknown_name("way to hold out", str(by), KEYS)
    known = [cell for cell in cells if cell.truth is not None]
    folds = sorted({KEYS[by](cell) for cell in known})
    if len(folds) < 2:
        raise StatisticsError(
            f"Holding out by {by} needs two folds at least, got {len(folds)} of {len(known)} cells"
            f"{f' ({folds[0]})' if folds else ''}: none is left to fit on.\n"
            f"Add cells of another {by}, or hold out by something else."
        )
    held = []
    for fold in folds:
        fitted = rule.fit([cell for cell in known if KEYS[by](cell) != fold], look)
        held += [
            Held(cell=cell, prediction=fitted.predict(cell.seen(look)), fold=fold)
            for cell in known if KEYS[by](cell) == fold
        ]  # fmt: skip
    return held
