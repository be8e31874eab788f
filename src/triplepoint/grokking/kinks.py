"""Sliding along the kinks of ReLU: the tangent space that training really has.

With weight decay some pre-activations of a ReLU net sit at 0, their gates flipping every few steps. On average they
stay there, so the motion also obeys X_i . v1[:, b] = 0 for each stuck (i, b). The plain tangent space knows nothing
of it, and explains less and less of the update however small the decay.

Symbols, as in the paper (rows are samples):
    X, W1, W2  inputs [n, d_in], first [d_in, h] and second layer [h, o]
    Z          pre-activations X W1 [n, h]; gate = 1 where Z > 0
    J, S, C    Jacobian with mean gates; rows of the stuck pre-activations; C = [J; S]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.structured import TwoLayerProjection, project_two_layer, two_layer_rows

FLIPS = 2
"""Sign changes in a window from which a pre-activation counts as stuck: one is a crossing, two are chatter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kinks:
    """What the gates of one layer did over a window of steps."""

    flips: Int[Tensor, "n h"]
    """Changes of the gate."""
    gates: Float[Tensor, "n h"]
    """Share of the window in which the gate was open, in [0, 1]."""
    steps: int

    def stuck(self, *, flips: int = FLIPS) -> Bool[Tensor, "n h"]:
        """Return which pre-activations flipped at least ``flips`` times."""
        return self.flips >= flips

    @property
    def stuck_share(self) -> float:
        """Share of all pre-activations that are stuck, in [0, 1]."""
        return self.stuck().double().mean().item()


def watch_kinks(pre_activations: Iterable[Float[Tensor, "n h"]]) -> Kinks:
    """Count the flips of every gate over a window; only the last step is kept in memory.

    Args:
        pre_activations: Z on the same samples at consecutive steps, at least two. Some 200 steps: gates of a slow run
            flip rarely.

    Returns:
        Flips and mean gates.

    Raises:
        MetricInputError: If there are fewer than two, shapes change, or one is not finite.

    Example:
        >>> Z = torch.tensor([[0.1, 1.0]])
        >>> seen = watch_kinks([Z, Z - 0.2, Z])
        >>> seen.flips.tolist(), seen.stuck_share
        ([[2, 0]], 0.5)
    """
    steps, flips, total, before = 0, None, None, None
    for Z in pre_activations:
        gate = Z > 0
        if before is not None and gate.shape != before.shape:
            raise MetricInputError(
                f"Pre-activations have shape {tuple(Z.shape)} at step {steps}, {tuple(before.shape)} before.\n"
                "Give the same samples at every step."
            )
        if not torch.isfinite(Z).all():
            raise MetricInputError(
                f"A pre-activation is not finite at step {steps}.\nThe run has diverged."
            )
        if before is None:
            flips, total = torch.zeros_like(gate, dtype=torch.long), torch.zeros_like(Z)
        else:
            flips += gate != before
        total += gate
        before, steps = gate, steps + 1
    if steps < 2:
        raise MetricInputError(
            f"A window of {steps} steps has no flips.\nGive two or more, some 200."
        )
    return Kinks(flips=flips, gates=total / steps, steps=steps)


def project_with_mean_gates(
    X: Float[Tensor, "n d_in"],
    W1: Float[Tensor, "d_in h"],
    W2: Float[Tensor, "h o"],
    kinks: Kinks,
    *,
    v: tuple[Tensor, Tensor] | None = None,
    route: Literal["cholesky", "eigh"] = "cholesky",
) -> TwoLayerProjection:
    """Project on the null space of J with each gate replaced by its mean over the window.

    A gate that chatters acts as if partly open, by just so much that its pre-activation stays (a sliding mode in
    Filippov's sense): so with the right mean gates the null space of J holds the stuck rows by itself. Costs a Cholesky
    of n o rows, where :func:`project_with_kinks` needs the eigenvectors of twice as many, and explained the updates as
    well in our runs; it leans on the window being long enough for the means.

    Args:
        X: Training inputs, those of the window.
        W1: First layer near the window's middle.
        W2: Second layer there.
        kinks: From :func:`watch_kinks`.
        v: Direction in the shapes of the layers; by default (-W1, -W2), the pull of weight decay.
        route: As in ``project_two_layer``.

    Returns:
        The projection.

    Raises:
        MetricInputError: If shapes do not fit, or J J^T is singular under Cholesky.
    """
    rows = two_layer_rows(X, W1, W2, gates=kinks.gates)
    V1, V2 = (-W1, -W2) if v is None else v
    return project_two_layer(rows, V1, V2, route=route)


def project_with_kinks(
    X: Float[Tensor, "n d_in"],
    W1: Float[Tensor, "d_in h"],
    W2: Float[Tensor, "h o"],
    kinks: Kinks,
    *,
    v: tuple[Tensor, Tensor] | None = None,
    flips: int = FLIPS,
    rtol: float | None = None,
    route: Literal["cholesky", "eigh"] = "eigh",
) -> TwoLayerProjection:
    """Project on the directions that keep the outputs and the stuck pre-activations.

    For two bias-free layers with ReLU. ``eigh`` by default: stuck rows often repeat what J or other rows say.

    Args:
        X: Training inputs, those of the window.
        W1: First layer near the window's middle.
        W2: Second layer there.
        kinks: From :func:`watch_kinks`.
        v: Direction in the shapes of the layers; by default (-W1, -W2), the pull of weight decay.
        flips: Changes in the window from which a pre-activation counts as stuck.
        rtol: Eigenvalues of C C^T up to ``rtol`` times the largest count as zero.
        route: As in ``project_two_layer``.

    Returns:
        The projection; ``solution.rank`` is that of C.

    Raises:
        MetricInputError: If shapes do not fit.
        PlanError: If ``flips`` is below 1.
    """
    if flips < 1:
        raise PlanError(f"flips is {flips}.\nGive at least 1; 2 tells chatter from a crossing.")
    rows = two_layer_rows(X, W1, W2, gates=kinks.gates, stuck=kinks.stuck(flips=flips))
    V1, V2 = (-W1, -W2) if v is None else v
    return project_two_layer(rows, V1, V2, route=route, rtol=rtol)
