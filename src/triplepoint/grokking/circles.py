"""The circles of an embedding as pictures: each frequency's plane, and which frequencies to draw.

Symbols, as in the paper:
    E       embedding [p, dim]: one row per residue; for a two-layer net its first layer W1
    F_k     (1/p) sum_j e^{-2 pi i jk/p} E_j, k = 1 .. K [dim]
    P_k     power ||F_k||^2
    p, K    residues, odd; (p-1)/2 frequencies
    u, v    axes of the plane of F_k: u along Re F_k, v the part of -Im F_k orthogonal to u, both of length 1 [dim]
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from triplepoint.errors import PlanError
from triplepoint.grokking.representation import fourier_features

FLAT = 1e-12
"""An axis shorter than this share of ||F_k|| is rounding: the circle is a line, or there is none."""


def circle_points(E: Float[Tensor, "p dim"], k: int) -> Float[Tensor, "p 2"]:
    r"""Project the rows of an embedding on the plane of its ``k``-th frequency.

    .. math:: x_j = \langle E_j - \bar E, u\rangle, \qquad y_j = \langle E_j - \bar E, v\rangle

    With orthogonal frequencies row ``j`` lies at ``2 (|Re F_k| cos(2 pi jk/p), |Im F_k| sin(2 pi jk/p))``:
    residue 0 on the right, the others counter-clockwise in steps of k. The axes are fixed by ``F_k`` itself, so
    that pictures along a training do not turn. Not the two first principal components, which mix
    frequencies of equal power. In a wide layer random rows give a rough circle too, since random directions
    are nearly orthogonal: what training changes is the scatter about it.

    Args:
        E: The embedding, a row per residue, p odd.
        k: The frequency, 1 to (p-1)/2.

    Returns:
        Orthonormal coordinates in the unit of E, double precision; 0 along an axis that does not exist (a single
        unit, or a frequency without power).

    Raises:
        PlanError: If there is no such frequency.
        MetricInputError: If E is no finite matrix, or p is even or below 3.

    References:
        arXiv 2511.01938, section 7: the planes; the choice of axes is ours.

    Example:
        >>> angle = 2 * torch.pi * torch.arange(3) / 3
        >>> E = 5 * torch.stack([angle.cos(), angle.sin()], dim=1) + 1  # the mean row is taken off
        >>> circle_points(E, 1).round(decimals=2).add(0.0).tolist()
        [[5.0, 0.0], [-2.5, 4.33], [-2.5, -4.33]]
    """
    F = fourier_features(E)
    if not 1 <= k <= len(F):
        raise PlanError(
            f"There is no frequency k = {k} with p = {len(E)} residues.\nGive k from 1 to {len(F)}."
        )
    u = _unit(F[k - 1].real, F[k - 1])
    v = -F[k - 1].imag
    v = _unit(v - (v @ u) * u, F[k - 1])
    rows = E.double()
    return (rows - rows.mean(0)) @ torch.stack([u, v], dim=1)


def _unit(axis: Tensor, feature: Tensor) -> Tensor:
    """Return ``axis`` at length 1, or zeros where it is rounding beside ``feature``."""
    length = axis.norm()
    return axis / length if length > FLAT * feature.norm() else torch.zeros_like(axis)


def strongest_frequencies(E: Float[Tensor, "p dim"], count: int) -> list[int]:
    """Return the ``count`` frequencies of largest power P_k, strongest first; of equals the lower first.

    Args:
        E: The embedding, a row per residue, p odd.
        count: How many, at least 1; more than there are gives all.

    Raises:
        PlanError: If ``count`` is below 1.
        MetricInputError: If E is no finite matrix, or p is even or below 3.

    Example:
        >>> angle = 2 * torch.pi * torch.outer(torch.arange(7.0), torch.arange(1.0, 4.0)) / 7
        >>> E = torch.cat([angle.cos(), angle.sin()], dim=1) * torch.tensor([1.0, 3.0, 2.0] * 2)
        >>> strongest_frequencies(E, 2)
        [2, 3]
    """
    if count < 1:
        raise PlanError(f"{count} frequencies were asked for.\nAsk for at least 1.")
    power = fourier_features(E).abs().square().sum(1)
    return [int(k) + 1 for k in power.argsort(descending=True, stable=True)[:count]]
