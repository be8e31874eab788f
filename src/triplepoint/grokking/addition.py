"""The addition toy in closed form: both phases of grokking as two exponentials.

Symbols, as in the paper:
    w, N    weights and their number; the one training sample is x = (1, .., 1) with the target N
    lam     weight of the norm: L_lam = (sum w - N)^2 + lam ||w||^2
    s       sum of w; s* = N^2 / (N + lam) where it ends
    r       rate of the fit, 2N + 2 lam; the drift along Z has the rate 2 lam
    t, eta  flow time of w' = -grad L_lam; step size of gradient descent
"""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditionEnd:
    """Where weight decay holds the addition toy."""

    w: float
    """Every weight: N / (N + lam), a little short of 1."""
    train_loss: float
    """(N lam / (N + lam))^2, without the norm."""
    test_loss: float
    """N (lam / (N + lam))^2, in expectation over x ~ N(0, I)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditionTimes:
    """When the two phases end, in flow time, or in steps where a step size was given (not rounded)."""

    fit: float
    """The training loss is its floor plus the margin."""
    drift: float
    """The part of the test loss across the mean weight is down to tau; proportional to 1/lam."""


def addition_end(n: int, *, lam: float) -> AdditionEnd:
    """Return the end point and the floors that weight decay leaves, for ``n`` weights.

    Example:
        >>> addition_end(2, lam=2.0)
        AdditionEnd(w=0.5, train_loss=1.0, test_loss=0.5)
    """
    short = lam / (n + lam)
    return AdditionEnd(w=n / (n + lam), train_loss=(n * short) ** 2, test_loss=n * short**2)


def addition_losses(
    w: Float[Tensor, "*points n"],
) -> tuple[Float[Tensor, "*points"], Float[Tensor, "*points"]]:
    """Return (training loss on the one sample, test loss in expectation over x ~ N(0, I)), without the norm.

    Example:
        >>> train, test = addition_losses(torch.tensor([0.0, 2.0]))
        >>> train.item(), test.item()
        (0.0, 2.0)
    """
    return (w.sum(-1) - w.shape[-1]).square(), (w - 1.0).square().sum(-1)


def addition_flow(
    w0: Float[Tensor, " n"], t: Float[Tensor, "*times"] | float, *, lam: float
) -> Float[Tensor, "*times n"]:
    r"""Solve the gradient flow exactly.

    .. math:: s = s^* + (s_0 - s^*) e^{-(2N + 2\lambda) t}, \qquad
        w - \bar w = (w_0 - \bar w_0) e^{-2 \lambda t}

    Args:
        w0: Start.
        t: Flow times, at least 0; slow time is ``2 lam t``.
        lam: Weight of the norm, at least 0.

    Returns:
        The weights at each time, in the dtype of ``w0``.

    Raises:
        MetricInputError: If ``w0`` is no finite vector.
        PlanError: If ``lam`` or a time is negative.

    Example:
        Without decay the fit ends on the manifold and stays where it met it:

        >>> addition_flow(torch.tensor([-1.0, 1.0]), 100.0, lam=0.0).tolist()
        [0.0, 2.0]
    """
    fit, drift = _rates(w0, lam)
    time = _not_negative(w0, t, "flow time")
    return _blend(w0, lam, torch.exp(-fit * time), torch.exp(-drift * time))


def addition_descent(
    w0: Float[Tensor, " n"], steps: Int[Tensor, "*times"] | int, *, lam: float, eta: float
) -> Float[Tensor, "*times n"]:
    """Solve gradient descent exactly: the flow with each exp(-rate t) replaced by (1 - eta rate)^steps.

    Args:
        w0: Start.
        steps: Whole numbers of steps, at least 0.
        lam: Weight of the norm, at least 0.
        eta: Step size; it converges for eta < 1 / (N + lam).

    Returns:
        The weights after each number of steps.

    Raises:
        MetricInputError: If ``w0`` is no finite vector.
        PlanError: If a value is out of range, or the step size diverges.

    Example:
        >>> w = addition_descent(torch.tensor([-1.0, 1.0]), 1, lam=0.0, eta=0.25)
        >>> w.tolist()  # the whole error of 2 is shared out in one step
        [0.0, 2.0]
    """
    fit, drift = _rates(w0, lam)
    if not 0 < eta * fit < 2:
        raise PlanError(
            f"eta is {eta}: gradient descent diverges here.\nGive 0 < eta < {2 / fit:g} = 1/(N + lam)."
        )
    k = _not_negative(w0, steps, "number of steps")
    if bool((k != k.round()).any()):
        raise PlanError(
            "A number of steps is not whole.\nRound it, or use addition_flow for times."
        )
    return _blend(w0, lam, (1.0 - eta * fit) ** k, (1.0 - eta * drift) ** k)


def addition_times(
    w0: Float[Tensor, " n"],
    *,
    lam: float,
    margin: float = 0.01,
    tau: float = 0.01,
    eta: float | None = None,
) -> AdditionTimes:
    r"""Tell when the fit is done and when the drift is done.

    .. math:: t_\mathrm{drift} = \ln(\|w_0 - \bar w_0\|^2 / \tau) / (4 \lambda)

    Args:
        w0: Start.
        lam: Weight of the norm, above 0.
        margin: The fit ends where the training loss is its floor plus this.
        tau: The drift ends where ||w - mean w||^2 is this.
        eta: Step size below 1/(2N + 2 lam), for an answer in steps of gradient descent; None for flow time.

    Returns:
        Both times; 0 for a phase that is over at the start.

    Raises:
        MetricInputError: If ``w0`` is no finite vector.
        PlanError: If ``lam``, ``margin`` or ``tau`` is not above 0, or ``eta`` out of range.

    Example:
        Half the decay, twice the wait:

        >>> w0 = torch.tensor([-1.0, 1.0], dtype=torch.float64)
        >>> slow, fast = (addition_times(w0, lam=lam).drift for lam in (0.01, 0.02))
        >>> round(slow, 2), round(slow / fast, 2)
        (132.46, 2.0)
    """
    fit, drift = _rates(w0, lam)
    if not (lam > 0 and margin > 0 and tau > 0):
        raise PlanError(
            f"lam is {lam}, margin {margin}, tau {tau}.\nGive all above 0: without decay nothing drifts."
        )
    if eta is not None:
        if not 0 < eta * fit < 1:
            raise PlanError(
                f"eta is {eta}: the fit overshoots.\nGive 0 < eta < {1 / fit:g} = 1/(2N + 2 lam)."
            )
        fit, drift = -math.log1p(-eta * fit), -math.log1p(-eta * drift)
    n = w0.numel()
    short = n * lam / (n + lam)
    gap = w0.sum().item() - (n - short)
    # the loss is (|gap| e^{-rt} +- short)^2: plus from below s*, minus from above it
    left = math.sqrt(short**2 + margin) - math.copysign(short, -gap)
    spread = (w0 - w0.mean()).square().sum().item()
    return AdditionTimes(
        fit=math.log(max(1.0, abs(gap) / left)) / fit,
        drift=math.log(max(1.0, spread / tau)) / (2.0 * drift),
    )


def _rates(w0: Tensor, lam: float) -> tuple[float, float]:
    """Return the rates of fit and drift, after a look at what was given."""
    if w0.ndim != 1 or not w0.numel() or not torch.isfinite(w0).all():
        raise MetricInputError(
            f"The start is no finite vector: shape {tuple(w0.shape)}.\nGive one number per weight."
        )
    if not 0 <= lam < math.inf:
        raise PlanError(f"lam is {lam}.\nGive a finite number, at least 0.")
    return 2.0 * w0.numel() + 2.0 * lam, 2.0 * lam


def _not_negative(w0: Tensor, values: Tensor | float | int, what: str) -> Tensor:
    values = torch.as_tensor(values, dtype=w0.dtype)
    if bool((values < 0).any()):
        raise PlanError(f"A {what} is negative.\nCount from 0, the start.")
    return values


def _blend(w0: Tensor, lam: float, fit: Tensor, drift: Tensor) -> Tensor:
    """Return mean + deviations, where each mode has shrunk by its own factor."""
    n = w0.numel()
    end = n / (n + lam)
    mean = end + (w0.mean() - end) * fit
    return mean[..., None] + (w0 - w0.mean()) * drift[..., None]
