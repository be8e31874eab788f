"""Start a swapped model from data: alpha by how much it saturates, the gain by what the norm put out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from triplepoint.capture import Capture
from triplepoint.errors import ModelError, PlanError
from triplepoint.families.wrappers import unwrapped
from triplepoint.ops import NormOp
from triplepoint.surgery import original_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What one op was set to."""

    path: str
    alpha: float
    """As stored: rounded to the dtype of the parameter."""
    share: float
    """Measured share of ``|alpha x| > threshold`` on the batch, in [0, 1]."""
    gain_error: float | None = None
    """What least squares left: norm of the residual over the norm of the norm's output, both without the shift; 0 is
    a perfect match. None where the gain was left alone."""


def alpha_from(
    model: nn.Module,
    batch: Any,
    *,
    share: float = 0.05,
    threshold: float = 2.0,
    match_gain: Literal["feature", "scalar"] | None = None,
) -> list[Calibrated]:
    r"""Set the alpha of every op so that a stated share of its inputs is squashed hard, on one batch.

    .. math:: \#\{|\alpha x| > t\} = \lfloor s n \rfloor

    for the n elements x that enter the op: exact but for ties and for the rounding of alpha to its dtype. Ops are set in
    the order of one forward pass, each before it runs, so a later op is set on what the earlier ones, as set, feed it.
    An op that runs several times in the pass is set on all it has seen so far.

    With ``match_gain`` the gain is then fitted to what the norm that the op replaced gives on the same input: by
    ``feature``, each on its own, :math:`\gamma_j = \sum_i s_{ij} (y_{ij} - \beta_j) / \sum_i s_{ij}^2`; by ``scalar``,
    one factor on the gain that there is. The shift :math:`\beta` is left alone, and norms that share a gain get the
    last one's.

    Args:
        model: Swapped by :func:`~triplepoint.surgery.swap_norms`; its ops are changed in place. It is run once, in
            evaluation mode and without gradients.
        batch: A tensor, a tuple of arguments or a mapping of keywords: one input of the model.
        share: In (0, 1); 0.05 is about what standard normal inputs have at alpha 1 beyond 2.
        threshold: In units of the pre-activation; |alpha x| > 2 is where tanh' < 0.071.
        match_gain: How to fit the gain; None leaves it as it is.

    Returns:
        One item per op that has an alpha and was run, in the order of the pass.

    Raises:
        PlanError: If the share is not between 0 and 1.
        ModelError: If no op with an alpha was run, or one has too few or only zero inputs to set its alpha by.

    Example:
        >>> from triplepoint.surgery import swap_norms
        >>> model = nn.Sequential(nn.LayerNorm(4))
        >>> _ = swap_norms(model, "dyt:paper")
        >>> found = alpha_from(model, torch.tensor([[0.0, 1.0, 3.0, 5.0]]), share=0.25)  # halfway, at 4
        >>> found[0].alpha, found[0].share
        (0.5, 0.25)
    """
    if not 0 < share < 1:
        raise PlanError(
            f"share is a fraction between 0 and 1, got {share}.\n"
            "0.05 squashes one element in twenty beyond the threshold."
        )
    model = unwrapped(model)
    ops = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, NormOp) and isinstance(getattr(module, "alpha", None), nn.Parameter)
    }
    seen: dict[str, list[Tensor]] = {}
    found: dict[str, Calibrated] = {}

    def see(path: str, op: nn.Module, x: Tensor) -> None:
        seen.setdefault(path, []).append(x)
        found[path] = _set(path, op, seen[path], share, threshold, match_gain)

    with Capture(ops, see):
        _run_once(model, batch)
    if not found:
        raise ModelError(
            f"{type(model).__name__} ran no op that has an alpha.\n"
            'Swap its norms first, e.g. swap_norms(model, "dyt"), and pass a batch that reaches them.'
        )
    return list(found.values())


def _set(
    path: str, op: NormOp, inputs: list[Tensor], share: float, threshold: float, match_gain: Any
) -> Calibrated:
    size = torch.cat([x.float().flatten().abs() for x in inputs])
    edge = _edge(size, share)
    if edge is None:
        raise ModelError(
            f"{path} saw {len(size)} inputs, {int((size > 0).sum())} of them not zero: too few to set its alpha by "
            f"a share of {share:g}.\nPass a larger batch, or set that site's alpha with SwapPolicy(alpha=...)."
        )
    op.alpha.fill_(threshold / edge)
    alpha = float(op.alpha)
    measured = float((size * alpha > threshold).float().mean())
    error = None
    if match_gain is not None and op.weight is not None and original_of(op) is not None:
        error = _match(op, inputs, scalar=match_gain == "scalar")
    return Calibrated(path=path, alpha=alpha, share=measured, gain_error=error)


def _edge(size: Float[Tensor, " n"], share: float) -> float | None:
    """Return the number that ``floor(share n)`` of the sizes exceed: halfway between two of them."""
    above = math.floor(share * len(size))
    if above == 0 or not size.isfinite().all():
        return None
    low, high = (float(size.kthvalue(len(size) - above + k).values) for k in (0, 1))
    return (low + high) / 2 or None


def _match(op: NormOp, inputs: list[Tensor], *, scalar: bool) -> float:
    """Fit the op's gain by least squares to what its norm puts out; return the relative residual."""
    norm, axis = original_of(op), getattr(op, "axis", -1)
    # forward and not a call: the norm shares its hooks with the op
    target = torch.cat([_tokens(norm.forward(x), axis) for x in inputs])
    basis = torch.cat([_tokens(op.squash(op.pre_activation(x)), axis) for x in inputs])
    target = target if op.bias is None else target - op.bias.double()
    gain = op.weight.double()
    if scalar:
        shaped = gain * basis
        gain = gain * (shaped * target).sum() / shaped.square().sum()
    else:
        energy = basis.square().sum(0)
        gain = torch.where(energy > 0, (basis * target).sum(0) / energy, gain)
    op.weight.copy_(gain)
    return float((op.weight.double() * basis - target).norm() / target.norm())


def _tokens(x: Tensor, axis: int) -> Float[Tensor, "token dim"]:
    return x.double().movedim(axis, -1).flatten(0, -2)


def _run_once(model: nn.Module, batch: Any) -> None:
    """Run in evaluation mode, and leave each module in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        # inside a compiled pass nothing is shown
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(*(batch if isinstance(batch, tuple | list) else (batch,)))
    finally:
        for module, mode in modes:
            module.training = mode
