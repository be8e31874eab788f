"""What DyT and Derf cost on a CPU, forward and backward: over the obvious module, ``F.layer_norm`` and a plain copy.

Obvious is ``weight * tanh(alpha * x) + bias`` in eager torch, as the authors' modules are. A copy reads and writes
memory once, forward and backward of any op at least five times in all, 2.5 times as much. Contenders go by turns, one
thread, float32; time is the process's own CPU time, the least of ``REPEATS`` in each turn.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from benchmarks._op_speed import OfficialDyT, PlainLayerNorm
from benchmarks._table import cpu_seconds, finish, summary
from triplepoint.ops import Derf, DyT

SHAPES = ((8192, 768), (2048, 4096), (1024, 128))
"""Tokens and width: GPT-2's, Llama-7B's, and a batch of a small model, which the cache holds."""
TARGETS = {
    "dyt_8192x768_obvious": 0.95,
    "dyt_2048x4096_obvious": 0.7,
    "derf_8192x768_obvious": 0.95,
    "derf_2048x4096_obvious": 0.7,
}
REPEATS = 3


class OfficialDerf(OfficialDyT):
    """Derf as its authors wrote it."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the op."""
        return torch.erf(self.alpha * x + self.shift) * self.weight + self.bias


def both(op: nn.Module, x: Tensor, upstream: Tensor) -> None:
    """Run the op forward and backward, from no gradients at all."""
    op.zero_grad(set_to_none=True)
    x.grad = None
    op(x).backward(upstream)


def turns(rows: int, dim: int, rounds: int) -> dict[str, list[float]]:
    """Return contender -> seconds of each turn, on one input."""
    x, upstream = torch.randn(rows, dim, requires_grad=True), torch.randn(rows, dim)
    ops = {
        "dyt": DyT(dim),
        "obvious_dyt": OfficialDyT(dim),
        "derf": Derf(dim),
        "obvious_derf": OfficialDerf(dim),
        "layer_norm": PlainLayerNorm(dim),
    }
    works = {name: lambda op=op: both(op, x, upstream) for name, op in ops.items()}
    works["copy"] = x.detach().clone
    for work in works.values():
        work()
    spent = {name: [] for name in works}
    times = max(1, 2**20 // x.numel())
    for _ in range(rounds):
        for name, work in works.items():
            spent[name].append(min(cpu_seconds(work, times) for _ in range(REPEATS)))
    return spent


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.op_speed")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores")
    rounds = 5 if parser.parse_args().quick else 15
    torch.set_num_threads(1)
    torch.manual_seed(0)
    figures = {}
    for rows, dim in SHAPES:
        spent = turns(rows, dim, rounds)
        for name in ("dyt", "derf"):
            for peer in (f"obvious_{name}", "layer_norm", "copy"):
                over = [a / b for a, b in zip(spent[name], spent[peer], strict=True)]
                figures[f"{name}_{rows}x{dim}_{peer.split('_' + name)[0]}"] = summary(over)
    finish("op_speed", figures, TARGETS)


if __name__ == "__main__":
    main()
