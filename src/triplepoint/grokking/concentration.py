"""How many of several shares matter: Gini, inverse participation, effective number.

Symbols:
    x       values that are at least 0 and are shared out along the last axis: powers of frequencies, say
    p       x / sum x
    n       length of the last axis
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import MetricInputError


def _shares(x: Tensor) -> Tensor:
    if not x.shape or not x.shape[-1] or not torch.isfinite(x).all() or bool((x < 0).any()):
        raise MetricInputError(
            "Shares need finite values that are at least 0, along a last axis that is not empty.\n"
            "Square amplitudes first, and drop samples with inf or nan."
        )
    total = x.sum(-1, keepdim=True)
    return torch.where(total > 0, x / total, torch.full_like(x, torch.nan))


def gini(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    r"""Return the Gini coefficient of each row.

    .. math:: G = \frac{2 \sum_i i\,x_{(i)}}{n \sum_i x_i} - \frac{n + 1}{n}, \qquad x_{(1)} \le \dots \le x_{(n)}

    Args:
        x: Values, at least 0.

    Returns:
        0 where all are equal, 1 - 1/n (not 1) where one has everything, nan where all are 0.

    Raises:
        MetricInputError: If a value is negative or not finite.

    Example:
        >>> round(gini(torch.tensor([0.0, 0.0, 1.0, 1.0])).item(), 6)
        0.5
    """
    p = _shares(x).sort(-1).values
    n = x.shape[-1]
    rank = torch.arange(1, n + 1, dtype=p.dtype, device=p.device)
    return 2.0 * (rank * p).sum(-1) / n - (n + 1) / n


def inverse_participation_ratio(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    r"""Return :math:`\sum_i p_i^2` of each row: the chance that two random shares fall on the same entry.

    With ``x`` the squares of amplitudes it is the IPR of physics, :math:`\sum a^4 / (\sum a^2)^2`.

    Args:
        x: Values, at least 0; squares, where they come from amplitudes.

    Returns:
        1/n where all are equal, 1 where one has everything, nan where all are 0.

    Raises:
        MetricInputError: If a value is negative or not finite.

    Example:
        >>> inverse_participation_ratio(torch.tensor([3.0, 1.0])).item()  # 9/16 + 1/16
        0.625
    """
    return _shares(x).square().sum(-1)


def effective_number(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    """Return 1 / :func:`inverse_participation_ratio`: how many equal entries would be as spread out; 1 to n.

    Not the exponential of the entropy, which is larger wherever shares differ.

    Args:
        x: Values, at least 0.

    Returns:
        A number in [1, n], nan where all values are 0.

    Raises:
        MetricInputError: If a value is negative or not finite.

    Example:
        >>> effective_number(torch.tensor([2.0, 2.0, 0.0])).item()
        2.0
    """
    return 1.0 / inverse_participation_ratio(x)
