"""What miniatures of a plan say: the baseline's course, and which arm ends lower at every size.

Symbols: ``k`` how many times smaller a miniature is; ``s`` cumulative learning rate; losses in nats per token.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from triplepoint.errors import StatisticsError
from triplepoint.evidence import Truth, truth_of
from triplepoint.evidence.cells import ENDPOINTS, Endpoint
from triplepoint.evidence.truth import TIE
from triplepoint.phases import MARGIN
from triplepoint.screening.arms import Arms
from triplepoint.screening.clocks import Curve, delay
from triplepoint.screening.shrinking import ShrunkPlan

SLACK = 0.02
"""Of the relative difference, beside two standard errors: what a line in ln k may be wrong by. A guess, not a fit."""
PER_INTERVAL = 2 * 1.959964
"""Standard errors in a 95 % interval."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extrapolated:
    """A relative difference carried on to the original's size; positive = candidate worse."""

    delta_rel: float
    """At k = 1, on the line through the sizes in ln k."""
    standard_error: float
    """Of that, from the miniatures' own intervals."""
    agree: bool
    """Whether the difference has one sign at every size."""
    learned: bool = True
    """Whether every arm of every size has left the unigram plateau in training: before, there is nothing to compare."""

    @property
    def trusted(self) -> bool:
        """Whether its sign may be believed: one at all sizes, of arms that learned, out of 2 SE + 0.02's reach at k = 1."""
        return self.agree and self.learned and abs(self.delta_rel) > 2 * self.standard_error + SLACK

    @property
    def winner(self) -> Literal["candidate", "baseline"] | None:
        """Who wins; None where the sign is not trusted, and only the baseline's course is of use."""
        if not self.trusted:
            return None
        return "candidate" if self.delta_rel < 0 else "baseline"


def extrapolate(found: Mapping[float, Truth], *, learned: bool = True) -> Extrapolated:
    r"""Carry a difference on to k = 1, as the least-squares line in ln k does.

    .. math:: D(1) = \sum_i w_i D_i, \quad w_i = \frac1n - \bar x \frac{x_i - \bar x}{\sum_j (x_j - \bar x)^2},
        \quad x = \ln k, \quad SE^2 = \sum_i w_i^2 SE_i^2

    The weights add up to 1, some are negative: two sizes, 4 and 16, give 2 D(4) - D(16).

    Args:
        found: k -> how the miniatures of that size ended, at one endpoint; two sizes at least.
        learned: Whether every arm has left the plateau.

    Raises:
        StatisticsError: If there are fewer than two sizes.

    Example:
        >>> truth = lambda d: Truth(delta_rel=d, interval=(d, d), by_seed=(d,), intervals=((d, d),), margin=0.005)
        >>> found = extrapolate({4.0: truth(0.10), 16.0: truth(0.15)})
        >>> round(found.delta_rel, 6), found.winner
        (0.05, 'baseline')
        >>> extrapolate({4.0: truth(0.05), 16.0: truth(0.15)}).winner is None  # the line ends at -0.05
        True
    """
    if len(found) < 2:
        raise StatisticsError(
            f"A line in ln k needs miniatures of two sizes, got {len(found)}.\nTry ks=(16, 4)."
        )
    x = np.log(np.array(list(found)))
    middle, spread = x.mean(), ((x - x.mean()) ** 2).sum()
    weight = 1 / len(x) - middle * (x - middle) / spread
    delta = np.array([truth.delta_rel for truth in found.values()])
    error = np.array([np.diff(t.interval).item() / PER_INTERVAL for t in found.values()])
    carried = float(weight @ delta)
    signs = {float(np.sign(d)) for d in (*delta, carried)}
    return Extrapolated(
        delta_rel=carried,
        standard_error=math.sqrt(float(weight**2 @ error**2)),
        agree=len(signs) == 1,
        learned=learned,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiniaturePair:
    """One candidate against the baseline, in miniature."""

    truth: Mapping[Endpoint, Truth] | None
    """How it ended; None where an arm diverged."""
    speed_ratio: float | None
    """r at the end. Ratios change with size: measure the real one."""
    offset: float | None
    """c at the end, nats per token: the candidate's validation loss minus the baseline's at equal train loss."""
    learned: bool
    """Whether both arms have left the unigram plateau in training."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Miniature:
    """The whole plan at one smaller size."""

    k: float
    """How many times fewer parameters it has, embeddings aside: reached, not asked for."""
    width: int
    shrunk: ShrunkPlan
    clock: Curve
    """Share of the plan's cumulative learning rate at the evaluations, up to 1."""
    train: Curve
    """The baseline's train loss, mean over seeds."""
    val: Curve
    """The baseline's validation loss, mean over seeds."""
    onset_epoch: float | None
    """Epoch of the baseline's lowest validation loss; None where it does not end 0.5 % above it."""
    candidates: Mapping[str, MiniaturePair]
    seconds: float
    """That its training took, in all processes together; where it was only read, without its evaluations."""
    share: float
    """Of the training of one full arm, by parameters (without positions) times tokens: counted, evaluations aside."""


def miniature_of(
    baseline: Arms,
    candidates: Sequence[Arms],
    *,
    k: float,
    width: int,
    shrunk: ShrunkPlan,
    seconds: float,
    share: float,
) -> Miniature:
    """Return what finished arms of one size say.

    Args:
        baseline: Its runs, one per seed.
        candidates: The same seeds.
        k: Reached.
        width: Of the miniature.
        shrunk: What was trained.
        seconds: Spent.
        share: Of a full arm.
    """
    if all("val_loss" in run.arrays for run in baseline.runs):
        clock, train, val = (
            baseline.clock(),
            baseline.curve("train_loss"),
            baseline.curve("val_loss"),
        )
        epochs = (
            np.array(baseline.steps)
            * shrunk.plan.batch
            * shrunk.context
            / shrunk.plan.unique_tokens
        )
    else:  # it diverged before it was evaluated
        clock = train = val = epochs = np.empty(0)
    return Miniature(
        k=k, width=width, shrunk=shrunk, clock=clock / clock[-1:], train=train, val=val, onset_epoch=onset_epoch(val, epochs),
        candidates={arm.name: _pair(baseline, arm) for arm in candidates}, seconds=seconds, share=share,
    )  # fmt: skip


def onset_epoch(val: Curve, epochs: Float[np.ndarray, " evaluation"]) -> float | None:
    """Return the epoch from which a baseline over-fits: that of its lowest loss, where it ends more than a tie above.

    Example:
        >>> onset_epoch(np.array([3.0, 2.0, 2.5]), np.array([1.0, 2.0, 3.0]))
        2.0
    """
    if not len(val):
        return None
    best = int(val.argmin())
    return float(epochs[best]) if val[-1] > (1 + TIE) * val[best] else None


def _pair(baseline: Arms, arm: Arms) -> MiniaturePair:
    if any(of.diverged_at() is not None for of in (baseline, arm)):
        return MiniaturePair(truth=None, speed_ratio=None, offset=None, learned=False)
    late = delay(
        baseline.clock(), baseline.curve("train_loss"), baseline.curve("val_loss"),
        arm.curve("train_loss"), arm.curve("val_loss"), arm.clock(),
    )  # fmt: skip
    truth = truth_of(list(arm.losses("val_loss")), list(baseline.losses("val_loss")))
    learned = all(
        has_learned(arm.losses("train_loss"), arm.runs[0].plateau) for arm in (baseline, arm)
    )
    return MiniaturePair(
        truth=truth, speed_ratio=late.speed_ratio, offset=late.offset, learned=learned
    )


def has_learned(
    train: Float[np.ndarray, "seed evaluation window"], plateau: Mapping[str, float] | None
) -> bool:
    """Return whether every seed has left the unigram plateau in training: by heart counts as well."""
    if plateau is None:
        return True
    return bool(np.all(train.mean(axis=2).min(axis=1) < plateau["train"] - MARGIN))


@dataclasses.dataclass(frozen=True, eq=False)
class MiniatureEvidence:
    """Miniatures of several sizes, and what may be believed of them."""

    miniatures: tuple[Miniature, ...]
    """Smallest first."""

    @property
    def seconds(self) -> float:
        """That their training took."""
        return sum(m.seconds for m in self.miniatures)

    @property
    def share(self) -> float:
        """Of the training of one full arm, by parameters times tokens."""
        return sum(m.share for m in self.miniatures)

    def facts(self, candidate: str, endpoint: Endpoint) -> dict[str, Any]:
        """Return what a verdict keeps of a candidate: its difference at every size, and carried on to the original's."""
        sizes = [
            {"k": m.k, "onset_epoch": m.onset_epoch, "delta_rel": truth and truth[endpoint].delta_rel,
             "interval": truth and truth[endpoint].interval, "learned": m.candidates[candidate].learned}
            for m in self.miniatures for truth in [m.candidates[candidate].truth]
        ]  # fmt: skip
        carried = self._judged(candidate, endpoint) or {"delta_rel": None, "learned": False, "trusted": False, "winner": None}  # fmt: skip
        return {"sizes": sizes, "endpoint": endpoint, **carried}

    @property
    def notes(self) -> list[str]:
        """What could not be kept of the plan, each said once."""
        return list(dict.fromkeys(note for m in self.miniatures for note in m.shrunk.notes))

    def extrapolated(self, candidate: str, endpoint: Endpoint) -> Extrapolated | None:
        """Return a candidate's difference at the original's size; None where an arm diverged, or there is one size only."""
        found = {m.k: m.candidates[candidate].truth for m in self.miniatures}
        if None in found.values() or len(found) < 2:
            return None
        learned = all(m.candidates[candidate].learned for m in self.miniatures)
        return extrapolate({k: truth[endpoint] for k, truth in found.items()}, learned=learned)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it, the extrapolations by candidate and endpoint included."""
        return {
            "miniatures": [_told(m) for m in self.miniatures],
            "extrapolated": {
                name: {endpoint: self._judged(name, endpoint) for endpoint in ENDPOINTS}
                for name in self.miniatures[0].candidates
            },
        }

    def _judged(self, candidate: str, endpoint: Endpoint) -> dict[str, Any] | None:
        found = self.extrapolated(candidate, endpoint)
        return found and {**dataclasses.asdict(found), "trusted": found.trusted, "winner": found.winner}  # fmt: skip


def _told(miniature: Miniature) -> dict[str, Any]:
    curves = {name: getattr(miniature, name).tolist() for name in ("clock", "train", "val")}
    pairs = {
        name: {
            "speed_ratio": pair.speed_ratio,
            "offset": pair.offset,
            **{e: pair.truth and {**dataclasses.asdict(pair.truth[e]), "winner": pair.truth[e].winner} for e in ENDPOINTS},
        }
        for name, pair in miniature.candidates.items()
    }  # fmt: skip
    plan = {"plan": dataclasses.asdict(miniature.shrunk.plan), "context": miniature.shrunk.context, "notes": list(miniature.shrunk.notes)}  # fmt: skip
    kept = {n: getattr(miniature, n) for n in ("k", "width", "onset_epoch", "seconds", "share")}
    return {**kept, **plan, **curves, "candidates": pairs}
