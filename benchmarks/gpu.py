"""What only a GPU can tell: LayerNorm against DyT at 38M parameters in bfloat16, and the speed of the ops.

About eight minutes on a data-centre GPU are planned for; none has been measured. The ops first: forward and
backward against ``F.layer_norm``, DyT's official formula, Liger's kernel where it is installed, and the copy limit.
Then six runs of gpt2-64m on bytes, context 512, batch 64, 1500 steps, one seed: LayerNorm, DyT recommended and DyT paper on 1
and on 9 million bytes of the embedded corpus. 64m is the published size with its vocabulary of 50304; with bytes it
has 38M parameters, printed by convention.

An interrupted run resumes with the same command: finished cells are read from ``--out``, the newest checkpoint of an
unfinished one is taken up. Everything lies in ``--out`` (by default the folder named by the variable OUT, else
``runs/gpu``): ``ops/`` and ``training/`` hold the records as Parquet, ``runs/`` the run folders; a finished run's
checkpoints, half a gigabyte each, are deleted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from studies._cells import complete, read_cells

from benchmarks._op_speed import DTYPES, SHAPES, Shape, liger_state, ratios, time_ops
from triplepoint.models import config_of, model_of, parameter_counts
from triplepoint.recipes import Recipe
from triplepoint.records import Record
from triplepoint.sweeps import Cell, DataSpec, run_cell, versions

ARMS = ("layernorm", "dyt:recommended", "dyt:paper")
LOOKS = (25, 50, 100, 175, 250, 375, 500, 700, 1000, 1400, 1500)
"""Steps of a screen; losses are taken every 50 steps besides."""
VOCAB = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run."""

    size: str = "gpt2-64m"
    context: int = 512
    batch: int = 64
    steps: int = 1500
    tokens: tuple[int, ...] = (1_000_000, 9_000_000)
    """Training bytes."""
    windows: int = 128
    """Fixed windows per split."""
    shapes: tuple[Shape, ...] = SHAPES
    runs: int = 50
    """Timed runs of each op."""
    lr: float = 3e-4
    """The peak rate of arXiv 2604.23434 at this width and depth."""

    def cells(self, runs: Path) -> dict[str, Cell]:
        """Return the training runs by name, the smaller data first."""
        return {
            f"{arm.replace(':', '-')}_{tokens}": self._cell(arm, tokens, runs)
            for tokens in self.tokens
            for arm in ARMS
        }

    def _cell(self, arm: str, tokens: int, runs: Path) -> Cell:
        every_50 = range(50, self.steps + 1, 50)
        return Cell(
            path=runs / f"{arm.replace(':', '-')}_{tokens}",
            arm=arm,
            op=None if arm == "layernorm" else arm,
            size=self.size,
            data=DataSpec(train_tokens=tokens, context=self.context, windows=self.windows),
            recipe=Recipe(
                steps=self.steps,
                batch=self.batch,
                lr=self.lr,
                warmup=min(100, self.steps // 4),
                precision="bf16",
                eval_steps=tuple(sorted({*every_50, *(s for s in LOOKS if s <= self.steps)})),
                checkpoint_every=250,
            ),
        )


FULL = Plan()
TINY = Plan(
    size="gpt2-0.1m", context=32, batch=2, steps=30, tokens=(5_000, 20_000), windows=2,
    shapes=((16, 64),), runs=3,
)  # fmt: skip


def print_sizes(plan: Plan) -> dict[str, int]:
    """Print and return the LayerNorm model's parameters by convention, and T/P for each."""
    with torch.device("meta"):
        model = model_of(config_of(plan.size, vocab=VOCAB, context=plan.context))
    counts = parameter_counts(model)
    for convention, p in counts.items():
        per = ", ".join(f"{t / p:.3g} at {t:,} bytes" for t in plan.tokens)
        print(f"{plan.size} with {VOCAB} bytes: {convention} {p:,}; T/P {per}")
    return counts


def run_ops(plan: Plan, device: torch.device, stored: Path) -> dict[str, dict]:
    """Time the ops that have no stored records, print all, and return shape and dtype -> contender -> ratios."""
    cells = {
        f"{tokens}x{width}_{name}": lambda s=(tokens, width), d=dtype: time_ops(
            s, d, device=device, runs=plan.runs
        )
        for tokens, width in plan.shapes
        for name, dtype in DTYPES.items()
    }
    complete(cells, stored)
    found = {name: ratios(records) for name, records in read_cells(cells, stored).items()}
    print("\n| input | op | ms | over the copy limit | over F.layer_norm |\n|---|---|---|---|---|")
    for name, table in found.items():
        for op, row in table.items():
            print(f"| {name} | {op} | {row['ms']} | {row['over_copy_limit']} | {row['over_layer_norm']} |")  # fmt: skip
    print(f"\nLiger's DyT: {liger_state(device)}\n")
    return found


def train_cells(plan: Plan, out: Path) -> dict[str, dict[str, float]]:
    """Train the cells that have no stored records, and return cell -> what a reader quotes."""
    cells, stored = plan.cells(out / "runs"), out / "training"
    for name, cell in cells.items():
        complete({name: lambda c=cell: run_cell(c).records}, stored)
        shutil.rmtree(cell.path / "checkpoints", ignore_errors=True)
    found = {name: quoted(records) for name, records in read_cells(cells, stored).items()}
    for tokens in plan.tokens:
        baseline = found[f"layernorm_{tokens}"]
        for name in (f"{arm.replace(':', '-')}_{tokens}" for arm in ARMS[1:]):
            for endpoint in ("fixed_step", "best_checkpoint"):
                if endpoint in found[name] and endpoint in baseline:
                    delta = found[name][endpoint] / baseline[endpoint] - 1
                    found[name][f"delta_rel_{endpoint}"] = round(delta, 5)
    return found


def quoted(records: Sequence[Record]) -> dict[str, float]:
    """Return the validation loss at both endpoints, and the throughput; empty where a run diverged."""
    found = {r.endpoint: r.value for r in records if r.metric == "val_loss" and r.endpoint}
    costs = {r.metric: r.value for r in records if r.metric in ("tokens_per_s", "peak_memory")}
    return {**{k: round(v, 5) for k, v in found.items()}, **{k: round(v) for k, v in costs.items()}}


def print_training(found: Mapping[str, Mapping[str, float]]) -> None:
    """Print one row a run."""
    names = ("fixed_step", "best_checkpoint", "delta_rel_fixed_step", "delta_rel_best_checkpoint", "tokens_per_s", "peak_memory")  # fmt: skip
    print("| run | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(str(row.get(n, "-")) for n in names) + " |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="seconds: shows that it runs")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "runs/gpu")))
    given = parser.parse_args(arguments)
    if given.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Accelerate would take the GPU
    elif not torch.cuda.is_available():
        print(
            "There is no CUDA device.\nRun it on a machine that has one, or try --device cpu --tiny.",
            file=sys.stderr,
        )
        return 2
    plan, device = TINY if given.tiny else FULL, torch.device(given.device)
    params = print_sizes(plan)
    ops = run_ops(plan, device, given.out / "ops")
    training = train_cells(plan, given.out)
    print_training(training)
    figures = {"params": params, "ops": ops, "liger": liger_state(device), "training": training}
    print(json.dumps({"name": "gpu", "figures": figures, "machine": versions()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
