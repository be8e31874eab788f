"""What a normalisation layer is, in the terms that an op is born from."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from triplepoint.errors import ModelError


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormFacts:
    """One LayerNorm or RMSNorm of any class, read.

    ``y = (weight + weight_offset) * (x - mean) / sqrt(mean((x - mean)^2) + eps) + bias``, with mean 0 where it is
    not centred.

    Example:
        >>> facts = facts_of(nn.RMSNorm(4, eps=1e-6))
        >>> facts.dim, facts.centred, facts.eps, facts.bias
        (4, False, 1e-06, None)
    """

    dim: int
    """Number of features it runs over."""
    centred: bool
    """Whether it subtracts the mean: LayerNorm does, RMSNorm does not."""
    eps: float | None = 1e-5
    """Added to the mean square, in units of the input squared; None: the machine epsilon of the input's dtype."""
    axis: int = -1
    """Where the features are in its input: -1, or 1 for channels-first ``[batch, dim, *positions]``."""
    weight: Tensor | None = None
    """The stored gain ``[dim]``; None where it has none."""
    weight_offset: float = 0.0
    """What it adds to the stored gain: 1 where it stores the gain's distance from 1."""
    bias: Tensor | None = None
    """The stored shift ``[dim]``; None where it has none."""


def facts_of(norm: nn.Module) -> NormFacts:
    """Read a norm of torch, or one that is an op of this library already.

    Raises:
        ModelError: If it runs over more than one axis.
    """
    return NormFacts(
        dim=_dim_of(norm),
        centred=getattr(norm, "centred", not isinstance(norm, nn.RMSNorm)),
        eps=getattr(norm, "eps", 1e-5),
        axis=getattr(norm, "axis", -1),
        weight=getattr(norm, "weight", None),
        bias=getattr(norm, "bias", None),
    )


def _dim_of(norm: nn.Module) -> int:
    shape = getattr(norm, "normalized_shape", None)
    if shape is None:
        return int(norm.dim)
    if len(shape) != 1:
        raise ModelError(
            f"{type(norm).__name__} normalises over {len(shape)} axes {tuple(shape)}; ops replace norms "
            "over the last axis only.\nLeave this site out with where=, or flatten those axes."
        )
    return int(shape[0])
