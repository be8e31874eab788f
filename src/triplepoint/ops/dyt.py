"""Dynamic Tanh (DyT): squash each element instead of normalising each token.

Axes: ``*batch`` any leading axes, ``dim`` the axis the replaced norm ran over.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.extras import optional
from triplepoint.ops._base import Tanh, scalar
from triplepoint.ops._blocks import Curve, argument, squash_affine


def _split(z: Tensor, slope: Tensor) -> None:
    """Leave tanh(z) in ``z`` and 1 - tanh(z)^2 in ``slope``."""
    z.tanh_()
    torch.addcmul(z.new_ones(1), z, z, value=-1, out=slope)


TANH = Curve(torch.tanh, _split)


def _kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """Return Liger's fused kernel where it is installed and can run, else None.

    Its gradient of alpha is summed in no fixed order, so it is left out where determinism is asked for.
    """
    if device.type != "cuda" or torch.compiler.is_compiling():
        return None
    if torch.are_deterministic_algorithms_enabled():
        return None
    liger = optional("liger_kernel.transformers.functional")
    return None if liger is None else liger.liger_dyt


class DyT(Tanh):
    r"""Elementwise replacement for LayerNorm.

    .. math:: \mathrm{DyT}(x) = \gamma \odot \tanh(\alpha x) + \beta

    One scalar :math:`\alpha` per layer; :math:`\gamma, \beta` per feature. Unlike LayerNorm nothing here
    depends on the other features of a token, so the output keeps the input's scale while
    :math:`|\alpha x| \ll 1` and loses it beyond.

    On CUDA it runs Liger's kernel where ``liger_kernel`` is installed; that cannot be differentiated twice.

    Args:
        dim: Number of features.
        alpha: Initial value of the learnable scalar, dimensionless. 0.5 is the paper's default for
            everything except language models.
        affine: Whether to learn a gain; a norm without one gives an op without.
        bias: Whether to learn a shift.
        axis: Where the features are: -1, or 1 for channels-first ``[batch, dim, *positions]``.
        device: As in any ``torch`` layer.
        dtype: As in any ``torch`` layer.

    References:
        Zhu, Chen, He, LeCun and Liu (2025), `Transformers without Normalization
        <https://arxiv.org/abs/2503.10622>`_, Sec. 4.

    Example:
        >>> op = DyT(2, alpha=1.0)
        >>> op(torch.tensor([0.0, 100.0])).tolist()
        [0.0, 1.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        affine: bool = True,
        bias: bool = True,
        axis: int = -1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(dim, affine=affine, bias=bias, axis=axis, device=device, dtype=dtype)
        self.alpha = scalar(alpha, device=device, dtype=dtype)

    def pre_activation(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``alpha * x`` in float32, the argument of the tanh."""
        return argument(x, self.alpha, None)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Apply the op: computed in float32, returned in the dtype of ``x``; keeps only ``x`` for backward."""
        # Liger multiplies in alpha's dtype, always has gain and shift, and knows the last axis only
        fits = self.alpha.dtype == torch.float32 and self.bias is not None and self.axis == -1
        if fits and self.weight is not None and (kernel := _kernel(x.device)) is not None:
            return kernel(x, self.alpha, self.weight, self.bias)
        return squash_affine(
            x, self.alpha, None, self.weight, self.bias, curve=TANH, axis=self.axis
        )


DynamicTanh = DyT
"""The class name in the authors' repository."""
