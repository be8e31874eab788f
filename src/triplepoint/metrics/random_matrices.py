r"""What a spectrum would be if the entries were noise: the Marchenko-Pastur bulk, its edge, and a shuffled twin.

Symbols:
    m >= n  the sides of the matrix (the larger first), q = n / m
    sd      standard deviation of an entry, ``noise_sd`` in results
    lambda  eigenvalues of W^T W, not divided by m; for pure noise they fill sd^2 (sqrt m -+ sqrt n)^2
"""

from __future__ import annotations

import dataclasses
import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

TRACY_WIDOM_99 = 2.0234
"""99 % quantile of the Tracy-Widom law of real matrices: Johnstone (2001), Ann. Stat. 29, Table 1."""

_GRID = 4001
_SHUFFLED_TOGETHER = 2**16
_BLOCKS_IN_A_ROW = 16


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Bulk:
    """The Marchenko-Pastur law nearest to a spectrum, and what stands out of it."""

    noise_sd: float
    """Standard deviation of an entry of the noise whose median eigenvalue is the observed one."""
    edge: float
    """Upper end of the bulk, ``noise_sd^2 (sqrt m + sqrt n)^2``."""
    spike_threshold: float
    """What the largest eigenvalue of pure noise of this level exceeds in 1 % of draws."""
    spikes: int
    """Eigenvalues above ``spike_threshold``."""
    soft_rank: float
    """``edge / lambda_max``: about 1 for noise, small where signal stands out, 0 for a zero matrix."""


def marchenko_pastur(evals: Float[Tensor, " k"], *, rows: int, columns: int) -> Bulk:
    r"""Fit the noise level of a matrix by its median eigenvalue, and count the eigenvalues beyond noise.

    .. math:: \hat s^2 = \mathrm{median}(\lambda) / (m\,\mu_q), \qquad \lambda_+ = \hat s^2 (\sqrt m + \sqrt n)^2

    with :math:`\mu_q` the median of the Marchenko-Pastur law of ratio q = n/m. The median is moved little by a few
    spikes, unlike the mean; where signal fills the spectrum the fit is of a bulk that is not there. The median of few
    eigenvalues is uncertain itself: in simulations 1 to 2 % of elongated noise matrices had a spike, and of square ones
    2 % with sides of 128, 4 % of 64, 6 % of 32, 8 % of 8.

    Args:
        evals: All min(rows, columns) eigenvalues of W^T W, zeros included, any order.
        rows: Of the matrix.
        columns: Of the matrix.

    Returns:
        The bulk; all zeros for a matrix whose median eigenvalue is 0.

    References:
        Gavish and Donoho (2014), The optimal hard threshold for singular values is 4/sqrt(3), IEEE TIT 60, Sec. III.E;
        Johnstone (2001), Annals of Statistics 29, for the scale of the largest eigenvalue.

    Example:
        >>> noise = torch.randn(400, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> bulk = marchenko_pastur(torch.linalg.eigvalsh(noise.T @ noise), rows=400, columns=100)
        >>> round(bulk.noise_sd, 1), bulk.spikes  # entries of variance 1, edge (20 + 10)^2 = 900
        (1.0, 0)
    """
    m, n = max(rows, columns), min(rows, columns)
    lam = evals.double()
    median = float(lam.quantile(0.5)) if lam.numel() else 0.0
    if median <= 0:
        return Bulk(noise_sd=0.0, edge=0.0, spike_threshold=0.0, spikes=0, soft_rank=0.0)
    variance = median / (m * median_of_marchenko_pastur(n / m))
    edge = variance * (math.sqrt(m) + math.sqrt(n)) ** 2
    threshold = variance * _largest_of_noise(m, n)
    return Bulk(
        noise_sd=math.sqrt(variance),
        edge=edge,
        spike_threshold=threshold,
        spikes=int((lam > threshold).sum()),
        soft_rank=edge / float(lam.max()),
    )


def _largest_of_noise(m: int, n: int) -> float:
    """Return the 99 % quantile of the largest eigenvalue for unit variance, by Johnstone's centre and scale."""
    a, b = math.sqrt(max(m - 1, 1)), math.sqrt(n)
    return (a + b) ** 2 + TRACY_WIDOM_99 * (a + b) * (1 / a + 1 / b) ** (1 / 3)


@functools.lru_cache(maxsize=256)
def median_of_marchenko_pastur(q: float) -> float:
    r"""Return the median of the Marchenko-Pastur law of ratio ``q = n/m`` in (0, 1], for eigenvalues over m.

    .. math:: p(x) = \frac{\sqrt{(b - x)(x - a)}}{2 \pi q x}, \qquad a, b = (1 \mp \sqrt q)^2

    by the trapezoidal rule over the singular value s = sqrt x, s between its ends as (1 - cos theta)/2 runs, where
    the density has no poles even for q = 1.

    Example:
        >>> round(median_of_marchenko_pastur(1.0), 4)  # the square of the median 0.8079 of the quarter circle
        0.6528
    """
    low, high = 1 - math.sqrt(q), 1 + math.sqrt(q)
    theta = torch.linspace(0, math.pi, _GRID, dtype=torch.float64)
    s = low + (high - low) * (1 - theta.cos()) / 2
    # sqrt(s^2 - low^2) / s, which for low = 0 is 1 at s = 0 too
    rise = (1 - (low / s.clamp(min=1e-300)).square()).clamp(min=0).sqrt()
    density = (high**2 - s.square()).clamp(min=0).sqrt() * rise * theta.sin()
    mass = torch.cumulative_trapezoid(density, theta)
    at = int(torch.searchsorted(mass, mass[-1] / 2))
    below = mass[at - 1]
    share = float((mass[-1] / 2 - below) / (mass[at] - below))
    return float(s[at] + share * (s[at + 1] - s[at])) ** 2


def shuffled(w: Float[Tensor, "m n"], *, seed: int = 0) -> Float[Tensor, "m n"]:
    """Return the matrix with the same entries in random places: what is left without correlations.

    A copy, shuffled by :func:`shuffle_in_place`.

    Example:
        >>> shuffled(torch.arange(4.0).reshape(2, 2)).flatten().sort().values.tolist()
        [0.0, 1.0, 2.0, 3.0]
    """
    return shuffle_in_place(w.detach().clone(), seed=seed)


def shuffle_in_place(w: Float[Tensor, "m n"], *, seed: int = 0) -> Float[Tensor, "m n"]:
    """Move the entries to random places in the memory that they are in, and return ``w``.

    Up to 65,536 entries all places are alike. A larger matrix is shuffled in B blocks of about that size or 64 rows,
    each of every B-th row: a block fits the processor's cache and holds rows from everywhere. Sixteen blocks at a time
    get their orders by applying one random order again and again. That is some five times as fast as one order of all
    entries. Rows are those of the memory: columns for a transposed ``w``. Beside ``w`` it takes 28 bytes an entry of
    one block.
    """
    tall = w.T if w.T.is_contiguous() else w
    generator = torch.Generator(device=w.device).manual_seed(seed)
    block = max(_SHUFFLED_TOGETHER, 64 * tall.shape[1])
    blocks = max(1, round(tall.numel() / block))
    order = step = torch.empty(0, dtype=torch.int64)
    for first in range(blocks):
        rows = tall[first::blocks]
        flat = rows.flatten()
        if first % _BLOCKS_IN_A_ROW == 0 or len(order) != len(flat):
            order = step = torch.randperm(len(flat), generator=generator, device=w.device)
        else:
            order = step.index_select(0, order)
        rows.copy_(flat.index_select(0, order).view(rows.shape))
    return w
