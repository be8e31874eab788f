"""LayerNorm and RMSNorm as ops: the baselines, and candidates for each other's place."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from triplepoint.ops._base import Affine
from triplepoint.ops._blocks import wide
from triplepoint.ops.facts import NormFacts


class LayerNorm(Affine):
    r"""Centre and scale each token.

    .. math:: y = \gamma \odot \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

    with the biased variance over the features.

    Args:
        dim: Number of features.
        eps: Added to the variance, in units of ``x`` squared; 1e-5 is torch's default.
        affine: Whether to learn a gain.
        bias: Whether to learn a shift.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    References:
        Ba, Kiros and Hinton (2016), arXiv 1607.06450.
    """

    centred = True

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        self.eps = eps

    @classmethod
    def from_facts(cls, facts: NormFacts, **born: bool | float | None) -> LayerNorm:
        """Build the LayerNorm that takes the place of the norm that was read, with its eps."""
        eps = 1e-5 if facts.eps is None else facts.eps  # nn.RMSNorm's may be None
        return super().from_facts(facts, **{"eps": eps, **born})

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Apply the op: torch's fused kernel, statistics in float32, returned in the dtype of ``x``."""
        if x.dtype == getattr(self.weight, "dtype", x.dtype):
            y = F.layer_norm(
                x.movedim(self.axis, -1), (self.dim,), self.weight, self.bias, self.eps
            )
            return y.movedim(-1, self.axis)
        y = F.layer_norm(wide(x).movedim(self.axis, -1), (self.dim,), None, None, self.eps)
        return self._affine(y.movedim(-1, self.axis), x.dtype)


class RMSNorm(Affine):
    r"""Scale each token by its root mean square, without centring.

    .. math:: y = \gamma \odot \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} + \beta

    ``bias`` is there only where the replaced norm had one.

    Args:
        dim: Number of features.
        eps: Added to the mean square, in units of ``x`` squared; 1e-5 as Llama has it. None means float32's
            machine epsilon 1.2e-7, as in ``nn.RMSNorm``.
        affine: Whether to learn a gain.
        bias: Whether to learn a shift.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    References:
        Zhang and Sennrich (2019), arXiv 1910.07467.
    """

    centred = False

    def __init__(
        self,
        dim: int,
        *,
        eps: float | None = 1e-5,
        affine: bool = True,
        bias: bool = False,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        self.eps = eps

    @classmethod
    def from_facts(cls, facts: NormFacts, **born: bool | float | None) -> RMSNorm:
        """Build the RMSNorm that takes the place of the norm that was read, with its eps."""
        return super().from_facts(facts, **{"eps": facts.eps, **born})

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Apply the op: statistics in float32, returned in the dtype of ``x``."""
        y = F.rms_norm(wide(x).movedim(self.axis, -1), (self.dim,), None, self.eps)
        return self._affine(y.movedim(-1, self.axis), x.dtype)
