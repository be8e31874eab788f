"""The runs of the map, in the order in which they are worth having."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from triplepoint.recipes import Recipe, screening_steps
from triplepoint.sweeps import Cell, DataSpec

ARMS = ("layernorm", "dyt:paper", "dyt:recommended")
SIZES = ("gpt2-0.1m", "gpt2-0.4m", "gpt2-0.8m")
TOKENS = (20_000, 100_000, 500_000, 1_500_000)
RATE = 1e-3
OTHER_RATES = (3e-4, 2e-3, 4e-3)
STEPS = 1500
"""Of 8 x 128 bytes: 1.5 MB, one pass through the largest data set."""
LONG_STEPS = 3000
"""For the smallest data set: three times past LayerNorm's best step, or over-fitting does not show."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What differs between the runs."""

    size: str
    arm: str
    tokens: int
    seed: int
    lr: float = RATE

    @property
    def name(self) -> str:
        """Name of the run's folder and of its entry in the records."""
        arm = self.arm.replace(":", "-")
        return f"{self.size}_{arm}_{self.tokens}_seed{self.seed}_lr{self.lr:.2g}"

    @property
    def steps(self) -> int:
        """Optimiser steps."""
        return LONG_STEPS if self.tokens == TOKENS[0] else STEPS


def settings() -> list[Setting]:
    """Return all runs: the map at one seed, its corners at 3M, the second seed, the other rates."""
    ends = (TOKENS[0], TOKENS[-1])
    first, second = (
        [Setting(s, a, t, seed) for s in SIZES for t in TOKENS for a in ARMS] for seed in (0, 1)
    )
    large = [Setting("gpt2-3m", a, t, 0) for t in ends for a in ARMS]
    rates = [Setting("gpt2-0.4m", a, t, 0, lr) for lr in OTHER_RATES for t in ends for a in ARMS]
    return [*first, *second, *rates, *large]


def cell_of(setting: Setting, runs: Path) -> Cell:
    """Return the run of a setting: batch 8 x 128 bytes, cosine to a tenth, weight decay 0.1."""
    steps = setting.steps
    looks = screening_steps(steps)
    return Cell(
        path=runs / setting.name,
        arm=setting.arm,
        op=None if setting.arm == "layernorm" else setting.arm,
        size=setting.size,
        data=DataSpec(train_tokens=setting.tokens),
        recipe=Recipe(
            steps=steps,
            lr=setting.lr,
            seed=setting.seed,
            eval_steps=tuple(sorted({*range(50, steps + 1, 50), *looks})),
            average_steps=looks,
            checkpoint_every=250,
        ),
    )
