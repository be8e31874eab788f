r"""The first layer alone: the second one eliminated by ridge regression, in closed form.

Symbols, as in arXiv 2511.01938 (samples are rows; the loss is a SUM of squares, no mean, no 1/2):

- ``X`` [n, d_in], ``Y`` [n, o]: inputs and targets; ``W1`` [d_in, h]: first layer
- ``Z = X W1``, ``H = act(Z)`` [n, h]: pre-activations and hidden features
- ``lam``: weight decay, ``L_lam(W1, W2) = ||H W2 - Y||^2 + lam (||W1||^2 + ||W2||^2)``
- ``R(W1) = min over W2 of L_lam``: the reduced cost; ``W2`` [h, o]: the minimiser
- ``K = H H^T + lam I`` [n, n], ``B = K^-1 Y`` [n, o]: kernel and multipliers; ``Y - H W2 = lam B``
- ``G = dR/dW1 / (2 lam)``: the half gradient, of ``R / lam``

What is here holds for two layers, no biases and squared error, and for nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import DataError, PlanError
from triplepoint.grokking.two_layer import Activation, activation_named

GRAM_BLOCK = 96
"""Rows of K computed at a time: only the lower triangle is needed, and four blocks of it are 5/8 of the work."""

FLOAT32_WARNS_ABOVE = 1e-5
"""Relative error of B from which float32 warns: fewer than five digits, where float32 itself has seven."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReducedCost:
    """``R`` at one ``W1``, its gradient, and the second layer that belongs to it.

    At ``lam = 0`` both ``R`` and its gradient vanish; ``value`` and ``grad`` are then those of the
    limit of ``R / lam``, whose gradient flow is the paper's equation 20.
    """

    value: float
    """``R``; at ``lam = 0`` the limit of ``R / lam``."""
    half_grad: Float[Tensor, "d_in h"]
    """``G``: half the gradient of ``R / lam``, for every ``lam``."""
    W2: Float[Tensor, "h o"]
    """The ridge optimum; at ``lam = 0`` the interpolating ``W2`` of smallest norm."""
    B: Float[Tensor, "n o"]
    """Multipliers ``K^-1 Y``."""
    lam: float
    W1_sq: float
    """``||W1||^2``."""
    fit: float
    """``tr(Y^T B) = ||W2||^2 + lam ||B||^2``: what ``R / lam`` holds besides ``||W1||^2``."""

    @property
    def grad(self) -> Float[Tensor, "d_in h"]:
        """The full ``dR/dW1``; at ``lam = 0`` the gradient of the limit of ``R / lam``."""
        return 2 * (self.lam or 1.0) * self.half_grad

    @property
    def over_lam(self) -> float:
        """``R / lam``, for every ``lam``; at ``lam = 0`` it is ``||W1||^2 + ||W2||^2``."""
        return self.W1_sq + self.fit

    @property
    def W2_sq(self) -> float:
        """``||W2||^2``."""
        return float(self.W2.square().sum())

    @property
    def sse(self) -> float:
        """Sum of squared errors of the net, ``||lam B||^2``; 0 at ``lam = 0``."""
        return self.lam**2 * float(self.B.square().sum())

    @property
    def complexity(self) -> float:
        """``C = ||W1|| ||W2||``: unlike ``||W1||^2 + ||W2||^2`` it ignores how a ReLU net shares its scale."""
        return math.sqrt(self.W1_sq * self.W2_sq)


def reduced_cost(
    W1: Float[Tensor, "d_in h"],
    X: Float[Tensor, "n d_in"],
    Y: Float[Tensor, "n o"],
    *,
    lam: float,
    activation: str = "relu",
) -> ReducedCost:
    r"""Cost of a first layer when the second one is always at its ridge optimum.

    .. math::
        R(W_1) &= \min_{W_2} \|HW_2 - Y\|^2 + \lambda(\|W_1\|^2 + \|W_2\|^2)
                = \lambda\|W_1\|^2 + \lambda\,\mathrm{tr}(Y^\top B) \\
        \tfrac{1}{2\lambda}\nabla R &= W_1 - X^\top\big[(B W_2^\top) \circ \mathrm{act}'(XW_1)\big],
        \qquad B = (HH^\top + \lambda I)^{-1} Y, \quad W_2 = H^\top B

    Exact for every ``lam > 0``, every shape and every rank. With ``lam = 0`` it is the limit, which
    needs ``h >= n`` and independent rows of ``H``. It is NOT the gradient of the loss with ``W2``
    held fixed, although the two agree when ``W2`` is the optimum: ``W2`` follows ``W1`` here.

    One Cholesky of the smaller of ``H H^T`` (``h >= n``) and ``H^T H`` (``h < n``); about
    ``n^2 h + n^3 / 3`` multiplications in the first case. Nothing is differentiated by autograd.
    Digits are lost in proportion to the condition number of ``K``.

    Args:
        W1: First layer. Computed in the widest dtype of ``W1``, ``X`` and ``Y``, float64 or float32.
        X: Inputs, one row per sample.
        Y: Targets, one row per sample.
        lam: Weight decay against the SUM of squared errors; torch's ``weight_decay`` with a mean
            over ``N`` entries is ``lam = weight_decay * N / 2``. No default: it is the model.
        activation: A name in ``ACTIVATIONS``.

    Returns:
        ``value`` (R, non-negative), ``grad`` (its full gradient), ``W2`` and what they are made of.
        With all-zero ``Y``, ``R`` is ``lam ||W1||^2`` and ``W2`` is zero.

    Raises:
        DataError: If shapes do not fit, an entry is not finite, or ``K`` is singular to rounding.
        PlanError: If ``lam`` is negative or not finite, or is 0 while ``h < n``.

    Warns:
        RuntimeWarning: In float32, if the estimated relative error of ``B`` is above 1e-5.

    References:
        arXiv 2511.01938, Sec. 5 and eq. 20 (the case ``lam = 0``); the last line of its appendix E
        has both signs the wrong way round.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> cost = reduced_cost(2 * one, one, 3 * one, lam=1.0)  # H = 2, K = 5, B = 3/5
        >>> round(cost.value, 6), round(cost.W2.item(), 6), round(cost.grad.item(), 6)
        (5.8, 1.2, 2.56)
    """
    W1, X, Y = checked(W1, X, Y, lam=lam)
    act = activation_named(activation)
    cost = cost_at(W1, X, Y, lam=lam, act=act)
    if W1.dtype == torch.float32:
        _warn_about_float32(W1, X, Y, cost.B, lam, act)
    return cost


def cost_at(W1: Tensor, X: Tensor, Y: Tensor, *, lam: float, act: Activation) -> ReducedCost:
    """``reduced_cost`` of arguments that ``checked`` has returned, for loops that call it often."""
    Z = X @ W1
    H = act.value(Z)
    W2, B, fit = _primal(H, Y, lam) if H.shape[1] < H.shape[0] else _dual(H, Y, lam)
    half_grad = torch.addmm(W1, X.T, act.pull_back(Z, B @ W2.T), alpha=-1)
    W1_sq = float(W1.square().sum())
    return ReducedCost(
        value=(lam or 1.0) * (W1_sq + fit),
        half_grad=half_grad,
        W2=W2,
        B=B,
        lam=lam,
        W1_sq=W1_sq,
        fit=fit,
    )


def _dual(H: Tensor, Y: Tensor, lam: float) -> tuple[Tensor, Tensor, float]:
    """Return ``W2``, ``B`` and ``tr(Y^T B)`` by the n x n kernel."""
    L = _factor(_lower_gram(H, lam), lam, "H H^T")
    half = torch.linalg.solve_triangular(L, Y, upper=False)
    B = torch.linalg.solve_triangular(L.T, half, upper=True)
    return H.T @ B, B, float(half.square().sum())


def _primal(H: Tensor, Y: Tensor, lam: float) -> tuple[Tensor, Tensor, float]:
    """Return the same by the h x h matrix, for fewer hidden units than samples."""
    L = _factor(_lower_gram(H.T, lam), lam, "H^T H")
    W2 = torch.cholesky_solve(H.T @ Y, L)
    # B divides the residual by lam, so an error of W2 is divided too: one step of refinement
    W2 = W2 + torch.cholesky_solve(H.T @ (Y - H @ W2) - lam * W2, L)
    residual = Y - H @ W2
    # as a sum of squares: stationary in W2, so its error counts only squared
    fit = float(residual.square().sum()) / lam + float(W2.square().sum())
    return W2, residual / lam, fit


def _lower_gram(A: Tensor, lam: float) -> Tensor:
    """Return the lower triangle of ``A A^T + lam I``; above its diagonal blocks nothing is written."""
    n = A.shape[0]
    # filled from above and turned at the end: columns in a row are what LAPACK copies fastest
    K = A.new_empty(n, n)
    for start in range(0, n, GRAM_BLOCK):
        stop = min(start + GRAM_BLOCK, n)
        torch.mm(A[:stop], A[start:stop].T, out=K[:stop, start:stop])
    K.diagonal().add_(lam)
    return K.T


def _factor(K: Tensor, lam: float, name: str) -> Tensor:
    """Cholesky factor of K, or the reason why there is none.

    On an exactly singular K rounding often lets Cholesky pass, so the smallest pivot is looked at.
    """
    n = K.shape[0]
    L, failed = torch.linalg.cholesky_ex(K)
    largest = float(K.diagonal().max())
    if not math.isfinite(largest):
        raise DataError(
            f"{name} overflows {K.dtype}: its largest diagonal entry is {largest}.\n"
            "Try a first layer of smaller entries; initial_first_layer draws them of size d_in^-1/4."
        )
    pivots = L.diagonal()[: int(failed) - 1 if failed else n].square()
    smallest = 0.0 if failed else float(pivots.min())
    floor = n * torch.finfo(K.dtype).eps * largest
    if smallest > floor:
        return L
    place = int(failed) if failed else int(pivots.argmin()) + 1
    raise DataError(
        f"{name} + lam I is singular to {K.dtype} at lam = {lam:g}: pivot {place} of {n} is "
        f"{smallest:.1e}, the largest diagonal entry {largest:.1e}.\n"
        f"Two training inputs are probably equal ((a, b) and (b, a) with summed one-hots are), or too "
        f"many hidden units are dead. Drop duplicates, or try lam={max(1e-6, 100 * floor):.0e}."
    )


def _warn_about_float32(
    W1: Tensor, X: Tensor, Y: Tensor, B: Tensor, lam: float, act: Activation
) -> None:
    """Warn with the relative error of B, estimated by one refinement step with a float64 residual."""
    H = act.value(X.double() @ W1.double())
    left_over = Y.double() - H @ (H.T @ B.double()) - lam * B.double()
    # the size of the correction is all that matters, so float32 is good enough to solve for it
    low, correction = H.float(), left_over.float()
    if low.shape[1] < low.shape[0]:
        _, correction, _ = _primal(low, correction, lam)
    else:
        _, correction, _ = _dual(low, correction, lam)
    error = float(correction.norm() / B.norm().clamp(min=torch.finfo(B.dtype).tiny))
    if error > FLOAT32_WARNS_ABOVE:
        warnings.warn(
            f"float32 loses digits here: the estimated relative error of the reduced cost's "
            f"multipliers is {error:.1e}.\nTry W1.double(), X.double() and Y.double().",
            RuntimeWarning,
            stacklevel=3,
        )


def checked(W1: Tensor, X: Tensor, Y: Tensor, *, lam: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three in one dtype, or raise what is wrong with them."""
    shapes = f"W1 {list(W1.shape)}, X {list(X.shape)}, Y {list(Y.shape)}"
    fits = (
        W1.ndim == X.ndim == Y.ndim == 2
        and X.shape[1] == W1.shape[0]
        and X.shape[0] == Y.shape[0]
        and min(*W1.shape, *X.shape, *Y.shape) > 0
    )
    if not fits:
        raise DataError(
            f"The reduced cost needs W1 [d_in, h], X [n, d_in] and Y [n, o], got {shapes}.\n"
            "Samples are rows, and a torch layer stores its weight transposed: try `layer.weight.T`."
        )
    if not 0 <= lam < math.inf:
        raise PlanError(
            f"lam is a weight decay and cannot be {lam}.\n"
            "Try lam=1e-6, or lam=0 for the limit of vanishing decay."
        )
    if lam == 0 and W1.shape[1] < X.shape[0]:
        raise PlanError(
            f"lam = 0 needs at least as many hidden units as samples, got h = {W1.shape[1]} and "
            f"n = {X.shape[0]}.\nTry h={X.shape[0]} or more, fewer samples, or lam=1e-3."
        )
    dtype = torch.promote_types(W1.dtype, torch.promote_types(X.dtype, Y.dtype))
    if dtype not in (torch.float32, torch.float64):
        raise DataError(
            f"The reduced cost is computed in float64 or float32, got {dtype}.\n"
            "Try `.double()` on W1, X and Y."
        )
    for name, tensor in {"W1": W1, "X": X, "Y": Y}.items():
        # one pass where all is well; a sum that only overflows has no bad entry
        bad = 0 if math.isfinite(float(tensor.detach().sum())) else int((~tensor.isfinite()).sum())
        if bad:
            raise DataError(
                f"The reduced cost needs finite entries; {bad} of {tensor.numel()} in {name} are "
                "inf or nan.\nThe run this came from has probably diverged: try an earlier "
                "checkpoint, or a smaller step."
            )
    return W1.detach().to(dtype), X.detach().to(dtype), Y.detach().to(dtype)
