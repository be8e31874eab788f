"""One small run, as a plain loop and in the trainers that it must equal: same weights, batches and updates."""

import torch
from tests.tiny import build, corpus

from triplepoint import Monitor
from triplepoint.logbook import read_logbook
from triplepoint.objectives import Objective

STEPS, ACCUMULATED, ROWS, LR = 6, 4, 2, 1e-3
EVERY, EVALUATED = 2, 3
OPTIONS = {"every": EVERY, "metrics": ("saturation", "input_rms", "alpha"), "arm": "dyt", "seed": 7}


def windows():
    """The training windows of one of two epochs, in order, and some of validation."""
    text = corpus()
    train = text.windows("train", context=16, count=STEPS * ACCUMULATED * ROWS // 2)
    return train, text.windows("validation", context=16, count=8)


def tiny():
    """The model, swapped, the same each time."""
    torch.manual_seed(0)
    return build("dyt")(0)


def adamw(model):
    """The optimiser of every run."""
    return torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)


def plain(model, forward, evaluate):
    """Train in a plain loop; return the monitor's records.

    Args:
        model: As it starts.
        forward: Micro-batch -> its loss as a share of the step's.
        evaluate: () -> validation loss.
    """
    optimizer = adamw(model)
    train, _ = windows()
    with Monitor(model, **OPTIONS) as monitor:
        for step, batch in enumerate(2 * train.split(ACCUMULATED * ROWS), 1):
            losses = []
            for micro in batch.split(ROWS):
                loss = forward(micro)
                loss.backward()
                losses.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
            sampled = monitor.is_sampling
            monitor.observe(step)
            if sampled:
                monitor.observe(step, train_loss=float(sum(losses)))
            if step % EVALUATED == 0:
                model.eval()
                with torch.no_grad():
                    monitor.observe(step, val_loss=evaluate())
                model.train()
    return monitor.collect()


def written(folder):
    """What a trainer's callback wrote: records and phases."""
    return read_logbook(folder / "triplepoint.jsonl")


def objective_loss(model, batch):
    """Mean next-token loss."""
    return Objective().loss(model, batch)
