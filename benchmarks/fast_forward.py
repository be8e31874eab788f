"""What it costs to reach 99 % test accuracy: fast-forward, the paper's Euler scheme, and AdamW.

Modular addition, 70 % of the pairs, ReLU, one thread; each seed is one turn of all three, and time is the
process's own CPU time until the first look at the test samples that shows 99 %:

- fast-forward: L-BFGS on log C, float64; it looks at every gradient, and that is counted
- Euler: ``simulate`` with the paper's step 1e-3 and no cap, float64, looking every 25 steps; it runs on our
  closed form, which is already faster than the paper's formula (``benchmarks.grok_simulate``)
- AdamW: both layers, full batch, mean squared error, float32, lr 1e-3, weight decay 1; fused or foreach,
  whichever is faster here; looking every 50 steps, which is not counted

The first two start from the same first layer; AdamW from std p^-1/2 and h^-1/2, from where it memorises in
some hundred steps. None stops before it sees 99 %, so a run that does not is an error and no number.
"""

from __future__ import annotations

import argparse
import functools
import time

import torch

from benchmarks._table import cpu_seconds, finish, summary
from triplepoint.grokking import (
    Task,
    euler,
    fast_forward,
    initial_first_layer,
    pair_task,
    simulate,
)
from triplepoint.grokking.two_layer import accuracy_on

GOAL = 0.99
AT_LEAST = {"euler": 20.0, "adamw": 30.0}


class Reached(Exception):
    """Thrown out of a run by its ``watch`` at the first sight of the goal."""


def until_goal(run) -> tuple[float, int]:
    """Return the CPU seconds of ``run(watch)`` until ``watch`` sees the goal, and how often it looked."""
    looks = 0

    def watch(point) -> None:
        nonlocal looks
        looks += 1
        if point.test_accuracy >= GOAL:
            raise Reached

    start = time.process_time()
    try:
        run(watch)
    except Reached:
        return time.process_time() - start, looks
    raise SystemExit("A run ended below 99 % test accuracy: nothing to compare.")


def forwarded(task: Task, W1: torch.Tensor) -> tuple[float, int]:
    X, Y = task.train_set
    return until_goal(lambda watch: fast_forward(X, Y, W1, test=task.test_set, watch=watch))


def simulated(task: Task, W1: torch.Tensor) -> float:
    X, Y = task.train_set
    scheme = functools.partial(euler, eta=1e-3, cap=None)
    seconds, _ = until_goal(
        lambda watch: simulate(W1, X, Y, integrator=scheme, test=task.test_set, watch=watch)
    )
    return seconds


class Trainer:
    """Both layers under AdamW."""

    def __init__(self, task: Task, h: int, seed: int, **kind: bool):
        (self.X, self.Y), p = (part.float() for part in task.train_set), task.X.shape[1]
        self.task, like = task, {"seed": seed, "dtype": torch.float32}
        self.W1 = initial_first_layer(p, h, std=p**-0.5, **like).requires_grad_()
        self.W2 = initial_first_layer(h, self.Y.shape[1], std=h**-0.5, **like).requires_grad_()
        self.optimizer = torch.optim.AdamW([self.W1, self.W2], lr=1e-3, weight_decay=1.0, **kind)

    def steps(self, count: int) -> None:
        """Take so many steps."""
        for _ in range(count):
            loss = torch.nn.functional.mse_loss(torch.relu(self.X @ self.W1) @ self.W2, self.Y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def test_accuracy(self) -> float:
        """Look at the test samples."""
        with torch.no_grad():
            return accuracy_on(self.W1, self.W2, self.task.test_set)


def faster_kind(task: Task, h: int) -> dict[str, bool]:
    """Return the faster of AdamW's two implementations, by turns on the same task."""
    trainers = {kind: Trainer(task, h, 0, **{kind: True}) for kind in ("fused", "foreach")}
    spent = {kind: [] for kind in trainers}
    for _ in range(5):
        for kind, trainer in trainers.items():
            spent[kind].append(cpu_seconds(lambda t=trainer: t.steps(20)))
    return {min(spent, key=lambda kind: sorted(spent[kind])[2]): True}


def trained(task: Task, h: int, seed: int, kind: dict[str, bool]) -> tuple[float, int]:
    """Return the CPU seconds of AdamW's steps, and how many."""
    trainer, spent = Trainer(task, h, seed, **kind), 0.0
    for step in range(50, 20_001, 50):
        spent += cpu_seconds(lambda: trainer.steps(50))
        if trainer.test_accuracy() >= GOAL:
            return spent, step
    raise SystemExit("AdamW did not reach 99 % within 20,000 steps: nothing to compare.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fast_forward")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores: p=23 only")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    figures, at_least = {}, {}
    for p, h, seeds in [(23, 256, 3)] if quick else [(23, 256, 5), (37, 512, 5)]:
        kind = faster_kind(pair_task("add", p=p), h)
        print(f"p={p}: AdamW is faster {'/'.join(kind)}")
        rows = []
        for seed in range(seeds):
            task, W1 = pair_task("add", p=p, seed=seed), initial_first_layer(p, h, seed=seed)
            ours, gradients = sorted(forwarded(task, W1) for _ in range(5))[2]
            adamw, steps = trained(task, h, seed, kind)
            rows.append((ours, simulated(task, W1), adamw, gradients, steps))
        ours, by_euler, by_adamw, gradients, steps = map(list, zip(*rows, strict=True))
        figures[f"fast_forward_s_p{p}"] = summary(ours)
        figures[f"fast_forward_gradients_p{p}"] = summary(gradients)
        figures[f"adamw_steps_p{p}"] = summary(steps)
        for name, theirs in {"euler": by_euler, "adamw": by_adamw}.items():
            figures[f"{name}_s_p{p}"] = summary(theirs)
            figure = f"{name}_over_fast_forward_p{p}"
            figures[figure] = summary([t / o for t, o in zip(theirs, ours, strict=True)])
            at_least[figure] = AT_LEAST[name]
    finish("fast_forward", figures, {}, at_least=at_least)


if __name__ == "__main__":
    main()
