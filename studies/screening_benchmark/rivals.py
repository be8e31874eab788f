"""What a rule has to beat: answers from the plan alone, or from one number at the look.

Every one always answers, and is fitted on the same folds. One that cuts a score says the candidate above the cut; where
the cut is not given it is the one of best balanced accuracy on the cells that are fitted on, so that a rare outcome is
not given up. Its probability is the share of those cells, by Laplace's rule, that the candidate won on the same side of
the cut; so it may say the candidate at less than one half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from studies.screening_benchmark.power_law import extrapolated
from triplepoint.evidence import ENDPOINTS, BenchmarkCell, Endpoint, Prediction, Rule, Trajectory
from triplepoint.published.rules import PUBLISHED_SATURATION
from triplepoint.screening.rule import s1_end
from triplepoint.statistics import Logistic, best_threshold, logistic_regression, probability_cap

RIDGE = 1.0
"""Of the logistic rule, features standardised: a prior N(0, 1) on the logits per standard deviation."""

Scored = Callable[[BenchmarkCell], float | None]
"""What is seen of a cell -> a number that speaks for the candidate; None where it has none."""


def laplace(won: Sequence[bool]) -> float:
    """Return (wins + 1) / (n + 2)."""
    return (sum(won) + 1) / (len(won) + 2)


def clear(cells: Sequence[BenchmarkCell], endpoint: Endpoint) -> list[tuple[BenchmarkCell, bool]]:
    """Return the clear cells, and whether the candidate won."""
    known = [(cell, cell.truth[endpoint]) for cell in cells if cell.truth is not None]
    return [(cell, truth.winner == "candidate") for cell, truth in known if truth.clear]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A cut at one endpoint, and what happened on its sides."""

    cut: float
    above: float
    """P(candidate wins) where the score exceeds the cut."""
    below: float
    unknown: float
    """The same of all cells: for one without a score."""

    @classmethod
    def of(cls, scores: Sequence[float | None], won: Sequence[bool], cut: float | None) -> Side:
        """Count the sides; place the cut first where it is None."""
        known = [(s, w) for s, w in zip(scores, won, strict=True) if s is not None]
        if cut is None and known:
            cut, _ = best_threshold(*zip(*known, strict=True), balanced=True)
        elif cut is None:
            cut = np.inf
        return cls(
            cut=cut, unknown=laplace(won),
            above=laplace([w for s, w in known if s > cut]), below=laplace([w for s, w in known if s <= cut]),
        )  # fmt: skip

    def ask(self, score: float | None) -> tuple[float, bool]:
        """Return P(candidate wins), and whether the answer is the candidate."""
        if score is None:
            return self.unknown, self.unknown > 0.5
        above = bool(score > self.cut)
        return (self.above if above else self.below), above


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedCut:
    """A rule that cuts one score."""

    score: Scored
    sides: Mapping[Endpoint, Side]

    def predict(self, seen: BenchmarkCell) -> Prediction:
        """Answer for both endpoints."""
        score = self.score(seen)
        told = {e: side.ask(score) for e, side in self.sides.items()}
        return _always({e: p for e, (p, _) in told.items()}, {e: yes for e, (_, yes) in told.items()})  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """Says the candidate where a score exceeds a cut, and what most cells say where there is no score."""

    name: str
    score: Scored
    cut: float | None = None
    """None: fitted."""
    trains: bool = False

    def fit(self, cells: Sequence[BenchmarkCell], look: int) -> FittedCut:
        """Fit the cut, if it is free, and the shares on its sides."""
        sides = {}
        for endpoint in ENDPOINTS:
            known = clear(cells, endpoint)
            scores = [self.score(cell.seen(look)) for cell, _ in known]
            sides[endpoint] = Side.of(scores, [won for _, won in known], self.cut)
        return FittedCut(score=self.score, sides=sides)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedLogistic:
    """A logistic regression on numbers of the plan."""

    features: Callable[[BenchmarkCell], np.ndarray]
    fits: Mapping[Endpoint, tuple[Logistic | None, Side]]
    """None where one outcome is all there was: then the share of it."""
    caps: Mapping[Endpoint, float]
    centre: np.ndarray
    scale: np.ndarray

    def predict(self, seen: BenchmarkCell) -> Prediction:
        """Answer for both endpoints."""
        x = (self.features(seen) - self.centre) / self.scale
        p, says = {}, {}
        for endpoint, (fit, side) in self.fits.items():
            cap, logit = self.caps[endpoint], None if fit is None else float(fit.logit(x))
            share, says[endpoint] = side.ask(logit)
            p[endpoint] = share if fit is None else float(np.clip(fit.p(x), 1 - cap, cap))
        return _always(p, says)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanLogistic:
    """Logistic regression on numbers of the plan, with a ridge; its cut is fitted like any other."""

    name: str
    features: Callable[[BenchmarkCell], np.ndarray]
    trains: bool = False

    def fit(self, cells: Sequence[BenchmarkCell], look: int) -> FittedLogistic:
        """Fit at both endpoints, features standardised over all given cells."""
        table = np.array([self.features(cell.seen(look)) for cell in cells])
        centre, spread = table.mean(axis=0), table.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        fits, caps = {}, {}
        for endpoint in ENDPOINTS:
            known = clear(cells, endpoint)
            won = [w for _, w in known]
            x = np.array([(self.features(cell.seen(look)) - centre) / scale for cell, _ in known])
            fit = logistic_regression(x, won, ridge=RIDGE) if len(set(won)) == 2 else None
            logits = [None] * len(won) if fit is None else fit.logit(x).tolist()
            fits[endpoint] = (fit, Side.of(logits, won, None))
            caps[endpoint] = probability_cap(len(won))
        return FittedLogistic(features=self.features, fits=fits, centre=centre, scale=scale, caps=caps)  # fmt: skip


def _always(p: dict[Endpoint, float], says: dict[Endpoint, bool]) -> Prediction:
    return Prediction(p=p, answered=dict.fromkeys(ENDPOINTS, True), says=says)


def _mean(arm: Sequence[Trajectory], of: Callable[[Trajectory], float | None]) -> float | None:
    """Return the mean over seeds; None where a seed has no such number."""
    values = [of(run) for run in arm]
    return None if None in values or not values else float(np.mean(values))


def _lead(cell: BenchmarkCell, of: Callable[[Trajectory], float | None]) -> float | None:
    """Return the baseline's mean minus the candidate's: positive where the candidate is lower."""
    ours, theirs = _mean(cell.candidate_runs, of), _mean(cell.baseline_runs, of)
    return None if ours is None or theirs is None else theirs - ours


def _val(run: Trajectory) -> float | None:
    return float(run.val[-1]) if len(run.val) else None


def _gap(run: Trajectory) -> float | None:
    return float(run.val[-1] - run.train[-1]) if len(run.val) else None


def _last(metric: str) -> Callable[[Trajectory], float | None]:
    def of(run: Trajectory) -> float | None:
        _, values = run.series.get(metric, ((), ()))
        return float(values[-1]) if len(values) else None

    return of


def _extrapolated_lead(cell: BenchmarkCell) -> float | None:
    """Lead of two power laws at the planned end; they fall for ever, so it is the same at both endpoints."""

    def end(arm: Sequence[Trajectory], lr: float) -> float | None:
        clock = s1_end(cell.setting, lr)
        return _mean(arm, lambda run: extrapolated(run, clock, after=cell.setting.warmup))

    ours = end(cell.candidate_runs, cell.setting.candidate_lr)
    theirs = end(cell.baseline_runs, cell.setting.lr)
    return None if ours is None or theirs is None else theirs - ours


def _plan(cell: BenchmarkCell) -> np.ndarray:
    return np.log([cell.setting.tokens_per_parameter, cell.setting.epochs])


RIVALS: tuple[Rule, ...] = (
    Cut(name="majority", score=lambda cell: None),
    Cut(name="gap at the look", score=lambda cell: _lead(cell, _val), cut=0.0),
    Cut(name="gap at the look, averaged weights", score=lambda cell: _lead(cell, _last("val_loss_ema")), cut=0.0),
    Cut(name="tokens per parameter", score=lambda cell: -float(_plan(cell)[0])),
    Cut(name="epochs", score=lambda cell: float(_plan(cell)[1])),
    Cut(name="baseline's train/val gap", score=lambda cell: _mean(cell.baseline_runs, _gap)),
    # "at least 0.43" was published; no mean of shares is that number to the last bit
    Cut(name="saturation 0.43", score=lambda cell: _mean(cell.candidate_runs, _last("saturation@2")), cut=PUBLISHED_SATURATION),
    Cut(name="saturation, refitted", score=lambda cell: _mean(cell.candidate_runs, _last("saturation@2"))),
    Cut(name="two power laws", score=_extrapolated_lead, cut=0.0),
    PlanLogistic(name="logistic of T/P and epochs", features=_plan),
)  # fmt: skip
"""None trains more than the calibration of both arms."""
