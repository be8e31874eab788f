"""The rule of a screen: laws fitted on finished pairs, a Monte Carlo forecast, a temperature and a threshold.

Everything that is fitted comes out of :meth:`LatenessRule.fit`, so that leaving cells out of it leaves them out of
everything: the laws on all given cells, temperature and threshold on forecasts of cells whose group was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from triplepoint.evidence import (
    ENDPOINTS,
    BenchmarkCell,
    Endpoint,
    Prediction,
    Setting,
    loosest_threshold,
)
from triplepoint.recipes import Recipe
from triplepoint.screening.lateness import Outlook, outlook, wins
from triplepoint.screening.latents import Laws, Pair, fit_laws
from triplepoint.screening.plans import TIE_MARGIN
from triplepoint.screening.readings import Reading, outcome, read
from triplepoint.statistics import probability_cap, temperature

INNER_FOLDS = 5
WRONG = 0.1
"""Most wrong answers per plan asked that the threshold allows (conformal risk control)."""
SURE = 1e-9
"""A probability is never nearer to 0 or 1."""
LEAST_SURE = 0.7
"""Least probability of any answer, however few wrong ones the benchmark's cells would give below it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the rule says of one cell."""

    outlook: Outlook | None
    """Both arms at the planned end, mean over seeds; None where no seed could be read."""
    p: Mapping[Endpoint, float]
    """P(candidate ends lower), tempered and capped."""
    answered: Mapping[Endpoint, bool]
    why_not: str | None
    """Why it does not commit itself at any endpoint, where the reason is the state of an arm."""
    readings: tuple[Reading, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedRule:
    """The rule at one look."""

    look: int
    laws: Laws
    temperatures: Mapping[Endpoint, float]
    """Factors of the logit."""
    thresholds: Mapping[Endpoint, float]
    """Least max(p, 1 - p) of an answer."""
    caps: Mapping[Endpoint, float]
    """Largest probability that is said."""

    def predict(self, seen: BenchmarkCell) -> Prediction:
        """Predict a cell from its beginning."""
        found = self.forecast(seen)
        return Prediction(p=found.p, answered=found.answered)

    def forecast(self, seen: BenchmarkCell, *, margin: float = TIE_MARGIN) -> Forecast:
        """Predict a cell, and keep what the prediction was made of.

        Args:
            seen: Both arms' beginning, and the plan.
            margin: Share of the baseline's loss within which arms are equal; temperature and threshold are fitted at 0.5 %.
        """
        readings = [r for r in _readings(seen) if r is not None]
        if not readings:
            half: dict[Endpoint, float] = dict.fromkeys(ENDPOINTS, 0.5)
            return Forecast(
                outlook=None, p=half, answered=dict.fromkeys(ENDPOINTS, False), readings=(),
                why_not="the candidate has not come to a train loss that the baseline had",
            )  # fmt: skip
        ahead = mean_outlook(readings, self.laws, seen.setting)
        raw = {e: wins(ahead.difference(e), margin) for e in ENDPOINTS}
        told = {e: tempered(raw[e], self.temperatures[e]) for e in ENDPOINTS}
        return Forecast(
            outlook=ahead,
            p={e: capped(told[e], self.caps[e]) for e in ENDPOINTS},
            answered={e: self._answers(e, told[e]) for e in ENDPOINTS},
            readings=tuple(readings),
            why_not=None,
        )

    def _answers(self, endpoint: Endpoint, told: float) -> bool:
        """Return whether a probability is an answer: never where too few were tested to say as much."""
        return self.caps[endpoint] >= LEAST_SURE and max(told, 1 - told) >= self.thresholds[endpoint]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LatenessRule:
    """The candidate is a delayed baseline, spared a share of its over-fitting."""

    name: str = "lateness"
    trains: bool = False

    def fit(self, cells: Sequence[BenchmarkCell], look: int) -> FittedRule:
        """Fit on cells whose truth is known.

        Args:
            cells: Those of which an arm diverged are left out.
            look: Step of the screen.
        """
        known = [_known(cell, look) for cell in cells if cell.truth is not None]
        raw = _inner(known)
        temperatures, thresholds, caps = {}, {}, {}
        for endpoint in ENDPOINTS:
            clear = [(k, p[endpoint]) for k, p in raw if k.won(endpoint) is not None]
            labels = np.array([k.won(endpoint) for k, _ in clear], bool)
            kappa = temperature(np.array([p for _, p in clear]), labels) if len(clear) else 1.0
            told = np.array([tempered(p, kappa) for _, p in clear])
            temperatures[endpoint] = kappa
            thresholds[endpoint] = max(LEAST_SURE, loosest_threshold(told, labels, error=WRONG))
            answered = np.maximum(told, 1 - told) >= thresholds[endpoint]
            caps[endpoint] = probability_cap(int(answered.sum()))
        return FittedRule(
            look=look, laws=fit_laws([pair for k in known for pair in k.pairs]), temperatures=temperatures,
            thresholds=thresholds, caps=caps,
        )  # fmt: skip


def mean_outlook(readings: Sequence[Reading], laws: Laws, setting: Setting) -> Outlook:
    """Forecast each seed and return the mean over seeds."""
    ends = [s1_end(setting, lr) for lr in (setting.lr, setting.candidate_lr)]
    return Outlook.mean(
        [outlook(r, laws, s_end=ends[0], s_end_candidate=ends[1]) for r in readings]
    )


def s1_end(setting: Setting, lr: float) -> float:
    """Return the clock at the planned end."""
    plan = Recipe(
        steps=setting.steps, lr=lr, warmup=setting.warmup, schedule="constant" if setting.schedule == "constant" else "cosine"
    )  # fmt: skip
    return plan.s1_at(setting.steps)


def tempered(p: float, kappa: float) -> float:
    """Return the probability whose logit is ``kappa`` times as large.

    Example:
        >>> round(tempered(0.8, 2.0), 4)
        0.9412
    """
    return min(max(1 / (1 + ((1 - p) / p) ** kappa), SURE), 1 - SURE)


def capped(p: float, cap: float) -> float:
    """Return ``p`` within [1 - cap, cap]."""
    return min(max(p, 1 - cap), cap)


def _readings(cell: BenchmarkCell) -> list[Reading | None]:
    setting = cell.setting
    rate = setting.tokens_per_step / setting.unique_tokens
    return [
        read(b, c, plateau=setting.plateau, epochs_per_step=rate, regularised=cell.regularised)
        for b, c in zip(cell.baseline_runs, cell.candidate_runs, strict=True)
    ]


@dataclasses.dataclass(frozen=True, eq=False)
class _Known:
    """A cell with its truth, read at a look."""

    cell: BenchmarkCell
    pairs: tuple[Pair, ...]

    def won(self, endpoint: Endpoint) -> bool | None:
        truth = self.cell.truth[endpoint]
        return truth.winner == "candidate" if truth.clear else None

    def raw(self, laws: Laws) -> dict[Endpoint, float]:
        if not self.pairs:
            return dict.fromkeys(ENDPOINTS, 0.5)
        ahead = mean_outlook([r for r, _ in self.pairs], laws, self.cell.setting)
        return {e: wins(ahead.difference(e), TIE_MARGIN) for e in ENDPOINTS}


@cache
def _known(cell: BenchmarkCell, look: int) -> _Known:
    """Read a cell; kept, since every fold reads the same ones."""
    runs = zip(_readings(cell.seen(look)), cell.baseline_runs, cell.candidate_runs, strict=True)
    return _Known(cell, tuple((r, outcome(r, b, c)) for r, b, c in runs if r is not None))


def _inner(known: Sequence[_Known]) -> list[tuple[_Known, dict[Endpoint, float]]]:
    """Forecast every cell by laws fitted without its group; groups are dealt into a few folds."""
    groups = sorted({k.cell.setting.group for k in known})
    fold = {group: number % INNER_FOLDS for number, group in enumerate(groups)}
    told = []
    for number in range(min(INNER_FOLDS, len(groups))):
        others = [k for k in known if fold[k.cell.setting.group] != number]
        laws = fit_laws([pair for k in others for pair in k.pairs])
        told += [(k, k.raw(laws)) for k in known if fold[k.cell.setting.group] == number]
    return told
