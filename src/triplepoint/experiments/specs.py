"""Which task and which net: what a command line or a manifest says, as values."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from triplepoint.errors import PlanError, unknown_name
from triplepoint.grokking import OPERATIONS, Task, initial_first_layer, pair_task, parity_task
from triplepoint.grokking.groups import discrete_log_order
from triplepoint.grokking.tasks import is_prime

PARITY = "parity"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task and its split."""

    operation: str = "add"
    """A name in ``OPERATIONS``, or ``parity``."""
    p: int | None = 23
    """Size of the alphabet; None for s4, s5 and parity, which bring their own."""
    fraction: float = 0.7
    """Share of the samples to train on."""
    pairs: str | None = None
    """``unordered`` or ``ordered``; None for the smaller table that the operation allows."""
    label_noise: float = 0.0
    """Share of the training labels that are replaced."""
    bits: int = 40
    """Of parity."""
    relevant: int = 3
    """Bits that decide the parity."""
    samples: int = 1000
    """Samples of parity, training and test together."""
    seed: int = 0
    """Decides the split and the noise."""

    @classmethod
    def of(cls, operation: str, p: int | None, **more: object) -> TaskSpec:
        """Return the task with p = 23 where the operation takes a modulus and none is given.

        Raises:
            UnknownNameError: If there is no such operation.
            PlanError: If a modulus is given to parity.
        """
        if operation not in (*OPERATIONS, PARITY):
            raise unknown_name("operation", operation, (*OPERATIONS, PARITY))
        if operation == PARITY and p is not None:
            raise PlanError(f"parity has bits and takes no p, got p={p}.\nTry without p.")
        rule = OPERATIONS.get(operation)
        takes_p = rule is not None and not isinstance(rule.alphabet, int)
        return cls(operation=operation, p=23 if p is None and takes_p else p, **more)

    def build(self) -> Task:
        """Build the task.

        Raises:
            PlanError: If the settings do not fit the operation.
            UnknownNameError: If there is no such operation.
        """
        if self.operation == PARITY:
            return parity_task(
                self.bits, relevant=self.relevant, samples=self.samples, fraction=self.fraction,
                label_noise=self.label_noise, seed=self.seed,
            )  # fmt: skip
        return pair_task(
            self.operation, p=self.p, fraction=self.fraction, pairs=self.pairs,
            label_noise=self.label_noise, seed=self.seed,
        )  # fmt: skip

    def width(self, hidden: int | None) -> int:
        """Return ``hidden``, or where it is None as many units as zero loss needs and 4 % more, in steps of 64.

        Example:
            >>> TaskSpec().width(None), TaskSpec(p=37).width(None), TaskSpec().width(100)
            (256, 512, 100)
        """
        samples = int(self.build().train.sum())
        return 64 * math.ceil(1.04 * samples / 64) if hidden is None else hidden

    @property
    def is_cyclic(self) -> bool:
        """Whether the operation is that of a cyclic group on its alphabet, so that a Fourier basis fits."""
        return self.operation in ("add", "sub") or (
            self.operation in ("mul", "div") and is_prime(self.p)
        )

    def residues(self, W1: Tensor) -> Tensor | None:
        """Return the rows of a first layer [d_in, h] that embed the first operand, in the group's own order.

        None where the operation is no cyclic group's.
        """
        if not self.is_cyclic:
            return None
        return W1[: self.p] if self.operation in ("add", "sub") else W1[discrete_log_order(self.p)]


def first_layer(task: Task, hidden: int, *, std: float | None, seed: int) -> Tensor:
    """Draw the first layer of a two-layer net for ``task``.

    Raises:
        PlanError: If ``hidden`` or ``std`` is out of range.
    """
    if hidden > 1_000_000:
        raise PlanError(f"A hidden layer of {hidden} units is too wide.\nTry --hidden 256.")
    return initial_first_layer(task.X.shape[1], hidden, std=std, seed=seed)


def as_numbers(text: str, option: str) -> tuple[float, ...]:
    """Read ``0.01,0.1`` from a command line.

    Raises:
        PlanError: If it is no list of numbers.

    Example:
        >>> as_numbers("0.01,0.1", "--lam")
        (0.01, 0.1)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise PlanError(
            f"{option} takes numbers with commas between them, got {text!r}.\nTry {option}=0.01,0.1."
        ) from error


def one_thread() -> None:
    """Compute on one thread: at these sizes a second one waits more than it works."""
    torch.set_num_threads(1)
