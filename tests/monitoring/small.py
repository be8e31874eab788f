"""Small tasks, networks and runs that the tests of monitors share."""

import math

import torch
from torch import nn

from triplepoint.grokking import pair_task, slow_clock
from triplepoint.monitoring import GrokInstrument, GrokMonitor
from triplepoint.recipes import Recipe
from triplepoint.records import read_jsonl
from triplepoint.runs import RunFolder
from triplepoint.training import train


def two_layers(p=11, h=64, *, seed=0, act=nn.ReLU, bias=False, std=None):
    """A two-layer net on coded pairs, with Gaussian layers of 1 / sqrt(inputs)."""
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(p, h, bias=bias), act(), nn.Linear(h, p, bias=bias))
    for layer in (net[0], net[2]):
        scale = layer.in_features**-0.5 if std is None else std
        drawn = torch.randn(layer.weight.shape, generator=generator)
        layer.weight.data = scale * drawn
    return net


def monitored(net, task, *, clock="sgd", **settings):
    """A monitor of ``net`` on the task's two sets; every diagnostic, whatever it costs."""
    if clock is not None:
        entries = task.train_set[1].numel()
        clock = slow_clock(lr=0.5, weight_decay=1e-4, entries=entries, optimizer=clock)
    settings = {"budget": math.inf, "every": 20, **settings}
    return GrokMonitor(net, train=task.train_set, validation=task.test_set, clock=clock, **settings)


def descend(net, task, steps, *, observe=lambda step, loss: None, start=0, lr=0.5, decay=1e-4):
    """Full-batch gradient descent in a plain loop."""
    X, Y = (t.float() for t in task.train_set)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, weight_decay=decay)
    for step in range(start + 1, start + steps + 1):
        optimizer.zero_grad()
        loss = (net(X) - Y).square().mean()
        loss.backward()
        optimizer.step()
        observe(step, loss.item())
    return net


def adamw_run(
    path, *, p, h, steps, every, loss="mse", seed=0, wd=1.0, diagnose_every=None, window=None,
    checkpoint_every=0, progress=lambda step, loss: None,
):  # fmt: skip
    """AdamW on modular addition in the project's loop, with the monitor riding; the records and the monitor."""
    task, net = pair_task("add", p=p, seed=seed), two_layers(p, h, seed=seed)
    recipe = Recipe(
        steps=steps, batch=int(task.train.sum()), lr=1e-3, warmup=0, schedule="constant",
        weight_decay=wd, betas=(0.9, 0.999), clip=0.0, checkpoint_every=checkpoint_every,
        eval_steps=tuple(range(every, steps + 1, every)),
    )  # fmt: skip
    monitor = GrokMonitor(
        net, train=task.train_set, validation=task.test_set, loss=loss, arm="adamw", seed=seed,
        clock=slow_clock(lr=1e-3, weight_decay=wd, optimizer="adamw"), budget=math.inf,
        diagnose_every=diagnose_every, window=window,
    )  # fmt: skip
    instrument = GrokInstrument(monitor)
    folder = RunFolder(path, asked={"p": p, "loss": loss, "seed": seed}, kind="grok")
    try:
        folder.write_manifest({"status": "running"})
        train(
            net, instrument.batches, objective=instrument.objective, recipe=recipe,
            instrument=instrument, folder=folder, arm="adamw", tokens_per_step=recipe.batch,
            progress=progress,
        )  # fmt: skip
        folder.sync()
        return read_jsonl(folder.path / "records.jsonl"), monitor
    finally:
        instrument.close()
        folder.close()


def series(records, metric, site=None):
    """Steps and values of one metric along a run."""
    rows = [r for r in records if (r.metric, r.site, r.endpoint) == (metric, site, None)]
    return [r.step for r in rows], [r.value for r in rows]
