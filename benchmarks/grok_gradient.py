"""What a gradient of the reduced cost costs: our closed form against autograd and equation 20 as printed.

Modular addition, 70 % of the pairs, ReLU, lam = 0, float64, one thread. Each contender returns the same half
gradient (checked first) from the same X, Y and W1; they go by turns, and time is the process's own CPU time:

- closed: what ``simulate`` and ``fast_forward`` call at every step, inputs unchecked like everyone's here
- reduced_cost: the public function, the same with its checks of shapes and of finite entries
- pinv: autograd through ``||pinv(H) Y||^2``, the definition
- cholesky: autograd through ``||L^-1 Y||^2`` with ``L L^T = H H^T``, the smaller Gram: one factor and one
  triangular solve. The strong form; ``cholesky_solve`` below needs one solve more, forward and back
- solve: autograd through ``<Y, K^-1 Y>`` by ``torch.linalg.solve``
- eq20: no autograd, the formula in the order of the paper, with ``torch.linalg.inv``

The last rows are the cost of the closed form against n at h = 1.04 n.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks._table import cpu_seconds, finish, summary
from triplepoint.grokking import ACTIVATIONS, initial_first_layer, pair_task, reduced_cost
from triplepoint.grokking.isolated import cost_at

Contender = Callable[[Tensor, Tensor, Tensor], Tensor]
AT_LEAST = {"pinv": 8.0, "cholesky": 3.0}


def by_autograd(fit: Callable[[Tensor, Tensor], Tensor]) -> Contender:
    """Return the half gradient of ``||W1||^2 + fit(H, Y)`` by autograd."""

    def half_gradient(W1: Tensor, X: Tensor, Y: Tensor) -> Tensor:
        W1 = W1.detach().requires_grad_()
        cost = W1.square().sum() + fit(torch.relu(X @ W1), Y)
        return torch.autograd.grad(cost, W1)[0] / 2

    return half_gradient


def through_cholesky(H: Tensor, Y: Tensor) -> Tensor:
    L = torch.linalg.cholesky(H @ H.T)
    return torch.linalg.solve_triangular(L, Y, upper=False).square().sum()


def through_cholesky_solve(H: Tensor, Y: Tensor) -> Tensor:
    return (Y * torch.cholesky_solve(Y, torch.linalg.cholesky(H @ H.T))).sum()


def equation_20(W1: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    Z = X @ W1
    H = torch.relu(Z)
    A = torch.linalg.inv(H @ H.T)
    return W1 - X.T @ ((A @ Y @ Y.T @ A @ H) * (Z > 0))


CONTENDERS: dict[str, Contender] = {
    "closed": lambda W1, X, Y: cost_at(W1, X, Y, lam=0.0, act=ACTIVATIONS["relu"]).half_grad,
    "reduced_cost": lambda W1, X, Y: reduced_cost(W1, X, Y, lam=0.0).half_grad,
    "pinv": by_autograd(lambda H, Y: (torch.linalg.pinv(H) @ Y).square().sum()),
    "cholesky": by_autograd(through_cholesky),
    "cholesky_solve": by_autograd(through_cholesky_solve),
    "solve": by_autograd(lambda H, Y: (Y * torch.linalg.solve(H @ H.T, Y)).sum()),
    "eq20": equation_20,
}


def problem(p: int, h: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return W1, X and Y; without ``h`` there are 1.04 n hidden units."""
    X, Y = pair_task("add", p=p).train_set
    return initial_first_layer(p, h or math.ceil(1.04 * len(X))), X, Y


def compare(p: int, h: int, rounds: int) -> dict[str, list[float]]:
    """Return the contenders' CPU seconds per gradient, one entry per round."""
    given = problem(p, h)
    ours = CONTENDERS["closed"](*given)
    for name, contender in CONTENDERS.items():  # the warm-up as well
        error = float((contender(*given) - ours).norm() / ours.norm())
        if not error < 1e-8:
            raise SystemExit(f"{name} is off by {error:.1e} at p={p}: nothing to compare.")
    # the shortest calls are repeated, so that a tick of the clock is no part of the answer
    times = max(1, round(0.03 / cpu_seconds(lambda: CONTENDERS["closed"](*given))))
    spent: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, contender in CONTENDERS.items():
            again = times if name != "pinv" else max(1, times // 10)
            spent[name].append(cpu_seconds(lambda c=contender: c(*given), again))
    return spent


def cost_against_n(sizes: list[int], rounds: int) -> dict[int, list[float]]:
    """Return n -> CPU milliseconds of the closed form, by turns over the sizes."""
    problems = [problem(p) for p in sizes]
    spent: dict[int, list[float]] = {len(X): [] for _, X, _ in problems}
    for turn in range(rounds + 1):
        for W1, X, Y in problems:
            ms = 1e3 * cpu_seconds(lambda a=(W1, X, Y): CONTENDERS["closed"](*a), 3)
            if turn:  # the first is the warm-up
                spent[len(X)].append(ms)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grok_gradient")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores, up to p=37")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    settings = (
        [(23, 256, 12), (37, 512, 6)] if quick else [(23, 256, 40), (37, 512, 20), (59, 1280, 5)]
    )
    figures, at_least = {}, {}
    for p, h, rounds in settings:
        spent = compare(p, h, rounds)
        for name, seconds in spent.items():
            if name == "closed":
                figures[f"closed_ms_p{p}"] = summary([1e3 * s for s in seconds])
                continue
            figure = f"{name}_over_closed_p{p}"
            pairs = zip(seconds, spent["closed"], strict=True)
            figures[figure] = summary([theirs / ours for theirs, ours in pairs])
            if name in AT_LEAST:
                at_least[figure] = AT_LEAST[name]
    against_n = cost_against_n([11, 23, 37] if quick else [11, 17, 23, 31, 37, 47, 59], 3)
    for n, ms in against_n.items():
        figures[f"closed_ms_n{n}"] = summary(ms)
    (n, ms), (n_last, ms_last) = list(against_n.items())[-2:]
    exponent = math.log(statistics.median(ms_last) / statistics.median(ms)) / math.log(n_last / n)
    print(f"closed form: cost grows as n^{exponent:.2f} from n={n} to n={n_last} at h = 1.04 n")
    finish("grok_gradient", figures, {}, at_least=at_least)


if __name__ == "__main__":
    main()
