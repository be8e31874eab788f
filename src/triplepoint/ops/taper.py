r"""TaperNorm: a norm in early training that is turned, by a gate, into a fixed scaling of each feature.

.. math:: y = g \, \gamma \odot n(x) + (1 - g) \, c \, \tilde\gamma \odot x + \beta

with n the norm without gain, RMSNorm or LayerNorm as the replaced one was. The gate g is not trained: it is 1 during
warm-up, then falls along a half cosine to 0, after which nothing depends on a token's statistics any more.

From the paper (arXiv 2602.10408): the formula, the schedule's shape, that :math:`\tilde\gamma` is trained and copied from
:math:`\gamma` where the taper starts, and that c is set there by least squares from exponential averages. From a
third-party port: their decay 0.99 and the bounds of c. Ours: when the taper starts and ends, one :math:`\beta` for both
branches, and c as the match of the LayerNorm branch, which is the paper's where nothing is centred.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.errors import ModelError
from triplepoint.ops._base import Affine
from triplepoint.ops._blocks import along, wide
from triplepoint.ops.facts import NormFacts

DECAY = 0.99
"""Of the averages, per training step."""
BOUNDS = (1e-6, 1e6)
"""Of c, in units of 1 / x."""


def gate_at(progress: float, *, start: float, end: float) -> float:
    """Return the gate at a share of the run: 1 up to ``start``, 0 from ``end`` on, half a cosine between.

    Example:
        >>> [round(gate_at(p, start=0.2, end=0.6), 3) for p in (0.1, 0.2, 0.3, 0.4, 0.6, 1.0)]
        [1.0, 1.0, 0.854, 0.5, 0.0, 0.0]
    """
    part = min(max((progress - start) / (end - start), 0.0), 1.0)
    return 0.5 * (1 + math.cos(math.pi * part))


_AT_FIRST = {"gate": 1.0, "scale": 1.0, "matched": 0.0, "squared": 0.0}
"""Its buffers, where they start."""


class Taper(Affine):
    r"""A norm that training tapers to a fixed scaling; :func:`fold` then moves it into the next layers.

    The training loop calls :meth:`advance` before each step; without that it stays the norm it replaced. Keep the
    final norm of a model (``where=``): it anchors the scale of the logits, which grow without bound otherwise.

    Args:
        dim: Number of features.
        centred: Whether the norm is LayerNorm rather than RMSNorm.
        eps: Added to the mean square, in units of ``x`` squared; None: the machine epsilon, as in ``nn.RMSNorm``.
        start: Share of the run after which the gate falls; ours.
        end: Share of the run from which the gate is 0; ours.
        affine: Whether to learn the gains.
        bias: Whether to learn a shift.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    Raises:
        ModelError: If not ``0 < start < end <= 1``: c is averaged before ``start``.

    References:
        Kanavalau, Amo Alonso and Lall (2026), arXiv 2602.10408.

    Example:
        >>> op = Taper(2, centred=False, eps=0.0)  # rms of (3, 4) is sqrt(12.5)
        >>> [round(y, 4) for y in op(torch.tensor([3.0, 4.0])).tolist()]
        [0.8485, 1.1314]
    """

    def __init__(
        self,
        dim: int,
        *,
        centred: bool = False,
        eps: float | None = 1e-5,
        start: float = 0.2,
        end: float = 0.8,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        if not 0 < start < end <= 1:
            raise ModelError(
                f"A taper needs 0 < start < end <= 1, got start={start:g} and end={end:g}.\n"
                "They are shares of the run: try start=0.2, end=0.8."
            )
        self.centred, self.eps, self.start, self.end = centred, eps, start, end
        like = {"device": device, "dtype": dtype}
        self.tapered_weight = nn.Parameter(torch.ones(dim, **like)) if affine else None
        for name, value in _AT_FIRST.items():
            self.register_buffer(name, torch.full((1,), value, device=device))

    @classmethod
    def from_facts(cls, facts: NormFacts, **born: bool | float | None) -> Taper:
        """Build the taper of the norm that was read: of its kind, with its eps, gain and shift."""
        op = super().from_facts(facts, **{"centred": facts.centred, "eps": facts.eps, **born})
        if op.weight is not None:
            with torch.no_grad():
                op.tapered_weight.copy_(op.weight)
            op.tapered_weight.requires_grad_(op.weight.requires_grad)
        return op

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew: both gains 1, shift 0, the gate open and nothing averaged."""
        super().reset_parameters()
        if self.tapered_weight is not None:
            nn.init.ones_(self.tapered_weight)
        for name, value in _AT_FIRST.items():
            getattr(self, name).fill_(value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Taper:
        super()._apply(fn, recurse)
        for name, buffer in self.named_buffers():  # averages in bfloat16 would never move
            setattr(self, name, buffer.float())
        return self

    # -- schedule --------------------------------------------------------------------------------------

    @torch.no_grad()
    def advance(self, step: int, *, steps: int) -> None:
        """Set the gate for training step ``step`` of ``steps``, counted from 1; where the taper starts, match first."""
        before = float(self.gate)
        self.gate.fill_(gate_at(step / steps, start=self.start, end=self.end))
        if before == 1 and float(self.gate) < 1:
            self._match()

    def _match(self) -> None:
        """Start the linear branch as the nearest to the norm: its gain copied, its scale by least squares."""
        if not float(self.squared) > 0:
            raise ModelError(
                "The taper starts, but no training step was seen from which to match its scale.\n"
                "Call advance() before each step from the first on, in training mode, or choose a larger start."
            )
        self.scale.copy_((self.matched / self.squared).clamp(*BOUNDS))
        if self.weight is not None:
            self.tapered_weight.copy_(self.weight)

    # -- computing -------------------------------------------------------------------------------------

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Apply the op: statistics in float32, returned in the dtype of ``x``; in training, they are averaged."""
        linear = self.scale * self._gained(self.tapered_weight, wide(x))
        if not self.training and not torch.compiler.is_compiling() and not self.gate.any():
            return self._shifted(linear, x.dtype)
        normed = self._gained(self.weight, self._norm(wide(x)))
        if self.training:
            self._average(normed.detach(), self._gained(self.weight, wide(x)).detach())
        return self._shifted(self.gate * normed + (1 - self.gate) * linear, x.dtype)

    def _norm(self, x: Tensor) -> Tensor:
        moved = x.movedim(self.axis, -1)
        if self.centred:
            y = F.layer_norm(moved, (self.dim,), None, None, self.eps)
        else:
            y = F.rms_norm(moved, (self.dim,), None, self.eps)
        return y.movedim(-1, self.axis)

    def _average(self, normed: Tensor, gained: Tensor) -> None:
        """Average the two sums of the least squares; both start from 0, so that their ratio needs no correction."""
        self.matched.lerp_((normed * gained).mean().float(), 1 - DECAY)
        self.squared.lerp_(gained.square().mean().float(), 1 - DECAY)

    def _gained(self, weight: Tensor | None, x: Tensor) -> Tensor:
        return x if weight is None else along(weight, x, self.axis) * x

    def _shifted(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        return (y if self.bias is None else y + along(self.bias, y, self.axis)).to(dtype)


@torch.no_grad()
def fold(op: Taper, *layers: nn.Module) -> None:
    r"""Move a taper whose gate is 0 into all linear layers that read its output; it is the identity afterwards.

    :math:`W \leftarrow W \,\mathrm{diag}(c \tilde\gamma)` and :math:`b \leftarrow b + W \beta` with the old W. Outputs
    stay the same up to rounding. Which layers read it is for the caller to know; all must be given.

    Args:
        op: The taper, its features on the last axis.
        layers: The layers, each an ``nn.Linear``; changed in place.

    Raises:
        ModelError: If the gate is not 0, a layer is not an ``nn.Linear`` over the op's features, or one has no bias
            to take up the op's.
    """
    if float(op.gate) != 0:
        raise ModelError(
            f"Only a taper that has ended can be folded; its gate is {float(op.gate):g}.\n"
            "Train to the end of the taper first."
        )
    shift = op.bias is not None and bool(op.bias.any())
    for layer in layers:
        if (
            not isinstance(layer, nn.Linear)
            or layer.in_features != op.dim
            or (shift and layer.bias is None)
        ):
            raise ModelError(
                f"A taper of {op.dim} features folds into an nn.Linear that reads them"
                f"{' and has a bias' if shift else ''}, got {layer}.\n"
                "Leave this taper as it is: with its gate at 0 it is a scaling of each feature."
            )
    gain = op.scale if op.tapered_weight is None else op.scale * op.tapered_weight
    for layer in layers:
        if shift:
            layer.bias += layer.weight @ op.bias.to(layer.weight.dtype)
        layer.weight *= gain.to(layer.weight.dtype)
    op.scale.fill_(1.0)
    for parameter, value in ((op.tapered_weight, 1.0), (op.bias, 0.0)):
        if parameter is not None:
            parameter.fill_(value)
