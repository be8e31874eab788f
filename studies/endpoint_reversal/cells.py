"""The runs of the study, in the order in which they are worth having."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from triplepoint.recipes import Recipe, screening_steps
from triplepoint.sweeps import Cell, DataSpec

ARMS = ("layernorm", "dyt:paper", "dyt:recommended")
TOKENS = (50_000, 3_000_000)
SEEDS = (0, 1, 2)
RATE = 1e-3
OTHER_RATES = (RATE / 3, RATE * 3)
STEPS = 3000


@dataclasses.dataclass(frozen=True)
class Setting:
    """What differs between the runs."""

    arm: str
    tokens: int
    seed: int
    lr: float

    @property
    def name(self) -> str:
        """Name of the run's folder and of its entry in the records."""
        return f"{self.arm.replace(':', '-')}_{self.tokens}_seed{self.seed}_lr{self.lr:.2g}"


def settings() -> list[Setting]:
    """Return all runs: two seeds at the main rate, the other rates, then the third seed."""
    main = [Setting(a, t, s, RATE) for s in SEEDS for t in TOKENS for a in ARMS]
    rates = [Setting(a, t, 0, lr) for lr in OTHER_RATES for t in TOKENS for a in ARMS]
    first = [s for s in main if s.seed < 2]
    return first + rates + [s for s in main if s.seed == 2]


def cell_of(setting: Setting, runs: Path, *, steps: int = STEPS, size: str = "gpt2-0.4m") -> Cell:
    """Return the run of a setting: gpt2-0.4m, batch 8 x 128 bytes, cosine to a tenth, weight decay 0.1."""
    return Cell(
        path=runs / setting.name,
        arm=setting.arm,
        op=None if setting.arm == "layernorm" else setting.arm,
        size=size,
        data=DataSpec(train_tokens=setting.tokens),
        recipe=Recipe(
            steps=steps,
            lr=setting.lr,
            seed=setting.seed,
            eval_steps=tuple(range(50, steps + 1, 50)),
            average_steps=screening_steps(steps),
            checkpoint_every=500,
        ),
    )
