"""What a beginning does not tell, as laws fitted on pairs whose end is known.

Each law is a ridge regression of one quantity of the curves on a few features of the beginning, with the spread of what is
left. Who won is never looked at.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from triplepoint.screening.readings import Outcome, Reading

Draws = Float[np.ndarray, " draw"]
Pair = tuple[Reading, Outcome]

RIDGE = 1.0
"""Strength, in pairs, with which a coefficient is drawn to its prior."""
PRIOR_PAIRS = 4.0
"""Pairs that the prior's spread counts for."""
USUAL_EXPONENT = 0.12
"""Of a train loss in the clock: features are centred, so that a prior's constant means something."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """One of the quantities a forecast needs."""

    features: Callable[[Reading], list[float]]
    """What it is regressed on, besides a constant."""
    became: Callable[[Reading, Outcome], float | None]
    """What it turned out to be; None where that cannot be told."""
    weight: Callable[[Reading, Outcome], float] = lambda reading, end: 1.0
    """How well it could be told, in [0, 1]."""
    prior: tuple[float, ...]
    """Coefficients without any pair, the constant first."""
    spread: float
    """Without any pair."""
    of_baseline: bool = False
    """Whether it is the baseline's alone, and so counts once for all its candidates."""


def _catching_up(on_plateau: bool) -> Callable[[Reading, Outcome], float | None]:
    return lambda reading, end: end.catching_up if reading.on_plateau == on_plateau else None


def _lateness(reading: Reading) -> list[float]:
    return [math.log(reading.speed_ratio), float(reading.regularised)]


QUANTITIES: Mapping[str, Quantity] = {
    # how much steeper the train loss falls in the clock after the look, as a logarithm: annealing, and repetition
    "acceleration": Quantity(
        features=lambda r: [r.slope, math.log(r.exponent / USUAL_EXPONENT)],
        became=lambda r, end: end.acceleration, prior=(1.0, 0.0, 0.0), spread=0.5, of_baseline=True,
    ),
    # q, per nat
    "curvature": Quantity(
        features=lambda r: [math.log(max(r.epochs, 0.3)), r.slope],
        became=lambda r, end: end.curvature, prior=(0.5, 0.0, 0.0), spread=0.5, of_baseline=True,
    ),
    # dln r/dln s of a candidate that learns, and of one that is still on the plateau
    "catching_up": Quantity(
        features=_lateness, became=_catching_up(on_plateau=False), prior=(0.0, 0.0, 0.0), spread=0.5,
    ),
    "escaping": Quantity(
        features=_lateness, became=_catching_up(on_plateau=True), prior=(0.0, 0.0, 0.0), spread=1.0,
    ),
    # the share of the baseline's gap that the candidate is spared
    "relief": Quantity(
        features=lambda r: [r.relief, float(r.regularised)], became=lambda r, end: end.relief, weight=lambda r, end: end.relief_weight,
        prior=(0.0, 1.0, 0.0), spread=0.2,
    ),
    # c where there is no gap to be spared
    "offset": Quantity(
        features=lambda r: [], became=lambda r, end: end.offset_without_gap, prior=(0.0,), spread=0.03,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
    """A quantity given its features: normal around a line."""

    coefficients: tuple[float, ...]
    """Constant first."""
    spread: float

    def expected(self, features: Sequence[float]) -> float:
        """Return the middle."""
        return self.coefficients[0] + float(np.dot(self.coefficients[1:], features))

    def draw(self, features: Sequence[float], noise: Draws) -> Draws:
        """Return draws, from standard normal ones."""
        return self.expected(features) + self.spread * noise


Laws = Mapping[str, Law]


def fit_laws(pairs: Sequence[Pair]) -> dict[str, Law]:
    """Fit every quantity's law on pairs whose end is known; without any, the priors.

    Example:
        >>> fit_laws([])["curvature"]
        Law(coefficients=(0.5, 0.0, 0.0), spread=0.5)
    """
    baselines = {(r.slope, float(r.val[-1])): (r, end) for r, end in reversed(pairs)}
    return {
        name: _fit(quantity, list(baselines.values()) if quantity.of_baseline else pairs)
        for name, quantity in QUANTITIES.items()
    }


def _fit(quantity: Quantity, pairs: Sequence[Pair]) -> Law:
    told = [
        (quantity.features(r), value, quantity.weight(r, end))
        for r, end in pairs
        if (value := quantity.became(r, end)) is not None
    ]
    if not told:
        return Law(coefficients=quantity.prior, spread=quantity.spread)
    x = np.array([[1.0, *features] for features, _, _ in told])
    y, weight = np.array([v for _, v, _ in told]), np.array([w for _, _, w in told])
    coefficients, left = _huber(x, y, weight, np.array(quantity.prior), quantity.spread)
    variance = (weight @ left**2 + PRIOR_PAIRS * quantity.spread**2) / (weight.sum() + PRIOR_PAIRS)
    return Law(
        coefficients=tuple(float(c) for c in coefficients), spread=float(math.sqrt(variance))
    )


def _huber(
    x: Float[np.ndarray, "pair feature"],
    y: Float[np.ndarray, " pair"],
    weight: Float[np.ndarray, " pair"],
    prior: Float[np.ndarray, " feature"],
    spread: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ridge coefficients around the prior's, outliers counting less, and the residuals, clipped at 3 scales.

    A pair that left its plateau late is neither the line nor the spread of the others.
    """
    coefficients, scale = prior, spread
    for _ in range(10):
        left = y - x @ coefficients
        each = weight * np.minimum(1.0, 1.5 * scale / np.maximum(np.abs(left), 1e-12))
        gram = (x * each[:, None]).T @ x + RIDGE * np.eye(len(prior))
        coefficients = prior + np.linalg.solve(gram, (x * each[:, None]).T @ (y - x @ prior))
        scale = max(_median(np.abs(y - x @ coefficients), weight) * 1.4826, 1e-6)
    left = y - x @ coefficients
    return coefficients, np.clip(left, -3 * scale, 3 * scale)


def _median(values: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / max(weight.sum(), 1e-12)
    return float(values[order][min(int(np.searchsorted(share, 0.5)), len(values) - 1)])
