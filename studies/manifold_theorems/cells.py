"""The cells of the study, in the order in which they are worth having."""

from __future__ import annotations

import functools

from studies._cells import Compute
from studies.manifold_theorems.decays import LAMBDAS, decays
from studies.manifold_theorems.lag import JOINT, Joint, isolated, joint
from studies.manifold_theorems.targets import random_targets, zero_target

OTHER_SEEDS = (1, 2)
CHEAP = LAMBDAS[:-1]
"""A run takes as many steps as 1/lam: the smallest decay costs as much as all others together."""
TARGETS = range(200)


def cells() -> dict[str, Compute]:
    """Return name -> what computes the records."""
    call = functools.partial
    found: dict[str, Compute] = {
        "targets_random": call(random_targets, TARGETS),
        "targets_zero": zero_target,
        "decays_tanh_seed0": call(decays, "tanh", 0),
        "lag_isolated": call(isolated, 0),
    }
    found |= {f"lag_lam{j.lam:g}_rate{j.rate:g}": call(joint, j, 0) for j in JOINT}
    found |= {f"decays_{act}_seed0": call(decays, act, 0) for act in ("gelu", "relu")}
    return found | {
        f"decays_{act}_seed{s}": call(decays, act, s, lambdas=CHEAP)
        for s in OTHER_SEEDS
        for act in ("tanh", "gelu")
    }


def quick_cells() -> dict[str, Compute]:
    """Return small cells that show the machinery at work."""
    call = functools.partial
    small = {"p": 5, "h": 32, "lambdas": (3e-2, 1e-2), "times": (0.03, 0.06)}
    return {
        "targets_random": call(random_targets, range(3), duration=0.5),
        "targets_zero": call(zero_target, duration=0.5),
        "decays_tanh_seed0": call(decays, "tanh", 0, **small),
        "lag_isolated": call(isolated, 0, p=11, h=64, duration=0.2),
        "lag_lam0.1_rate1": call(joint, Joint(0.1, 1, 0.05), 0, p=11, h=64),
    }
