"""The cells of the study: a truth and a ratio for every setting, and the fast-forwards."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

import torch

from studies.will_it_grok.settings import FITTING, LONGER, REPEATED, TESTING, Setting
from studies.will_it_grok.truth import STEPS, adamw_truth
from triplepoint.grokking import (
    GrokOutlook,
    fast_forward,
    initial_first_layer,
    pair_task,
    will_it_grok,
)
from triplepoint.records import Record

SHUFFLES = 5
LONG = 40_000
"""Steps of the runs that only explain."""
FORWARDS = {23: 256, 37: 512}
"""p -> h of the fast-forwards; fraction 0.7, 5 seeds each."""
SEEDS = range(5)
Compute = Callable[[], Iterable[Record]]


def cells() -> dict[str, Compute]:
    """Return all cells: truths of the fitting set first, so that they cannot be chosen by the rest."""
    torch.set_num_threads(1)
    found: dict[str, Compute] = {}
    for kind, compute in (("truth", truth), ("ratio", ratio)):
        for setting in FITTING:
            found[f"{kind}_{setting.name}"] = functools.partial(compute, setting)
    for p, h in FORWARDS.items():
        for seed in SEEDS:
            found[forward_name(p, seed)] = functools.partial(forward, p, h, seed)
    for kind, compute in (("truth", truth), ("ratio", ratio)):
        for setting in TESTING:
            found[f"{kind}_{setting.name}"] = functools.partial(compute, setting)
    for kind, compute in (("truth", truth), ("ratio", ratio)):
        for setting in REPEATED:
            found[f"{kind}_{setting.name}"] = functools.partial(compute, setting)
    for setting in LONGER:
        found[f"longer_{setting.name}"] = functools.partial(truth, setting, steps=LONG)
    return found


def quick_cells() -> dict[str, Compute]:
    """Return one setting of either set and one fast-forward: a smoke test, not evidence."""
    few = (Setting("add", 11, 64, 0.7), Setting("add", 13, 128, 0.8))
    found: dict[str, Compute] = {}
    for setting in few:
        found[f"truth_{setting.name}"] = functools.partial(truth, setting, steps=1000)
        found[f"ratio_{setting.name}"] = functools.partial(ratio, setting)
    found[forward_name(23, 0)] = functools.partial(forward, 23, 256, 0)
    return found


def forward_name(p: int, seed: int) -> str:
    """Name of the cell of a fast-forward."""
    return f"forward_{p}_seed{seed}"


def truth(setting: Setting, *, steps: int = STEPS) -> list[Record]:
    """Train with AdamW."""
    return adamw_truth(setting.task(), setting.h, seed=setting.seed, steps=steps)


def ratio(setting: Setting) -> list[Record]:
    """Ask ``will_it_grok``: training inputs and targets only."""
    X, Y = setting.task().train_set
    began = time.process_time()
    W1 = initial_first_layer(X.shape[1], setting.h, seed=setting.seed)
    outlook = will_it_grok(X, Y, W1, shuffles=SHUFFLES, seed=setting.seed)
    rows = [Record(metric="complexity", value=outlook.C_real, unit="weight norm^2", arm="real")]
    rows += [
        Record(metric="complexity", value=C, unit="weight norm^2", site=str(i), arm="shuffled")
        for i, C in enumerate(outlook.C_shuffled, 1)
    ]
    rows.append(Record(metric="train_samples", value=len(Y), unit="samples"))
    return [*rows, Record(metric="cpu_time", value=time.process_time() - began, unit="s")]


def outlook_of(rows: Iterable[Record], threshold: float) -> GrokOutlook:
    """Return the outlook that a ratio cell's records hold, judged by this threshold."""
    C = {"real": [], "shuffled": []}
    for r in rows:
        if r.metric == "complexity":
            C[r.arm].append(r.value)
    return GrokOutlook(C_real=C["real"][0], C_shuffled=tuple(C["shuffled"]), threshold=threshold)


def forward(p: int, h: int, seed: int) -> list[Record]:
    """Fast-forward modular addition to its label-free stop."""
    task = pair_task("add", p=p, seed=seed)
    began = time.process_time()
    run = fast_forward(*task.train_set, initial_first_layer(p, h, seed=seed), test=task.test_set)
    figures = {
        "gradients": (run.gradients, "gradients"),
        "gradients_to_99": (run.gradients_to(0.99), "gradients"),
        "test_accuracy": (run.test_accuracy, "share"),
        "complexity": (run.complexity, "weight norm^2"),
        "cpu_time": (time.process_time() - began, "s"),
    }
    return [
        Record(metric=metric, value=float(value), unit=unit, seed=seed)
        for metric, (value, unit) in figures.items()
        if value is not None
    ]
