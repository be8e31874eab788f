r"""A linear head refitted by ridge regression on the features of the training set.

What a network's features could say, whatever its own head says: the refit head leads the network's own accuracy,
also under cross-entropy. It works for the last linear layer of any network.

Symbols, as in arXiv 2511.01938 (samples are rows):

- ``H`` [n, h]: features, what enters the head; ``Y`` [n, o]: targets, one-hot for labels
- ``W2`` [h, o]: a head; ``torch.nn.Linear`` stores its transpose; ``W2*``: the ridge optimum on the training set
- ``K``: ``H H^T`` for ``h >= n``, else ``H^T H``; ``lam``: weight of ``||W2||^2`` beside the SUM of squares
- ``C = ||W1|| ||W2*||``: complexity of a bias-free two-layer net
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError

RIDGE = 1e-10
"""Default ``lam`` over the mean diagonal entry of K: some thousand times the rounding of a float64 Gram matrix,
and 1e-5 of its smallest eigenvalue on modular addition (p = 23 and 37), so that W2* is the interpolating head."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RidgeHead:
    """A linear head, float64."""

    W2: Float[Tensor, "h o"]
    intercept: Float[Tensor, " o"]
    """Zeros where none was fitted."""
    lam: float

    def predict(self, H: Float[Tensor, "n h"]) -> Float[Tensor, "n o"]:
        """Return ``H W2 + intercept``."""
        return H.to(self.W2) @ self.W2 + self.intercept


def refit_head(
    H: Float[Tensor, "n h"],
    Y: Float[Tensor, "n o"],
    *,
    lam: float | None = None,
    intercept: bool = False,
) -> RidgeHead:
    r"""Return the ridge optimum of a linear head on fixed features.

    .. math:: W_2^* = \arg\min_{W_2} \|H W_2 - Y\|^2 + \lambda \|W_2\|^2
              = H^\top (H H^\top + \lambda I)^{-1} Y = (H^\top H + \lambda I)^{-1} H^\top Y

    The smaller of the two systems is solved, in float64 whatever comes in: ``min(n, h)^2 max(n, h)`` products and
    one Cholesky. It is the head that training would reach with these features and squared error, not the one
    that cross-entropy would; as a classifier it is as good a probe.

    Args:
        H: Features of the training samples, not of the validation samples.
        Y: Targets; :func:`one_hot` for labels.
        lam: Weight of the norm, at least 0; by default :data:`RIDGE` times the mean diagonal entry of K.
        intercept: Whether to fit an offset, which is not penalised.

    Returns:
        The head; all zeros for features that are all 0.

    Raises:
        MetricInputError: If shapes do not fit, a number is not finite, or ``lam`` is 0 and K singular.
        PlanError: If ``lam`` is negative.

    Example:
        >>> one = torch.ones(1, 1)
        >>> round(refit_head(2 * one, 3 * one, lam=1.0).W2.item(), 6)  # 2 * 3 / (2 * 2 + 1)
        1.2
    """
    H, Y = _checked(H, Y)
    if lam is not None and not 0 <= lam < float("inf"):
        raise PlanError(f"lam is {lam}.\nGive a finite weight of at least 0, or leave it out.")
    mean_H, mean_Y = H.new_zeros(H.shape[1]), Y.new_zeros(Y.shape[1])
    if intercept:
        mean_H, mean_Y = H.mean(0), Y.mean(0)
        H, Y = H - mean_H, Y - mean_Y
    n, h = H.shape
    dual = h >= n
    K = H @ H.T if dual else H.T @ H
    scale = K.diagonal().mean().item()
    lam = (RIDGE * scale or 1.0) if lam is None else lam
    K.diagonal().add_(lam)
    solved = _solve(K, Y if dual else H.T @ Y)
    W2 = H.T @ solved if dual else solved
    return RidgeHead(W2=W2, intercept=mean_Y - mean_H @ W2, lam=lam)


def _checked(H: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    if H.ndim != 2 or Y.ndim != 2 or len(H) != len(Y) or not H.numel():
        raise MetricInputError(
            f"Features of shape {list(H.shape)} and targets of shape {list(Y.shape)} do not fit.\n"
            "Give [n, h] and [n, o]; one_hot(labels, classes) for labels."
        )
    H, Y = H.detach().double(), Y.detach().double()
    for name, tensor in (("features", H), ("targets", Y)):
        bad = int((~tensor.isfinite()).sum())
        if bad:
            raise MetricInputError(
                f"{bad} of {tensor.numel()} {name} are inf or nan.\n"
                "The run has probably diverged: take an earlier checkpoint."
            )
    return H, Y


def _solve(K: Tensor, right: Tensor) -> Tensor:
    """Solve by Cholesky with one step of refinement."""
    L, failed = torch.linalg.cholesky_ex(K)
    if failed:
        raise MetricInputError(
            f"The Gram matrix of the features ({len(K)} rows) is singular to working precision.\n"
            "Leave lam out, or give one above 0: features repeat each other, or are dead."
        )
    solution = torch.cholesky_solve(right, L)
    return solution + torch.cholesky_solve(right - K @ solution, L)


def one_hot(labels: Int[Tensor, " n"], classes: int) -> Float[Tensor, "n classes"]:
    """Return labels as float64 rows with a single 1.

    Raises:
        MetricInputError: If a label is not in 0 .. classes - 1.

    Example:
        >>> one_hot(torch.tensor([2, 0]), 3).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise MetricInputError(
            f"Labels reach from {int(labels.min())} to {int(labels.max())}, for {classes} classes.\n"
            "Count classes from 0, and check that the model has as many outputs."
        )
    return torch.eye(classes, dtype=torch.float64, device=labels.device)[labels]


def head_distance(W2: Float[Tensor, "h o"], best: Float[Tensor, "h o"]) -> float:
    """Return ``||W2 - W2*|| / ||W2*||``: 0 at the ridge optimum, nan where that is 0.

    Example:
        >>> round(head_distance(torch.tensor([[3.0]]), torch.tensor([[2.0]])), 6)
        0.5
    """
    best = best.double()
    return ((W2.detach().double() - best).norm() / best.norm()).item()


def complexity(W1: Float[Tensor, "d_in h"], best: Float[Tensor, "h o"]) -> float:
    r"""Return :math:`C = \|W_1\|_F \|W_2^*(W_1)\|_F` of a bias-free two-layer net.

    With the refitted head, so that it does not depend on how far the own head lags; and unlike
    :math:`\|W_1\|^2 + \|W_2\|^2` it ignores how the layers share their scale, for ReLU. Runs with squared error
    generalise at the same C to 5-10 %; it does not order runs with cross-entropy.

    Example:
        >>> complexity(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0], [0.0]]))
        10.0
    """
    return (W1.detach().double().norm() * best.double().norm()).item()


def unit_imbalance(W1: Float[Tensor, "d_in h"], W2: Float[Tensor, "h o"]) -> float:
    r"""Return the mean over hidden units of :math:`|\,\|W_{1,\cdot b}\|^2 - \|W_{2,b\cdot}\|^2|`.

    With ReLU the joint flow lets it decay as :math:`e^{-2t}` in slow time: exactly 0 at the end point.

    Example:
        >>> unit_imbalance(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0], [1.0]]))  # 3 and 0
        1.5
    """
    of_first, of_second = W1.detach().double().square().sum(0), W2.detach().double().square().sum(1)
    return (of_first - of_second).abs().mean().item()
