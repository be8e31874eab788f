r"""How many directions activations use, from sums that add up over batches and ranks.

Symbols: x one token's features [d]; n tokens; S = sum x x^T and s = sum x, all that is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triplepoint.errors import MetricInputError
from triplepoint.metrics._base import Metric, State
from triplepoint.metrics.rank import ranks_of
from triplepoint.metrics.spectrum import gram_of


def activation_rank(*, centred: bool = False, name: str = "activation_rank") -> Metric:
    r"""Return the metric of the rank of all tokens' activations, streamed as d x d sums.

    .. math:: \lambda = \mathrm{eig}(S - n\,\bar x \bar x^\top), \qquad
        \mathrm{erank} = \exp H(\sqrt\lambda / \textstyle\sum \sqrt\lambda)

    without the mean term where not ``centred``. It is the rank of the matrix of *all* tokens seen, [n, d]; not the mean
    over batches of each batch's rank, which is smaller. Activations share a large mean direction in most networks, so
    centring matters. ``update(x, mask)`` counts only tokens where the mask [batch, seq] is true.

    Sums are kept in float64: n d^2 operations a batch, 8 d^2 bytes. Directions below 1e-7 of the largest sigma are not
    resolved and count as empty.

    Args:
        centred: Whether the mean over tokens is taken off.
        name: Of the metric, and beginning of its values' names.

    Returns:
        A metric with values NAME (Roy and Vetterli, from sigma), NAME_sq (from sigma squared), NAME_participation and
        NAME_stable, in dimensions, in [1, min(n, d)]; 0 for no tokens or all zeros, nan where any was not finite.

    Raises:
        MetricInputError: By ``update``, where the mask has another shape than the tokens.

    References:
        Roy and Vetterli (2007), EUSIPCO, pp. 606-610.

    Example:
        >>> metric = activation_rank()
        >>> round(metric.compute(metric.update(torch.eye(3).repeat(2, 1, 1)))["activation_rank"], 6)
        3.0
        >>> centred = activation_rank(centred=True)  # three points span a plane
        >>> round(centred.compute(centred.update(torch.eye(3)))["activation_rank"], 6)
        2.0
    """

    def update(x: Tensor, mask: Tensor | None = None) -> State:
        tokens = _tokens(x.detach(), mask)
        return {
            "gram": gram_of(tokens),
            "sum": tokens.sum(dim=0, dtype=torch.float64),
            "n": torch.tensor(len(tokens), device=x.device),
        }

    def compute(state: State) -> dict[str, float]:
        ranks = ranks_of(_eigenvalues(state, centred=centred))
        return {
            name: ranks.effective,
            f"{name}_sq": ranks.effective_sq,
            f"{name}_participation": ranks.participation,
            f"{name}_stable": ranks.stable,
        }

    return Metric(
        name=name,
        update=update,
        compute=compute,
        reads="activation",
        unit="dimensions",
        definition=(
            "exponential of the entropy of the singular values, normalised to sum 1, of the matrix of all tokens' "
            f"activations; {'the mean over tokens taken off' if centred else 'not centred'}"
        ),
        source="Roy and Vetterli (2007)",
    )


def _tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return x.flatten(0, -2)
    if mask.shape != x.shape[:-1]:
        raise MetricInputError(
            f"the mask {list(mask.shape)} does not fit activations {list(x.shape)}.\n"
            f"It needs one entry a token: {list(x.shape[:-1])}."
        )
    return x[mask.bool()]


def _eigenvalues(state: State, *, centred: bool) -> Tensor:
    gram, n = state["gram"], int(state["n"])
    if centred and n:
        gram = gram - state["sum"].outer(state["sum"]) / n
    if not gram.isfinite().all():
        # after a divergence: no number, and not the 0 of a site that is all zeros
        return gram.new_full((len(gram),), torch.nan)
    evals = torch.linalg.eigvalsh(gram).clamp(min=0)
    # rounding is relative to the sums before the mean is taken off
    noise = len(evals) * torch.finfo(torch.float64).eps * state["gram"].diagonal().sum()
    return evals.masked_fill(evals <= noise, 0.0)


ACTIVATION_RANK = activation_rank()
"""Not centred, as :func:`triplepoint.metrics.effective_rank`."""
