"""What an embedding of a group looks like in the group's own coordinates.

Symbols, as in the paper:
    E       embedding [p, dim]: one row per residue; for a two-layer net its first layer W1
    F_k     (1/p) sum_j e^{-2 pi i jk/p} E_j, k = 1 .. (p-1)/2 [dim]; *features* are Re F_k and Im F_k
    P_k     power ||F_k||^2; of unit b, |F_kb|^2
    p, K    residues; (p-1)/2 frequencies
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from triplepoint.errors import MetricInputError
from triplepoint.grokking.concentration import effective_number, gini, inverse_participation_ratio

ACTIVE = 1e-3
"""A unit counts as active above this share of the mean power of a unit; below, its best frequency is noise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingFourier:
    """How much an embedding is a set of circles, one per frequency."""

    power: Tensor
    """P_k, k = 1 .. K [K]."""
    circularity: Tensor
    """Smaller over larger half-axis of the ellipse (Re F_k, Im F_k), each in [0, 1]; 1 is a circle, nan no power [K]."""
    norm_mean: float
    """Mean over the 2K features of their norms."""
    norm_cv: float
    """Standard deviation (over 2K, not 2K - 1) of those norms, over their mean."""
    cosine_mean: float
    """Mean |cosine| between different features; 0 where all are orthogonal."""
    cosine_max: float
    """Largest of them."""
    abs_same: float
    """Cosine of |Re F_k| and |Im F_k|, mean over k: 2/pi where a unit's phase is random."""
    abs_different: float
    """Cosine of the absolute values across different k, mean: falls as each circle takes its own units."""
    unit_concentration: float
    """Share of a unit's power in its best frequency, mean over active units; 1/K to 1."""
    units_active: int
    gini: float
    """Gini coefficient of P_k: 0 where all frequencies are equal."""
    inverse_participation: float
    """sum P_k^2 / (sum P_k)^2."""
    effective_frequencies: float
    """Its inverse, 1 to K."""
    constant_share: float
    """Share of ||E||^2 in k = 0, the mean row."""


def fourier_features(E: Float[Tensor, "p dim"]) -> Complex[Tensor, "K dim"]:
    """Return F_k for k = 1 .. (p-1)/2, p odd, in double precision.

    For another order of the group's elements permute the rows first, see ``discrete_log_order``.

    Args:
        E: The embedding, a row per residue.

    Returns:
        Complex features; real and imaginary part are the two axes of the k-th circle.

    Raises:
        MetricInputError: If E is no finite matrix, or p is even or below 3.

    Example:
        One turn on a circle:

        >>> angle = 2 * torch.pi * torch.arange(3) / 3
        >>> F = fourier_features(torch.stack([angle.cos(), angle.sin()], dim=1))
        >>> [round(z, 6) for z in F.abs().flatten().tolist()]
        [0.5, 0.5]
    """
    check_embedding(E)
    p = len(E)
    if p % 2 == 0 or p < 3:
        raise MetricInputError(
            f"The embedding has p = {p} rows.\n"
            "Give an odd p >= 3: an even one has a frequency without a circle; frequency_power takes any p."
        )
    return torch.fft.fft(E.double(), dim=0)[1 : (p + 1) // 2] / p


def frequency_power(E: Float[Tensor, "n dim"]) -> Float[Tensor, " frequencies"]:
    r"""Return the power of each frequency 0 .. n//2 so that they add up to the mean square of a row.

    .. math:: \sum_k \mathrm{power}_k = \|E\|^2 / n

    Frequencies k and -k are counted together; 0 and, for even n, n/2 stand alone.

    Args:
        E: The embedding, a row per element of a cyclic group in cyclic order.

    Returns:
        n//2 + 1 powers.

    Raises:
        MetricInputError: If E is no finite matrix.

    Example:
        >>> frequency_power(torch.tensor([[1.0], [-1.0]])).tolist()
        [0.0, 1.0]
    """
    check_embedding(E)
    n = len(E)
    power = (torch.fft.fft(E.double(), dim=0) / n).abs().square().sum(1)
    folded = power[: n // 2 + 1].clone()
    folded[1 : (n + 1) // 2] *= 2.0
    return folded


def describe_embedding(E: Float[Tensor, "p dim"]) -> EmbeddingFourier:
    """Measure the circles of an embedding: their sizes, shapes, angles to each other, and units.

    All numbers are about the embedding, none about what is done with it: a network may carry frequencies that its
    output ignores, see ``restricted_logits``.

    Args:
        E: Embedding of the residues 0 .. p-1, p odd; for a two-layer net ``W1``, for a transformer its token table.

    Returns:
        The numbers; for two-layer nets of p = 37, before training and after grokking: norm_cv 0.03 and 0.008,
        cosine_mean 0.036 and 0.005, abs_different 0.64 and 0.14, unit_concentration 0.19 and 0.63.

    Raises:
        MetricInputError: If E is no finite matrix, p is even or below 3, or E has no power beside the mean row.

    References:
        arXiv 2511.01938, section 7: features, their norms and cosines. Nanda et al. (2023), arXiv 2301.05217: Gini
        coefficient of the Fourier spectrum.

    Example:
        Three circles, each in a plane of its own:

        >>> angle = 2 * torch.pi * torch.outer(torch.arange(7.0), torch.arange(1.0, 4.0)) / 7
        >>> found = describe_embedding(torch.cat([angle.cos(), angle.sin()], dim=1))
        >>> round(found.effective_frequencies, 4), round(found.unit_concentration, 4)
        (3.0, 1.0)
    """
    F = fourier_features(E)
    by_unit = F.abs().square()
    power = by_unit.sum(1)
    if not power.sum() > 0:
        raise MetricInputError(
            "All rows of the embedding are equal: there is no frequency.\nCheck what was passed."
        )
    features = torch.stack([F.real, F.imag], dim=1)  # [K, 2, dim]
    axes = torch.nn.functional.pad(torch.linalg.svdvals(features), (0, 1))  # one unit: a line
    norms = features.norm(dim=2).flatten()
    cosines = _cosines(features.flatten(0, 1)).abs()
    beside = ~torch.eye(len(cosines), dtype=torch.bool, device=cosines.device)
    absolute = _cosines(features.abs().flatten(0, 1)).unflatten(0, (-1, 2)).unflatten(2, (-1, 2))
    other_k = ~torch.eye(len(F), dtype=torch.bool, device=cosines.device)
    of_unit = by_unit.sum(0)
    active = of_unit > ACTIVE * of_unit.mean()
    best = (by_unit[:, active].max(0).values / of_unit[active]).mean()
    return EmbeddingFourier(
        power=power,
        circularity=axes[:, 1] / axes[:, 0],
        norm_mean=norms.mean().item(),
        norm_cv=(norms.std(correction=0) / norms.mean()).item(),
        cosine_mean=cosines[beside].mean().item(),
        cosine_max=cosines[beside].max().item(),
        abs_same=absolute.diagonal(dim1=0, dim2=2)[0, 1].mean().item(),
        abs_different=absolute.transpose(1, 2)[other_k].mean().item()
        if len(F) > 1
        else float("nan"),
        unit_concentration=best.item(),
        units_active=int(active.sum()),
        gini=gini(power).item(),
        inverse_participation=inverse_participation_ratio(power).item(),
        effective_frequencies=effective_number(power).item(),
        constant_share=(
            len(E) * E.double().mean(0).square().sum() / E.double().square().sum()
        ).item(),
    )


def _cosines(rows: Tensor) -> Tensor:
    """Return the cosines between rows; 0 with a row of zeros."""
    unit = torch.nn.functional.normalize(rows, dim=1, eps=1e-300)
    return unit @ unit.T


def check_embedding(E: Tensor) -> None:
    """Raise :class:`MetricInputError` unless E is a finite matrix."""
    if E.ndim != 2 or not E.numel() or not torch.isfinite(E).all():
        raise MetricInputError(
            f"The embedding is no finite matrix: shape {tuple(E.shape)}.\n"
            "Give [p, dim], one row per element; a two-layer net's W1, or token_table[:p]."
        )
