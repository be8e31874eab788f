r"""Skip the wait: go straight to where the isolated flow would end, and ask whether it is worth it.

Symbols, as in arXiv 2511.01938 (sum of squares; samples are rows):

- ``X, Y, W1, W2, lam, R, G, B``: as in ``triplepoint.grokking.isolated``
- ``q``: degree of the activation, 1 for ReLU and 2 for the square
- ``S = tr(Y^T B) = ||W2||^2 + lam ||B||^2``: what ``R / lam`` holds besides ``||W1||^2``
- ``C = ||W1|| ||W2||``: the complexity

The end point is the isolated minimiser, NOT the trajectory of anybody's optimiser, and generalising
is what two-layer nets with squared error have been seen to do there, not a theorem.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triplepoint.errors import DataError, PlanError
from triplepoint.grokking._lbfgs import lbfgs
from triplepoint.grokking.isolated import ReducedCost, checked, cost_at
from triplepoint.grokking.two_layer import (
    Activation,
    Labelled,
    accuracy_on,
    activation_named,
    as_module,
)

WILL_GROK_BELOW = 0.888
"""C_real / C_shuffled below which a task is expected to grok: AdamW on both layers (lr 1e-3, weight
decay 1, full batch, mean squared error) holds 99 % on held-out samples within 20,000 steps. Fitted
on twelve settings of modular addition: the middle of the gap between 0.873 (grokked) and 0.903 (did
not). On 24 others, with other sizes, operations, noise and parity, the median was on the right side
in 20, where "never" is right in 15 (``studies/will_it_grok``). The budget is part of the question:
settings at 0.89 to 0.95 reached 62 to 100 % of the held-out samples, most of them not 99 % in time."""


MEETS_WITHIN = 0.01
"""Share of ||Y||^2 that the optimal second layer may miss at the start. With as many hidden units as samples it
misses less than 1e-5; where it misses more, C falls for ever as W1 shrinks, and says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Glimpse:
    """One gradient of the way."""

    gradients: int
    """Gradients spent so far, this one included."""
    objective: float
    """The logarithm that is minimised."""
    complexity: float
    """``C``."""
    test_accuracy: float | None
    """None where no test samples were given."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FastForward:
    """The network at the end of the shortcut, and what it cost."""

    W1: Float[Tensor, "d_in h"]
    """Rescaled to the point of least norm on its ray, ``||W1||^2 = q ||W2||^2``, where there is a q."""
    W2: Float[Tensor, "h o"]
    activation: str
    gradients: int
    """Gradients of the reduced cost that were computed."""
    stopped: Literal["settled", "no descent", "limit"]
    """Gain below the limit, no step that descends, or ``max_gradients`` spent."""
    test_accuracy: float | None
    """Of this network; None where no test samples were given."""
    history: tuple[Glimpse, ...]

    @property
    def complexity(self) -> float:
        """``C = ||W1|| ||W2||`` at the end."""
        return float(self.W1.norm() * self.W2.norm())

    @property
    def model(self) -> nn.Sequential:
        """The network as an ordinary module: linear, activation, linear, no biases."""
        return as_module(self.W1, self.W2, activation=self.activation)

    def gradients_to(self, test_accuracy: float) -> int | None:
        """Gradients until that test accuracy was first seen, or None. Read off afterwards: it steers nothing."""
        for glimpse in self.history:
            if glimpse.test_accuracy is not None and glimpse.test_accuracy >= test_accuracy:
                return glimpse.gradients
        return None


def fast_forward(
    X: Float[Tensor, "n d_in"],
    Y: Float[Tensor, "n o"],
    W1: Float[Tensor, "d_in h"],
    *,
    lam: float = 1e-6,
    activation: str = "relu",
    memory: int = 20,
    max_gradients: int = 400,
    gain: float = 0.01,
    window: int = 20,
    test: Labelled | None = None,
    watch: Callable[[Glimpse], None] | None = None,
) -> FastForward:
    r"""Minimise the complexity of a first layer by L-BFGS, the second layer eliminated.

    .. math::
        \log C = q\log\|W_1\| + \tfrac12\log S, \qquad
        \nabla \log C = \frac{q W_1}{\|W_1\|^2} + \frac{G - W_1}{S}

    With ReLU (``q = 1``) and small ``lam`` this is ``log(||W1|| ||W2||)``, and ``2 C`` is the least
    ``R / lam`` on the ray of ``W1``: the scale of ``W1`` drops out, and with it the long wait. For an
    activation that is not homogeneous the scale matters, and ``log(R / lam)`` is minimised instead.

    It is NOT a faster simulation: the path differs from the flow's, only the end point is meant.

    Args:
        X: Training inputs.
        Y: Training targets.
        W1: Start; ``initial_first_layer`` or the first layer of a trained net, transposed.
        lam: Ridge of the second layer. 1e-6 is far below the smallest eigenvalue of the kernel of
            modular addition (1e-2), and keeps duplicate inputs from making it singular.
        activation: A name in ``ACTIVATIONS``.
        memory: Pairs that L-BFGS keeps; 20 was measured, more buys nothing on a kinked cost.
        max_gradients: Where to stop at the latest. Settled runs took 70 to 185.
        gain: Stop when the objective's argument fell by less than this share ...
        window: ... over so many gradients. 1 % over 20: no label of a test sample is looked at.
        test: Inputs and targets to report the accuracy on at every gradient; they steer nothing.
        watch: Called at every gradient, for a progress bar.

    Returns:
        Both layers, the module built from them, and the number of gradients.

    Raises:
        DataError: As ``reduced_cost`` does, if ``Y`` is all zeros (then nothing is to be learnt), or if no second
            layer on ``W1`` meets the targets: too few hidden units, or equal inputs with different targets.
        PlanError: If a number is outside its range.

    Example:
        >>> from triplepoint.grokking import initial_first_layer, pair_task
        >>> task = pair_task("add", p=5)
        >>> fast_forward(*task.train_set, initial_first_layer(5, 16), max_gradients=7).gradients
        7
    """
    if max_gradients < 1 or memory < 1 or window < 1 or not 0 <= gain < 1:
        raise PlanError(
            f"Fast-forward cannot run with max_gradients={max_gradients}, memory={memory}, "
            f"window={window}, gain={gain}.\nTry max_gradients=400, memory=20, window=20, gain=0.01."
        )
    W1, X, Y = checked(W1, X, Y, lam=lam)
    if not Y.any():
        raise DataError(
            "All targets are zero: the second layer would be zero as well, and C has no logarithm.\n"
            "Try one-hot targets, one column per class."
        )
    act = activation_named(activation)
    _require_fit(W1, X, Y, lam, act)
    history: list[Glimpse] = []

    def objective(W: Tensor) -> tuple[float, Tensor]:
        here = cost_at(W, X, Y, lam=lam, act=act)
        value, gradient = log_complexity(W, here, act)
        history.append(
            Glimpse(
                gradients=len(history) + 1,
                objective=value,
                complexity=here.complexity,
                test_accuracy=accuracy_on(W, here.W2, test, activation=activation),
            )
        )
        if watch is not None:
            watch(history[-1])
        return value, gradient

    best, W_best, stopped = [], W1, "no descent"
    for W, value in lbfgs(objective, W1, memory=memory, first_move=0.1):
        if not best or value < best[-1]:
            W_best = W
        best.append(min(value, best[-1]) if best else value)
        if len(best) > window and best[-1 - window] - best[-1] < -math.log1p(-gain):
            stopped = "settled"
            break
        if len(best) >= max_gradients:
            stopped = "limit"
            break
    W_best, W2 = _balanced(W_best, X, Y, lam, act)
    return FastForward(
        W1=W_best,
        W2=W2,
        activation=activation,
        gradients=len(history),
        stopped=stopped,
        test_accuracy=accuracy_on(W_best, W2, test, activation=activation),
        history=tuple(history),
    )


def _require_fit(W1: Tensor, X: Tensor, Y: Tensor, lam: float, act: Activation) -> None:
    """Refuse a start from which C has no lower bound."""
    missed = cost_at(W1, X, Y, lam=lam, act=act).sse / float(Y.square().sum())
    if missed > MEETS_WITHIN:
        raise DataError(
            f"No second layer on these {W1.shape[1]} hidden units meets the {len(X)} training targets: the best one "
            f"misses {missed:.0%} of their squared norm, and C means nothing.\n"
            f"Try {len(X)} hidden units or more, no equal inputs with different targets, or a smaller lam."
        )


def log_complexity(W1: Tensor, here: ReducedCost, act: Activation) -> tuple[float, Tensor]:
    """Return the objective and its gradient."""
    if act.degree is None:
        return math.log(here.over_lam), 2 * here.half_grad / here.over_lam
    q, S = act.degree, here.fit
    value = 0.5 * (q * math.log(here.W1_sq) + math.log(S))
    return value, q * W1 / here.W1_sq + (here.half_grad - W1) / S


def _balanced(
    W1: Tensor, X: Tensor, Y: Tensor, lam: float, act: Activation
) -> tuple[Tensor, Tensor]:
    """Scale ``W1`` to the least norm on its ray, which changes no prediction, and refit ``W2``."""
    here = cost_at(W1, X, Y, lam=lam, act=act)
    if act.degree is None or here.W2_sq == 0:
        return W1, here.W2
    q = act.degree
    W1 = W1 * (q * here.W2_sq / here.W1_sq) ** (0.5 / (q + 1))
    return W1, cost_at(W1, X, Y, lam=lam, act=act).W2


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GrokOutlook:
    """Whether a task can generalise from this much data, judged without test data."""

    C_real: float
    C_shuffled: tuple[float, ...]
    """One per permutation of the labels."""
    threshold: float

    @property
    def ratios(self) -> tuple[float, ...]:
        """``C_real / C_shuffled``, one per permutation."""
        return tuple(self.C_real / C for C in self.C_shuffled)

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest ratio: their range over the shuffles, not an interval with a level."""
        return min(self.ratios), max(self.ratios)

    @property
    def answer(self) -> Literal["yes", "no", "undecided"]:
        """``undecided`` where the threshold lies within the spread."""
        low, high = self.spread
        if high < self.threshold:
            return "yes"
        return "no" if low >= self.threshold else "undecided"

    @property
    def words(self) -> str:
        """The answer in a sentence, with its numbers and its scope."""
        low, high = self.spread
        meaning = {
            "yes": "The true labels are cheaper to represent than shuffled ones: expect it to generalise.",
            "no": "The true labels cost nearly as much as shuffled ones: expect memorising, and at best "
            "part of the held-out samples.",
            "undecided": "Some shuffles say yes and some say no: more data or more shuffles are needed.",
        }[self.answer]
        return (
            f"{meaning} C_real / C_shuffled = {self.ratio:.3f} ({low:.3f} to {high:.3f} over "
            f"{len(self.ratios)} shuffles), threshold {self.threshold:g} (two-layer nets, squared "
            f"error, 99 % held out)."
        )


def will_it_grok(
    X: Float[Tensor, "n d_in"],
    Y: Float[Tensor, "n o"],
    W1: Float[Tensor, "d_in h"],
    *,
    lam: float = 1e-6,
    activation: str = "relu",
    shuffles: int = 5,
    gradients: int = 200,
    threshold: float = WILL_GROK_BELOW,
    seed: int = 0,
    watch: Callable[[int], None] = lambda done: None,
) -> GrokOutlook:
    r"""Compare the complexity that the true labels need with what shuffled ones need.

    .. math:: r = C(Y) / C(\Pi Y), \qquad \Pi \text{ a random permutation of the training rows}

    Structure that can carry over to unseen samples makes the true labels cheaper. No test sample is
    looked at, and ``fast_forward`` is run ``shuffles + 1`` times from the same ``W1`` with the same
    number of gradients. It is NOT a significance test: the spread is a range over shuffles.

    Args:
        X: Training inputs.
        Y: Training targets.
        W1: Start of every run.
        lam: As in ``fast_forward``.
        activation: A name in ``ACTIVATIONS``.
        shuffles: Permutations of the labels. 5: the ratios spread over 1 to 5 % in the twelve settings behind the threshold.
        gradients: Gradients of each run. 200 is what the threshold was fitted with.
        threshold: Ratio below which the answer is yes: see ``WILL_GROK_BELOW`` for what it was fitted to.
        seed: Seed of the permutations' own generator.
        watch: Called with how many of the ``shuffles + 1`` runs are done.

    Returns:
        The complexities, their ratios and spread, and the answer in words.

    Raises:
        DataError: As ``fast_forward`` does, or if all rows of ``Y`` are equal.
        PlanError: If ``shuffles`` or ``threshold`` is not positive.
    """
    if shuffles < 1 or not threshold > 0:
        raise PlanError(
            f"The question needs at least one shuffle and a positive threshold, got {shuffles} and "
            f"{threshold}.\nTry shuffles=5, and threshold={WILL_GROK_BELOW}."
        )
    if len(Y) and (Y == Y[:1]).all():
        raise DataError(
            "All training samples have the same label, so shuffling changes nothing.\n"
            "Try a larger training fraction, or another task."
        )

    def complexity(labels: Tensor) -> float:
        # the same number of gradients for each, so never stopped early
        run = fast_forward(
            X, labels, W1, lam=lam, activation=activation, max_gradients=gradients, gain=0.0
        )
        return run.complexity

    generator = torch.Generator().manual_seed(seed)
    permuted = (Y[torch.randperm(len(Y), generator=generator)] for _ in range(shuffles))
    found = []
    for done, labels in enumerate((Y, *permuted), 1):
        found.append(complexity(labels))
        watch(done)
    return GrokOutlook(C_real=found[0], C_shuffled=tuple(found[1:]), threshold=threshold)
