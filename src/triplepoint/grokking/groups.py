"""Beyond addition mod p: the coordinates in which other groups are circles or blocks.

Symbols:
    E       embedding [n, dim], a row per element of the group
    g, h    elements; g h^-1 their quotient
    chi     character of an irreducible representation; d = chi(identity) its dimension
    p       a prime; 1 .. p-1 are a cyclic group under multiplication
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.representation import check_embedding


def discrete_log_order(p: int) -> Int[Tensor, " p_minus_1"]:
    """Return the residues 1 .. p-1 in the order g^0, g^1, ..., g the smallest primitive root of the prime p.

    In this order multiplication mod p is addition of positions: ``frequency_power(E[discrete_log_order(p)])`` is the
    spectrum of an embedding that learnt a * b.

    Args:
        p: A prime.

    Returns:
        The residues.

    Raises:
        PlanError: If p is not a prime.

    Example:
        >>> discrete_log_order(7).tolist()
        [1, 3, 2, 6, 4, 5]
    """
    for g in range(1, p):
        powers = [1]
        while (following := powers[-1] * g % p) not in (0, 1) and len(powers) < p:
            powers.append(following)
        if len(powers) == p - 1 and len(set(powers)) == p - 1:
            return torch.tensor(powers)
    raise PlanError(f"p = {p} is no prime: it has no primitive root of order p - 1.\nGive a prime.")


def irrep_power(
    E: Float[Tensor, "n dim"],
    quotients: Int[Tensor, "n n"],
    characters: Float[Tensor, "irreps n"],
) -> Float[Tensor, " irreps"]:
    r"""Return the share of an embedding's power in each irreducible representation of any finite group.

    .. math:: (P_\rho E)_g = \frac{d_\rho}{n} \sum_h \chi_\rho(g h^{-1}) E_h

    Costs n^2 per representation: 24 elements for S4, 120 for S5. For a cyclic group ``frequency_power`` says the same.

    Args:
        E: The embedding, a row per element.
        quotients: Index of g h^-1 for every g (row) and h (column).
        characters: Real characters, one row per representation, one column per element; element 0 the identity, so
            that the first column holds the dimensions. Add up a complex character and its conjugate and divide
            by sqrt(2) to make the pair real.

    Returns:
        Shares of ||E||^2; they add up to 1 where the table is complete. nan for E = 0.

    Raises:
        MetricInputError: If shapes do not fit, or E is not finite.

    Example:
        The group of two elements and its sign:

        >>> table = torch.tensor([[0, 1], [1, 0]])
        >>> signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        >>> irrep_power(torch.tensor([[3.0], [1.0]]), table, signs).tolist()
        [0.8, 0.2]
    """
    check_embedding(E)
    n = len(E)
    if quotients.shape != (n, n) or characters.ndim != 2 or characters.shape[1] != n:
        raise MetricInputError(
            f"For {n} elements the table has shape {tuple(quotients.shape)}, the characters {tuple(characters.shape)}.\n"
            f"Give [{n}, {n}] and [representations, {n}]."
        )
    E, chi = E.double(), characters.double()
    projected = (chi[:, :1, None] / n) * (chi[:, quotients] @ E)
    return projected.square().sum((1, 2)) / E.square().sum()
