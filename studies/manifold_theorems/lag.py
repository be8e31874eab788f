"""The isolated flow of the first layer against joint training, from the same start.

Symbols, as in arXiv 2511.01938: ``lam`` weight decay against the SUM of squares, ``t`` slow time,
``rate`` the learning rate of the second layer over that of the first.
"""

from __future__ import annotations

import dataclasses

from studies.grokking_paper.rows import point_records
from triplepoint.grokking import initial_first_layer, pair_task, simulate, simulate_joint
from triplepoint.records import Record

P, H, STD = 23, 256, 0.3
LOOKS = 200


@dataclasses.dataclass(frozen=True)
class Joint:
    """One training of both layers."""

    lam: float
    rate: float
    duration: float
    """Slow time."""

    @property
    def eta(self) -> float:
        """Step in flow time of the first layer; about half of what is unstable here."""
        return 4e-4 / self.rate

    @property
    def arm(self) -> str:
        """Name in the records."""
        return f"joint lam {self.lam:g} rate {self.rate:g}"


JOINT = (Joint(0.3, 1, 5.5), Joint(0.1, 1, 5.5), Joint(0.1, 4, 3.5), Joint(0.03, 1, 5.0))


def isolated(seed: int, *, p: int = P, h: int = H, duration: float = 4.0) -> list[Record]:
    """The limit of an infinitely fast second layer."""
    task = pair_task("add", p=p, seed=seed)
    W1 = initial_first_layer(p, h, std=STD, seed=seed)
    run = simulate(W1, *task.train_set, test=task.test_set, duration=duration, every=10)
    return point_records(run.points, "isolated", seed)


def joint(setting: Joint, seed: int, *, p: int = P, h: int = H) -> list[Record]:
    """Both layers by gradient descent, the second one at its ridge optimum to begin with."""
    task = pair_task("add", p=p, seed=seed)
    steps = round(setting.duration / (2 * setting.lam * setting.eta))
    run = simulate_joint(
        initial_first_layer(p, h, std=STD, seed=seed),
        *task.train_set,
        lam=setting.lam,
        steps=steps,
        eta=setting.eta,
        rate=setting.rate,
        test=task.test_set,
        every=max(1, steps // LOOKS),
    )
    return point_records(run.points, setting.arm, seed)
