"""How long the ops take, forward and backward, against other implementations and against copying.

An op that reads and writes memory once takes no less than moving its bytes: forward reads x and writes y,
backward reads x and the gradient of y and writes that of x, five passes. ``torch.clone`` is two, so the copy limit
is 2.5 times its time.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.ops import Derf, DyT, LayerNorm
from triplepoint.records import Record

Shape = tuple[int, int]

SHAPES: tuple[Shape, ...] = ((8192, 768), (2048, 4096), (16384, 1024))
"""Tokens and width: GPT-2's, Llama-7B's, and one of 32 MB in bfloat16, which fewer caches hold."""
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
PASSES = 5 / 2
"""Passes over memory of forward and backward, over those of a copy."""
FLUSHED = 2**30
"""Bytes written between two runs: more than any cache, and long enough for the host to queue the next op behind."""


class OfficialDyT(nn.Module):
    """DyT as its authors wrote it: in the dtype of its input throughout."""

    def __init__(self, dim: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the op."""
        return torch.tanh(self.alpha * x) * self.weight + self.bias


class PlainLayerNorm(nn.Module):
    """``F.layer_norm`` with its gain and shift."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the op."""
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias)


def contenders(dim: int, device: torch.device) -> dict[str, nn.Module]:
    """Return name -> op, Liger's only where it is installed and there is a GPU that it runs on."""
    found: dict[str, nn.Module] = {
        "dyt": DyT(dim),
        "derf": Derf(dim),
        "layernorm": LayerNorm(dim),
        "F.layer_norm": PlainLayerNorm(dim),
        "official DyT": OfficialDyT(dim),
    }
    if liger_state(device) == "installed":
        from liger_kernel.transformers.dyt import LigerDyT

        found["Liger DyT"] = LigerDyT(dim)
    return found


def liger_state(device: torch.device) -> str:
    """Return ``installed``, ``not installed`` or ``needs a GPU``."""
    if importlib.util.find_spec("liger_kernel") is None:
        return "not installed"
    return "installed" if device.type == "cuda" else "needs a GPU"


def seconds(
    work: Callable[[], object], *, device: torch.device, runs: int, before: Callable[[], object]
) -> list[float]:
    """Return the time of each run: the device's own on CUDA, else the process's CPU time.

    ``before`` is called ahead of each run and not timed; on CUDA the caches are overwritten as well.
    """
    for _ in range(3):
        before()
        work()
    if device.type != "cuda":
        return [_cpu_seconds(work, before) for _ in range(runs)]
    flush = torch.empty(FLUSHED, dtype=torch.int8, device=device)
    events = []
    for _ in range(runs):
        before()
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize(device)
    return [start.elapsed_time(end) / 1e3 for start, end in events]


def _cpu_seconds(work: Callable[[], object], before: Callable[[], object]) -> float:
    before()
    start = time.process_time()
    work()
    return time.process_time() - start


def time_ops(shape: Shape, dtype: torch.dtype, *, device: torch.device, runs: int) -> list[Record]:
    """Time every contender on one input, and a copy of it.

    Args:
        shape: Tokens and width.
        dtype: Of the input, the gradient and all parameters.
        device: Where.
        runs: Timed runs of each.

    Returns:
        ``forward_backward_time`` of each contender and ``clone_time``, seconds: the median, in ``low`` and ``high``
        the fastest and the slowest run.
    """
    x = torch.randn(shape, device=device, dtype=dtype)
    records = [_record("clone_time", "clone", seconds(x.clone, device=device, runs=runs, before=lambda: None))]  # fmt: skip
    for name, times in _times(x, runs):
        records.append(_record("forward_backward_time", name, times))
    return records


def _times(x: Tensor, runs: int) -> Iterator[tuple[str, list[float]]]:
    upstream, x = torch.randn_like(x), x.requires_grad_()
    for name, op in contenders(x.shape[-1], x.device).items():
        op = op.to(device=x.device, dtype=x.dtype)

        def forget(op: nn.Module = op) -> None:
            op.zero_grad(set_to_none=True)
            x.grad = None

        def both(op: nn.Module = op) -> None:
            op(x).backward(upstream)

        yield name, seconds(both, device=x.device, runs=runs, before=forget)


def _record(metric: str, arm: str, times: list[float]) -> Record:
    return Record(
        metric=metric, arm=arm, unit="s", value=statistics.median(times), low=min(times), high=max(times),
        n=len(times),
    )  # fmt: skip


def ratios(records: list[Record]) -> dict[str, dict[str, float]]:
    """Return contender -> milliseconds, its time over the copy limit, and over ``F.layer_norm``.

    Example:
        >>> rows = [Record(metric="clone_time", arm="clone", value=2e-3),
        ...         Record(metric="forward_backward_time", arm="F.layer_norm", value=5e-3),
        ...         Record(metric="forward_backward_time", arm="dyt", value=0.01)]
        >>> ratios(rows)["dyt"]
        {'ms': 10.0, 'over_copy_limit': 2.0, 'over_layer_norm': 2.0}
    """
    time_of = {r.arm: r.value for r in records}
    limit = PASSES * time_of.pop("clone")
    return {
        name: {
            "ms": round(1e3 * value, 4),
            "over_copy_limit": round(value / limit, 3),
            "over_layer_norm": round(value / time_of["F.layer_norm"], 3),
        }
        for name, value in time_of.items()
    }
