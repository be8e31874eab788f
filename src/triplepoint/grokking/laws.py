r"""What a law about the time of grokking is, and the facts of a run that one can be asked about.

Symbols, as the laws use them:

- ``T_mem``, ``T_grok``: steps from the start of training until train, and validation, accuracy is 0.99
- ``eta``, ``lam``: learning rate ``lr`` and ``weight_decay``, as the optimiser has them; ``eta lam`` is
  the slow time of one step, see ``triplepoint.grokking.slow_time``
- ``V = ||theta||^2``: squared norm of all weights; ``C = ||W1|| ||W2||``: complexity of a two-layer net
- ``q``: degree of the activation, 1 for ReLU; ``tau``: tangent share of the squared norm
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Literal

from triplepoint.errors import PlanError

Interval = tuple[float, float]
"""Earliest and latest step, counted from the start of training."""

KINDS = {
    "loss": ("mse", "cross_entropy"),
    "optimizer": ("adamw", "sgd", "isolated"),
    "model": ("two_layer", "mlp", "transformer"),
    "task": ("modular", "sparse_parity", "other"),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GrokFacts:
    """What is known about one run; None where it is not. Nothing is assumed in its place.

    Raises:
        PlanError: If a word is not one of ``KINDS``, or a number is not positive and finite
            (``step`` and ``T_mem`` may be 0).
    """

    loss: Literal["mse", "cross_entropy"] | None = None
    optimizer: Literal["adamw", "sgd", "isolated"] | None = None
    """``isolated``: the flow of the first layer alone, with ``lr`` its step in slow time and
    ``weight_decay`` 1, so that ``lr * weight_decay`` is the slow time of a step everywhere."""
    lr: float | None = None
    weight_decay: float | None = None
    model: Literal["two_layer", "mlp", "transformer"] | None = None
    """``two_layer``: no biases, the net of the closed forms; ``mlp``: any other multilayer perceptron."""
    layers: int | None = None
    """Blocks of a transformer."""
    layernorm: bool | None = None
    hidden: int | None = None
    """Hidden units."""
    activation: str | None = None
    task: Literal["modular", "sparse_parity", "other"] | None = None
    p: int | None = None
    """Modulus."""
    fraction: float | None = None
    """Share of the pairs that is trained on."""
    step: int | None = None
    """Now, in optimiser steps: where ``C_now``, ``V_now``, ``tau`` and ``t99_iso`` were read."""
    T_mem: int | None = None
    V_mem: float | None = None
    """V at ``T_mem``."""
    V_post: float | None = None
    """V after grokking, from an earlier run of the same kind."""
    V_star: float | None = None
    """V at grokking, from an earlier run of the same kind."""
    V_now: float | None = None
    tau: float | None = None
    """Of ``triplepoint.grokking.homogeneity``, kink-aware for ReLU."""
    C_now: float | None = None
    """With the second layer at its ridge optimum."""
    C_star: float | None = None
    """C at grokking, from an earlier run; None asks the law for its own value."""
    t99_iso: float | None = None
    """Slow time that the isolated flow takes from the present first layer to 0.99."""
    init_scale: float | None = None
    """Factor on the initial first layer, 1 in the reference run."""
    held_norm: float | None = None
    """Norm that the run is held at: of all weights, or of the first layer where that alone moves."""
    reference_T_grok: float | None = None
    """Steps of a run that differs in ``init_scale``, ``held_norm`` or ``weight_decay`` only."""
    reference_norm: float | None = None
    """``held_norm`` of the reference run."""
    reference_weight_decay: float | None = None

    def __post_init__(self):
        for name, words in KINDS.items():
            given = getattr(self, name)
            if given is not None and given not in words:
                raise PlanError(f"{name} is {given!r}.\nGive one of {', '.join(words)}, or None.")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None or isinstance(value, str | bool):
                continue
            from_zero = field.name in ("step", "T_mem")
            if not ((0 <= value if from_zero else 0 < value) and value < math.inf):
                raise PlanError(
                    f"{field.name} is {value}, which is not a {'number from 0' if from_zero else 'positive number'}.\n"
                    "Leave it out (None) where it is not known."
                )

    @property
    def slow_time_per_step(self) -> float:
        """``lr * weight_decay``; both must be known."""
        return self.lr * self.weight_decay


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """A closed range of numbers that a law was seen to hold in."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclasses.dataclass(frozen=True, slots=True)
class Among:
    """The only values that a law was seen to hold for."""

    values: tuple[str | int | bool, ...]

    def __contains__(self, value: str | int | bool) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return " or ".join(str(value) for value in self.values)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """One statement about the time of grokking, with everything that limits it."""

    name: str
    formula: str
    scope: Mapping[str, Between | Among]
    """Fact -> where the law was seen to hold. A fact outside it, or unknown, excludes the law."""
    constants: Mapping[str, float | Interval]
    """Each as published; a pair is an interval or an observed range."""
    source: str
    weak_points: tuple[str, ...]
    needs: tuple[str, ...]
    """Facts that the formula reads, besides those of the scope."""
    spread: str
    """What the interval is made from, or why there is none."""
    estimate: Callable[[GrokFacts], Interval | str]
    """The interval from complete facts within the scope, or the reason why the law has none."""

    def ask(self, facts: GrokFacts) -> Interval | str:
        """Return the interval in steps from the start of training, or why the law has none for these facts.

        A fact outside the scope is named before one that is missing: no more measuring would mend it.
        """
        asked = dict.fromkeys((*self.scope, *self.needs))
        known = {name: value for name in asked if (value := getattr(facts, name)) is not None}
        outside = [
            f"{name} is {known[name]}, it holds for {allowed}"
            for name, allowed in self.scope.items()
            if name in known and known[name] not in allowed
        ]
        if outside:
            return "; ".join(outside)
        missing = [name for name in asked if name not in known]
        return f"not given: {', '.join(missing)}" if missing else self.estimate(facts)
