"""Restricted and excluded loss: what a network's outputs owe to a few frequencies.

Symbols, as in Nanda et al.:
    logits  outputs for all ordered pairs (a, b) [p, p, o]
    w_k     2 pi k / p
    key     the frequencies k, 1 .. (p-1)/2, that the network is thought to use
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from triplepoint.errors import MetricInputError, PlanError


def key_frequencies(power: Float[Tensor, " K"], *, share: float = 0.95) -> list[int]:
    """Return the fewest frequencies that together hold a share of the power, strongest first, counted from 1.

    Args:
        power: Power of the frequencies 1 .. K, e.g. ``describe_embedding(E).power``.
        share: In (0, 1]. A network that uses all frequencies equally needs ``share`` of them all.

    Returns:
        Frequencies.

    Raises:
        MetricInputError: If powers are negative, not finite or all 0.
        PlanError: If ``share`` is outside (0, 1].

    Example:
        >>> key_frequencies(torch.tensor([1.0, 6.0, 3.0]), share=0.9)
        [2, 3]
    """
    if not 0 < share <= 1:
        raise PlanError(f"share is {share}.\nGive a share in (0, 1], e.g. 0.95.")
    if not (torch.isfinite(power).all() and (power >= 0).all() and power.sum() > 0):
        raise MetricInputError(
            "Powers are negative, not finite or all 0.\nGive describe_embedding(E).power."
        )
    ordered = power.double().sort(descending=True)
    before = ordered.values.cumsum(0) - ordered.values
    # short of the share by rounding is not short of it
    wanted = before < (share - 1e-6) * ordered.values.sum()
    return [k + 1 for k in ordered.indices[wanted].tolist()]


def restricted_logits(logits: Float[Tensor, "p p o"], key: Sequence[int]) -> Float[Tensor, "p p o"]:
    """Keep of the logits their mean and the parts cos w_k(a + b), sin w_k(a + b) of the key frequencies.

    A network that has only these left and still answers computes by these. The complement, with the mean kept in
    both, is :func:`excluded_logits`.

    Args:
        logits: Outputs for all ordered pairs.
        key: Frequencies, 1 .. (p-1)/2.

    Returns:
        What is left, in double precision.

    Raises:
        MetricInputError: If logits are no finite [p, p, o].
        PlanError: If a frequency is out of range or named twice.

    Example:
        >>> a = torch.arange(3.0)
        >>> wave = torch.cos(2 * torch.pi * (a[:, None] + a) / 3)[..., None]
        >>> bool((restricted_logits(wave, [1]) - wave).abs().max() < 1e-6)
        True
    """
    spectrum, waves = _spectrum(logits, key)
    kept = torch.zeros_like(spectrum)
    kept[0, 0] = spectrum[0, 0]
    kept[waves, waves] = spectrum[waves, waves]
    return torch.fft.ifft2(kept, dim=(0, 1)).real


def excluded_logits(logits: Float[Tensor, "p p o"], key: Sequence[int]) -> Float[Tensor, "p p o"]:
    """Take from the logits the parts cos w_k(a + b), sin w_k(a + b) of the key frequencies; keep the rest.

    Measured on the TRAINING pairs: a network that generalises by these frequencies fails without them, one that
    memorised does not. It rises long before the test loss falls.

    Args:
        logits: Outputs for all ordered pairs.
        key: Frequencies, 1 .. (p-1)/2.

    Returns:
        What is left, in double precision.

    Raises:
        MetricInputError: If logits are no finite [p, p, o].
        PlanError: If a frequency is out of range or named twice.

    Example:
        >>> a = torch.arange(3.0)
        >>> wave = torch.cos(2 * torch.pi * (a[:, None] + a) / 3)[..., None]
        >>> bool(excluded_logits(wave, [1]).abs().max() < 1e-6)
        True
    """
    spectrum, waves = _spectrum(logits, key)
    spectrum[waves, waves] = 0.0
    return torch.fft.ifft2(spectrum, dim=(0, 1)).real


def table_loss(
    logits: Float[Tensor, "p p o"],
    labels: Int[Tensor, "p p"],
    *,
    where: Bool[Tensor, "p p"] | None = None,
    squared: bool = False,
) -> float:
    """Return the mean loss of a table of logits over some of its pairs.

    Args:
        logits: For all ordered pairs, as they are, restricted or excluded.
        labels: Class of every pair.
        where: Pairs to average over: the training pairs for the excluded loss, all for the restricted one (default).
        squared: Mean over pairs of ||logits - one-hot||^2, summed over classes, instead of cross-entropy in nats.

    Returns:
        The mean loss per pair.

    Raises:
        MetricInputError: If shapes do not fit, or no pair is chosen.

    Example:
        >>> round(table_loss(torch.zeros(3, 3, 3), torch.zeros(3, 3, dtype=torch.long)), 4)  # ln 3
        1.0986
    """
    chosen = torch.ones(labels.shape, dtype=torch.bool) if where is None else where
    if logits.shape[:2] != labels.shape or chosen.shape != labels.shape or not chosen.any():
        raise MetricInputError(
            f"Logits {tuple(logits.shape)}, labels {tuple(labels.shape)} and pairs {tuple(chosen.shape)} do not fit, "
            "or no pair is chosen.\nGive [p, p, o], [p, p] and [p, p]."
        )
    rows, classes = logits.double()[chosen], labels[chosen]
    if not squared:
        return cross_entropy(rows, classes).item()
    target = torch.nn.functional.one_hot(classes, rows.shape[1])
    return (rows - target).square().sum(1).mean().item()


def _spectrum(logits: Tensor, key: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return (2-D spectrum over the pairs, indices of the key frequencies and of their negatives)."""
    if logits.ndim != 3 or logits.shape[0] != logits.shape[1] or not torch.isfinite(logits).all():
        raise MetricInputError(
            f"Logits are no finite table of pairs: shape {tuple(logits.shape)}.\n"
            "Give [p, p, o]: the outputs for every ordered pair, not for the training pairs only."
        )
    p = len(logits)
    if len(set(key)) != len(key) or not all(1 <= k <= (p - 1) // 2 for k in key):
        raise PlanError(
            f"Key frequencies are {list(key)}.\nGive different ones in 1 .. {(p - 1) // 2} for p = {p}."
        )
    waves = torch.tensor([f for k in key for f in (k, p - k)], dtype=torch.long)
    return torch.fft.fft2(logits.double(), dim=(0, 1)), waves
