"""What the paper's simulation costs: ours against equation 20 as printed, and with longer steps.

Modular addition, 70 % of the pairs, ReLU, lam = 0, float64, one thread, the process's own CPU time. p=37 and
h=512 as in the paper, p=23 and h=256 with ``--quick``.

- ``simulate`` itself: 5000 steps of 1e-3, a record with test accuracy every 25
- eq20: the loop a reader would type from the paper, full ``H H^T``, ``torch.linalg.inv``, no records; and
  the same with ``torch.linalg.solve`` in place of the inverse. Blocks of 25 steps by turns with ours, from
  the same first layer, which moves on with ours between the turns
- longer steps: steps of 5e-3, 1e-2 and 2e-2, with the 5 % cap on ||step|| / ||W1|| that is the default. Error
  is ||W1 - W1'|| / ||W1'|| against the run with steps of 1e-3 at equal slow time, and |C / C' - 1| at the end
"""

from __future__ import annotations

import argparse
import functools
import time

import torch
from torch import Tensor

from benchmarks._table import cpu_seconds, finish, summary
from triplepoint.grokking import Trajectory, euler, initial_first_layer, pair_task, simulate

ETA, BLOCK = 1e-3, 25
LONGER = (5e-3, 1e-2, 2e-2)
HALF = 2.5
"""Slow time of the first of the two comparisons, soon after 99 %; the second is at 5, the end."""


def with_inverse(E: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    Z = X @ E
    H = torch.relu(Z)
    A = torch.linalg.inv(H @ H.T)
    return E + ETA * (X.T @ ((A @ Y @ Y.T @ A @ H) * (Z > 0)) - E)


def with_solve(E: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    Z = X @ E
    H = torch.relu(Z)
    B = torch.linalg.solve(H @ H.T, Y)
    return E + ETA * (X.T @ ((B @ B.T @ H) * (Z > 0)) - E)


def block_of(step, E: Tensor, X: Tensor, Y: Tensor) -> None:
    for _ in range(BLOCK):
        E = step(E, X, Y)


def literal_ratios(p: int, h: int, blocks: int) -> dict[str, list[float]]:
    """Return the CPU time of the literal loops over ours, one entry per block of 25 steps."""
    task, W1 = pair_task("add", p=p), initial_first_layer(p, h)
    X, Y = task.train_set
    ratios: dict[str, list[float]] = {"eq20": [], "eq20_solve": []}
    for turn in range(blocks + 1):
        start = time.process_time()
        moved = simulate(W1, X, Y, duration=BLOCK * ETA, test=task.test_set).W1
        ours = time.process_time() - start
        theirs = {
            name: cpu_seconds(lambda s=step, E=W1: block_of(s, E, X, Y))
            for name, step in {"eq20": with_inverse, "eq20_solve": with_solve}.items()
        }
        if turn:  # the first is the warm-up
            for name, seconds in theirs.items():
                ratios[name].append(seconds / ours)
        W1 = moved
    return ratios


def run(p: int, h: int, eta: float, seed: int) -> tuple[list[Trajectory], float, int, float]:
    """Simulate to slow time 5 in two halves.

    Returns:
        Both halves, CPU seconds of the whole, steps to 99 % test accuracy, and CPU seconds to there.
    """
    task, W1 = pair_task("add", p=p, seed=seed), initial_first_layer(p, h, seed=seed)
    seen: list[tuple[float, float]] = []
    follow = functools.partial(
        simulate,
        X=task.train_set[0],
        Y=task.train_set[1],
        duration=HALF,
        integrator=functools.partial(euler, eta=eta),
        test=task.test_set,
        # the accuracies are read at the same slow times whatever the step
        every=max(1, round(BLOCK * ETA / eta)),
        watch=lambda point: seen.append((point.test_accuracy, time.process_time())),
    )
    start = time.process_time()
    first = follow(W1)
    second = follow(first.W1)
    total = time.process_time() - start
    reached = first.first_reaching(0.99), second.first_reaching(0.99)
    if reached[0] is None and reached[1] is None:
        raise SystemExit(f"No 99 % by slow time 5 at eta={eta}, seed {seed}: nothing to report.")
    steps = reached[0].step if reached[0] else first.points[-1].step + reached[1].step
    at = next(when for accuracy, when in seen if accuracy >= 0.99)
    return [first, second], total, steps, at - start


def off(ours: Trajectory, reference: Trajectory) -> float:
    return float((ours.W1 - reference.W1).norm() / reference.W1.norm())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grok_simulate")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores: p=23")
    quick = parser.parse_args().quick
    p, h, blocks, seeds = (23, 256, 8, 2) if quick else (37, 512, 12, 3)
    torch.set_num_threads(1)
    figures = {
        f"{name}_over_simulate_p{p}": summary(ratios)
        for name, ratios in literal_ratios(p, h, blocks).items()
    }
    columns: dict[str, list[float]] = {}
    for seed in range(seeds):
        reference = None
        for eta in (ETA, *LONGER):
            halves, total, steps, to_goal = run(p, h, eta, seed)
            reference = reference or halves
            row = {"steps_to_99": steps, "s_to_99": to_goal, "s": total}
            if eta != ETA:
                row["error_t2.5"], row["error_t5"] = map(off, halves, reference)
                ends = halves[1].points[-1], reference[1].points[-1]
                row["C_error_t5"] = abs(ends[0].complexity / ends[1].complexity - 1)
            for name, value in row.items():
                columns.setdefault(f"eta{eta:g}_{name}_p{p}", []).append(value)
    figures |= {name: summary(values) for name, values in columns.items()}
    finish(
        "grok_simulate",
        figures,
        {} if quick else {f"eta{ETA:g}_s_p{p}": 60.0},
        at_least={} if quick else {f"eq20_over_simulate_p{p}": 2.5},
    )


if __name__ == "__main__":
    main()
