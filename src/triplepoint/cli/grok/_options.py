"""Options that the commands of ``grok`` share, and what they make of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from triplepoint.experiments.specs import TaskSpec

SCOPE = "Scope: closed forms hold for bias-free two-layer nets with squared error; deeper nets get the manifold part only."

Modulus = Annotated[
    int | None,
    typer.Option("--p", help="Modulus, odd. Default: 23; s4, s5 and parity bring their own size."),
]
Hidden = Annotated[
    int | None,
    typer.Option(
        help="Width of the hidden layer. Default: 1.04 times the training samples, in steps of 64."
    ),
]
Fraction = Annotated[float, typer.Option(help="Share of the table that is trained on.")]
Operation = Annotated[
    str, typer.Option(help="add, sub, mul, sum_squares, div, s4, s5, or parity (40 bits, 3 relevant).")
]  # fmt: skip
Noise = Annotated[
    float, typer.Option("--label-noise", help="Share of training labels replaced at random.")
]
Act = Annotated[str, typer.Option(help="relu, square, tanh or gelu.")]
Seed = Annotated[int, typer.Option(help="Seed of split and initial weights.")]
Out = Annotated[Path | None, typer.Option(help="Run folder. Default: runs/grok-HASH.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def task_spec(operation: str, p: int | None, fraction: float, noise: float, seed: int) -> TaskSpec:
    """Return the task that these options name."""
    from triplepoint.experiments.specs import TaskSpec

    return TaskSpec.of(operation, p, fraction=fraction, label_noise=noise, seed=seed)
