"""Cells: runs that can be described in a file and run in another process."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from torch import nn

from triplepoint.data import Corpus, load_corpus
from triplepoint.models import GPT2, config_of
from triplepoint.objectives import Objective
from triplepoint.recipes import Recipe
from triplepoint.surgery import swap_norms
from triplepoint.sweeps.arms import ArmRun, Progress, run_arm


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Which text, and how much of it."""

    path: str | None = None
    """A text file or folder, a ``.bin`` file, a ``datasets`` folder; None for the embedded corpus."""
    tokenizer: str | None = None
    vocab: int | None = None
    train_tokens: int | None = None
    context: int = 128
    windows: int = 128
    """Fixed windows per split."""

    def load(self) -> Corpus:
        """Read the corpus."""
        return load_corpus(
            self.path, context=self.context, train_tokens=self.train_tokens,
            tokenizer=self.tokenizer, vocab=self.vocab,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a named size on a text: everything that its numbers depend on."""

    path: Path
    arm: str
    op: str | None
    """Op with or without preset, swapped in for the model's norms; None to leave them."""
    size: str
    data: DataSpec
    recipe: Recipe
    dropout: float = 0.0
    must_start: bool = True
    """Whether a loss that is not finite at the first step is an error; else the arm diverged."""


def build_model(
    size: str, *, op: str | None, vocab: int, context: int, dropout: float
) -> nn.Module:
    """Build a named size with its norms replaced by ``op``."""
    model = GPT2(config_of(size, vocab=vocab, context=context, dropout=dropout))
    if op is not None:
        swap_norms(model, op)
    return model


def run_cell(cell: Cell, progress: Progress = lambda step, loss: None) -> ArmRun:
    """Run one cell in this process."""
    corpus, recipe, spec = cell.data.load(), cell.recipe, cell.data

    def build(seed: int) -> nn.Module:
        return build_model(
            cell.size, op=cell.op, vocab=corpus.vocab, context=spec.context, dropout=cell.dropout
        )

    windows = {
        name: corpus.windows(split, context=spec.context, count=spec.windows)
        for name, split in (("val", "validation"), ("train", "train"), ("report", "report"))
    }
    return run_arm(
        cell.path,
        asked={"op": cell.op, "size": cell.size, "dropout": cell.dropout, "data": corpus.sha256,
               "context": spec.context, "windows": spec.windows},
        build=build,
        batches=lambda start: corpus.batches(
            recipe.seed, batch=recipe.batch, context=spec.context, start=start
        ),
        windows=windows,
        objective=Objective(),
        recipe=recipe,
        arm=cell.arm,
        facts={
            "data": corpus.describe(),
            "plateau": {
                **{k: corpus.unigram_cross_entropy(windows[k]) for k in ("val", "train")},
                "uniform": math.log(corpus.vocab),
            },
            "model": {"name": cell.size},
            "op": cell.op,
        },
        must_start=cell.must_start,
        progress=progress,
    )  # fmt: skip
