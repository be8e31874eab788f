"""One AdamW run, watched by the monitor that users have."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from studies.will_it_grok.truth import start
from triplepoint.grokking import Task, slow_clock
from triplepoint.monitoring import GrokMonitor
from triplepoint.records import Record

STEPS = 20_000
EVERY = 50
KEPT = frozenset(
    "train_accuracy val_accuracy refit_val_accuracy complexity norm_sq head_distance "
    "zero_loss_share slow_time T_mem T_grok".split()
)
"""Of the monitor's records, what the questions need."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run leaves behind."""

    records: list[Record]
    memorised: Tensor | None
    """``W1`` when the train accuracy had been at 0.99 for three evaluations: when a user would know."""


def train(
    task: Task, h: int, *, loss: str, lr: float, decay: float, seed: int, steps: int = STEPS
) -> Trained:
    """Train full batch in float32 until the net's own held-out accuracy holds 0.99, or for ``steps``."""
    (X, Y), held_out = ((x.float(), y.float()) for x, y in (task.train_set, task.test_set))
    model = start(X.shape[1], h, Y.shape[1], seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
    objective = {"mse": nn.functional.mse_loss, "cross_entropy": nn.functional.cross_entropy}[loss]
    clock = slow_clock(lr=lr, weight_decay=decay, optimizer="adamw")
    memorised = None
    with GrokMonitor(
        model, train=(X, Y), validation=held_out, clock=clock, loss=loss, every=EVERY
    ) as monitor:
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            objective(model(X), Y).backward()
            optimizer.step()
            monitor.observe(step)
            if step % EVERY:
                continue
            times = monitor.times()
            if memorised is None and times["T_mem"]["step"] is not None:
                memorised = model[0].weight.detach().double().T.clone()
            if times["T_grok_0.99"]["step"] is not None:
                break
    return Trained(records=[r for r in monitor.collect() if r.metric in KEPT], memorised=memorised)
