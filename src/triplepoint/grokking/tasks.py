"""The tasks on which grokking is studied: pairs under an operation, and sparse parity.

Symbols, as in arXiv 2511.01938 (samples are rows):

- ``p``: size of the alphabet, elements 0 .. p-1; for a permutation group the order of the group
- ``N``: all samples of the task; ``n``: the ones to train on; ``fraction``: n / N before rounding
- ``X`` [N, d_in]: inputs; unordered pairs are ``e_a + e_b``, ordered ones ``[e_a, e_b]``
- ``Y`` [N, o]: targets ``e_c``
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triplepoint.errors import DataError, PlanError, unknown_name

LARGEST_P = 1000
"""Largest alphabet: the coded pairs of p = 1000 take p^3 / 2 float64 numbers, 4 GB, and as much again the targets."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """All samples of a task in two codings, and which of them are for training."""

    name: str
    X: Float[Tensor, "N d_in"]
    """Inputs of the two-layer net, float64."""
    Y: Float[Tensor, "N o"]
    """One-hot targets, float64; noisy where a training label was replaced."""
    train: Bool[Tensor, " N"]
    tokens: Int[Tensor, "N length"]
    """The same inputs for a sequence model; the last token of each row is the sign "="."""
    labels: Int[Tensor, " N"]
    """Class of each row of ``Y``."""
    noisy: Bool[Tensor, " N"]
    """Which labels were replaced; none of them is a test sample."""

    @property
    def test(self) -> Bool[Tensor, " N"]:
        """The samples that are not for training."""
        return ~self.train

    @property
    def train_set(self) -> tuple[Float[Tensor, "n d_in"], Float[Tensor, "n o"]]:
        """Inputs and targets to train on."""
        return self.X[self.train], self.Y[self.train]

    @property
    def test_set(self) -> tuple[Float[Tensor, "m d_in"], Float[Tensor, "m o"]]:
        """Inputs and targets held out."""
        return self.X[self.test], self.Y[self.test]

    @property
    def vocab(self) -> int:
        """Number of different tokens, the sign "=" among them."""
        return int(self.tokens.max()) + 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """``c = a o b`` on an alphabet."""

    table: Callable[[int], Tensor]
    """``p`` -> all results [p, p], -1 where the operation is not defined."""
    commutes: bool
    alphabet: Literal["odd", "prime"] | int
    """What ``p`` may be; a number where the operation brings its own."""
    symbol: str


def _modular(rule: Callable[[Tensor, Tensor], Tensor]) -> Callable[[int], Tensor]:
    def table(p: int) -> Tensor:
        a = torch.arange(p)
        return rule(a[:, None], a[None, :]) % p

    return table


def _quotients(p: int) -> Tensor:
    """Return a / b mod p = a b^(p-2) (Fermat); -1 for b = 0."""
    inverse = torch.tensor([pow(b, p - 2, p) for b in range(p)])
    table = torch.arange(p)[:, None] * inverse[None, :] % p
    table[:, 0] = -1
    return table


def _composition(degree: int) -> Callable[[int], Tensor]:
    def table(order: int) -> Tensor:
        """First b, then a: (a o b)(i) = a[b[i]], elements in lexicographic order."""
        elements = torch.tensor(list(itertools.permutations(range(degree))))
        place = degree ** torch.arange(degree)
        composed = elements[:, elements]  # [a, b, i] = a[b[i]]
        codes = (elements * place).sum(-1)
        order_of_codes = codes.argsort()
        found = torch.searchsorted(codes[order_of_codes], (composed * place).sum(-1))
        return order_of_codes[found]

    return table


OPERATIONS: dict[str, Operation] = {
    "add": Operation(
        table=_modular(lambda a, b: a + b), commutes=True, alphabet="odd", symbol="a + b"
    ),
    "sub": Operation(
        table=_modular(lambda a, b: a - b), commutes=False, alphabet="odd", symbol="a - b"
    ),
    "mul": Operation(
        table=_modular(lambda a, b: a * b), commutes=True, alphabet="odd", symbol="a * b"
    ),
    "sum_squares": Operation(
        table=_modular(lambda a, b: a * a + b * b),
        commutes=True,
        alphabet="odd",
        symbol="a^2 + b^2",
    ),
    "div": Operation(table=_quotients, commutes=False, alphabet="prime", symbol="a / b"),
    "s4": Operation(table=_composition(4), commutes=False, alphabet=24, symbol="a o b in S4"),
    "s5": Operation(table=_composition(5), commutes=False, alphabet=120, symbol="a o b in S5"),
}
"""Name on the command line and in records -> operation. ``s5`` has 14,400 pairs: train on it, but the
closed forms of this package need an n x n factor that is out of reach for most machines."""


def pair_task(
    operation: str = "add",
    *,
    p: int | None = None,
    fraction: float = 0.7,
    pairs: str | None = None,
    label_noise: float = 0.0,
    seed: int = 0,
) -> Task:
    """Build the table of an operation and split it at random.

    Unordered pairs (a <= b) are coded ``X = e_a + e_b``, as in the paper: ``p (p+1) / 2`` samples.
    Ordered ones are coded ``[e_a, e_b]`` with ``2 p`` inputs, because with summed one-hots (a, b)
    and (b, a) would be one input twice, and the kernel singular. Division leaves out b = 0.

    Args:
        operation: A name in ``OPERATIONS``.
        p: Size of the alphabet. The paper uses 37; 23 is enough to grok. Not for s4 and s5.
        fraction: Share of the samples to train on, rounded to whole samples. 0.7 is the paper's.
        pairs: "unordered" or "ordered". None is the smaller table that the operation allows.
        label_noise: Share of the TRAINING labels that are replaced by another class at random.
        seed: Seed of this task's own generator: it decides the split and the noise.

    Returns:
        The task, in float64.

    Raises:
        PlanError: If ``p``, ``fraction``, ``pairs`` or ``label_noise`` does not fit the operation.
        DataError: If no sample is left to train on, or none to test on.

    References:
        arXiv 2511.01938, Sec. 7; Power et al. (2022), arXiv 2201.02177, App. A.1.1.

    Example:
        >>> task = pair_task("add", p=37)
        >>> len(task.X), int(task.train.sum()), int(task.test.sum())
        (703, 492, 211)
    """
    if operation not in OPERATIONS:
        raise unknown_name("operation", operation, OPERATIONS)
    rule = OPERATIONS[operation]
    size = _alphabet_size(operation, rule, p)
    pairs = pairs or ("unordered" if rule.commutes else "ordered")
    if pairs not in ("unordered", "ordered") or (pairs == "unordered" and not rule.commutes):
        raise PlanError(
            f"{rule.symbol} cannot be asked about {pairs} pairs.\nTry pairs='ordered'"
            f"{', or unordered' if rule.commutes else ': the order of a and b matters here'}."
        )
    table = rule.table(size)
    a, b = (table >= 0).nonzero().T
    if pairs == "unordered":
        a, b = a[a <= b], b[a <= b]
    one = torch.eye(size, dtype=torch.float64)
    X = one[a] + one[b] if pairs == "unordered" else torch.cat([one[a], one[b]], dim=1)
    return _split(
        name=f"{rule.symbol}, p={size}, {pairs}",
        X=X,
        tokens=torch.stack([a, b, torch.full_like(a, size)], dim=1),
        labels=table[a, b],
        classes=size,
        fraction=fraction,
        label_noise=label_noise,
        generator=_seeded(seed),
    )


def parity_task(
    bits: int = 40,
    *,
    relevant: int = 3,
    samples: int = 1000,
    fraction: float = 0.5,
    label_noise: float = 0.0,
    seed: int = 0,
) -> Task:
    """Build sparse parity: is the number of ones among the first ``relevant`` bits odd?

    Inputs are +1 and -1, all different; targets are one-hot over (even, odd).

    Args:
        bits: Bits per sample. 40 with 3 relevant ones is the field's usual task.
        relevant: How many of them, the first ones, decide.
        samples: Different samples to draw, training and test together.
        fraction: Share of them to train on.
        label_noise: Share of the training labels that are flipped.
        seed: Seed of this task's own generator: samples, split and noise.

    Returns:
        The task, in float64.

    Raises:
        PlanError: If ``relevant``, ``bits``, ``samples`` or a share does not fit.
        DataError: If no sample is left to train on, or none to test on.

    Example:
        >>> task = parity_task(3, relevant=2, samples=8)
        >>> sorted(zip(task.tokens[:, :2].tolist(), task.labels.tolist()))[::2]
        [([0, 0], 0), ([0, 1], 1), ([1, 0], 1), ([1, 1], 0)]
    """
    if not 1 <= relevant <= bits <= 62:
        raise PlanError(
            f"Sparse parity needs 1 <= relevant <= bits <= 62, got relevant={relevant} and bits={bits}.\n"
            "Try bits=40, relevant=3."
        )
    if not 1 <= samples <= 2**bits:
        raise PlanError(
            f"There are {2**bits} different samples of {bits} bits, got samples={samples}.\n"
            "Try fewer samples, or more bits."
        )
    generator = _seeded(seed)
    words = _different_words(bits, samples, generator)
    ones = words[:, None] >> torch.arange(bits) & 1
    return _split(
        name=f"parity of {relevant} in {bits} bits",
        X=2.0 * ones.double() - 1,
        tokens=torch.cat([ones, torch.full((samples, 1), 2)], dim=1),
        labels=ones[:, :relevant].sum(1) % 2,
        classes=2,
        fraction=fraction,
        label_noise=label_noise,
        generator=generator,
    )


def _seeded(seed: int) -> torch.Generator:
    """Return a generator of its own for a task."""
    if not 0 <= seed < 2**62:
        raise PlanError(f"A seed must be at least 0 and below 2^62, got {seed}.\nTry seed=0.")
    return torch.Generator().manual_seed(seed)


def _different_words(bits: int, samples: int, generator: torch.Generator) -> Tensor:
    """Draw that many different integers below 2^bits."""
    if bits <= 20:
        return torch.randperm(2**bits, generator=generator)[:samples]
    found = torch.empty(0, dtype=torch.long)
    while len(found) < samples:
        more = torch.randint(2**bits, (2 * samples,), generator=generator)
        found = torch.cat([found, more]).unique()
    return found[torch.randperm(len(found), generator=generator)[:samples]]


def _alphabet_size(name: str, rule: Operation, p: int | None) -> int:
    """Return ``p`` if the operation can do with it."""
    if isinstance(rule.alphabet, int):
        if p not in (None, rule.alphabet):
            raise PlanError(
                f"{name} has {rule.alphabet} elements and takes no p, got p={p}.\nTry without p."
            )
        return rule.alphabet
    if p is None:
        raise PlanError(f"{rule.symbol} needs a modulus p.\nTry p=23, or the paper's p=37.")
    if p < 3 or p % 2 == 0:
        raise PlanError(
            f"p must be odd and at least 3, got p={p}: the Fourier picture pairs the frequencies k "
            f"and p - k, and an even p leaves p/2 without a partner.\nTry p={max(p + 1, 5)}."
        )
    if p > LARGEST_P:
        raise PlanError(
            f"p must be at most {LARGEST_P}, got p={p}: the table has p^2 entries of p numbers each.\n"
            "Try p=97; p=37 takes the closed forms a minute, with cost growing as p^6."
        )
    if rule.alphabet == "prime" and not is_prime(p):
        near = next(q for q in itertools.count(p, 2) if is_prime(q))
        raise PlanError(
            f"{rule.symbol} needs a prime p, got p={p}: only then has every b but 0 an inverse.\n"
            f"Try p={near}."
        )
    return p


@functools.cache
def is_prime(p: int) -> bool:
    """Tell whether ``p`` is a prime."""
    return p > 1 and all(p % q for q in range(2, math.isqrt(p) + 1))


def _split(
    *,
    name: str,
    X: Tensor,
    tokens: Tensor,
    labels: Tensor,
    classes: int,
    fraction: float,
    label_noise: float,
    generator: torch.Generator,
) -> Task:
    """Choose the training samples, replace some of their labels, and code the targets."""
    if not 0 < fraction < 1:
        raise PlanError(
            f"The training fraction must lie between 0 and 1, got {fraction}.\nTry fraction=0.7."
        )
    if not 0 <= label_noise <= 1:
        raise PlanError(
            f"Label noise is a share of the training labels, got {label_noise}.\nTry label_noise=0.1."
        )
    N = len(X)
    n = round(fraction * N)
    if n in (0, N):
        raise DataError(
            f"A fraction of {fraction} of {N} samples leaves none to {'train' if n == 0 else 'test'} "
            f"on.\nTry fraction=0.7, or a larger p."
        )
    chosen = torch.randperm(N, generator=generator)[:n]
    flipped = chosen[: round(label_noise * n)]
    # 1 .. classes-1 further on, so that a replaced label is always another one
    shift = torch.randint(1, classes, (len(flipped),), generator=generator)
    labels = labels.clone()
    labels[flipped] = (labels[flipped] + shift) % classes
    train, noisy = (torch.zeros(N, dtype=torch.bool) for _ in range(2))
    train[chosen], noisy[flipped] = True, True
    return Task(
        name=name,
        X=X,
        Y=torch.eye(classes, dtype=torch.float64)[labels],
        train=train,
        tokens=tokens,
        labels=labels,
        noisy=noisy,
    )
