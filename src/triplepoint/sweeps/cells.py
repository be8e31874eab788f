"""Cells: runs that can be described in a file and run in another process."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from triplepoint.blueprints import Shape, blueprint_of
from triplepoint.blueprints.sizes import SizeBlueprint
from triplepoint.data import Corpus, ImageSet, load_corpus, load_images
from triplepoint.objectives import Batch, Objective
from triplepoint.recipes import Recipe
from triplepoint.sweeps.arms import ArmRun, Progress, identity_of_arm, run_arm
from triplepoint.sweeps.building import build_model
from triplepoint.sweeps.decoders import refuse_no_decoder

WINDOWS = (("val", "validation"), ("train", "train"), ("report", "report"))
"""Name of the fixed windows, and the split that they are from."""


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
class ImageSpec:
    """Which labelled images, and how many of them."""

    path: str | None = None
    """A folder of CIFAR-10 or CIFAR-100 in binary form; None for scikit-learn's digits."""
    train_images: int | None = None
    windows: int = 128
    """Fixed images per split."""

    def load(self) -> ImageSet:
        """Read the images."""
        return load_images(self.path, train_images=self.train_images)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a model on a text or on images: everything that its numbers depend on."""

    path: Path
    arm: str
    op: str | None
    """Op with or without preset, swapped in for the model's norms; None to leave them."""
    size: str
    """A named size, or another MODEL that :func:`triplepoint.blueprints.blueprint_of` takes."""
    data: DataSpec | ImageSpec
    recipe: Recipe
    dropout: float = 0.0
    must_start: bool = True
    """Whether a loss that is not finite at the first step is an error; else the arm diverged."""
    alpha: float | None = None
    """Initial alpha at every site of the op; None for the preset's."""
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of the size's configuration that differ from its own, e.g. ``{"attention": "diff_v1"}``."""
    until: int | None = None
    """Step at which it stops for now, no part of its identity; None for the recipe's last."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Inputs:
    """What a run reads, whatever it is: text or images."""

    shape: Shape
    """What the model takes from the data."""
    asked: dict[str, object]
    windows: dict[str, Batch]
    batches: Callable[[int], Iterator[Batch]]
    plateau: dict[str, float]
    described: dict[str, object]
    unit: str
    """Of the losses."""


def _inputs(cell: Cell) -> _Inputs:
    return _images(cell) if isinstance(cell.data, ImageSpec) else _text(cell)


def _text(cell: Cell) -> _Inputs:
    spec, recipe, corpus = cell.data, cell.recipe, cell.data.load()
    windows = {
        name: corpus.windows(split, context=spec.context, count=spec.windows)
        for name, split in WINDOWS
    }
    return _Inputs(
        shape=shape_of(corpus, spec, cell.dropout),
        asked=asked_of(cell, corpus.sha256),
        windows=windows,
        batches=lambda start: corpus.batches(
            recipe.seed, batch=recipe.batch, context=spec.context, start=start
        ),
        plateau={
            **{k: corpus.unigram_cross_entropy(windows[k]) for k in ("val", "train")},
            "uniform": math.log(corpus.vocab),
        },
        described=corpus.describe(),
        unit="nats/token",
    )


def _images(cell: Cell) -> _Inputs:
    spec, recipe, images = cell.data, cell.recipe, cell.data.load()
    windows = {name: images.samples(split, count=spec.windows) for name, split in WINDOWS}
    return _Inputs(
        shape=shape_of(images, spec, cell.dropout),
        asked=asked_of(cell, images.sha256),
        windows=windows,
        batches=lambda start: images.batches(recipe.seed, batch=recipe.batch, start=start),
        plateau={
            **{k: images.prior_cross_entropy(windows[k][1]) for k in ("val", "train")},
            "uniform": math.log(images.classes),
        },
        described=images.describe(),
        unit="nats/image",
    )


def shape_of(source: Corpus | ImageSet, spec: DataSpec | ImageSpec, dropout: float = 0.0) -> Shape:
    """Return what a model takes from its data."""
    if isinstance(spec, DataSpec):
        return Shape(vocab=source.vocab, context=spec.context, dropout=dropout)
    _, channels, height, _ = source.train[0].shape
    return Shape(image=(height, channels, source.classes), dropout=dropout)


def asked_of(cell: Cell, data_sha256: str) -> dict[str, object]:
    """Return what identifies a cell besides its arm and recipe.

    A field that came later than the first stored runs is in it only where it differs from its default, so
    that their folders stay valid.
    """
    asked: dict[str, object] = {
        "op": cell.op, "size": cell.size, "dropout": cell.dropout, "data": data_sha256, "windows": cell.data.windows,
    }  # fmt: skip
    if isinstance(cell.data, DataSpec):
        asked["context"] = cell.data.context
    if cell.alpha is not None:
        asked["alpha"] = cell.alpha
    if cell.changes:
        asked["changes"] = dict(cell.changes)
    if (identity := blueprint_of(cell.size).identity) is not None:
        asked["model"] = identity
    return asked


def identity_of_cell(cell: Cell, data_sha256: str) -> str:
    """Return the identity that the cell's manifest has, or will have."""
    return identity_of_arm(asked_of(cell, data_sha256), arm=cell.arm, recipe=cell.recipe)


def run_cell(cell: Cell, progress: Progress = lambda step, loss: None) -> ArmRun:
    """Run one cell in this process."""
    inputs = _inputs(cell)

    def build(seed: int) -> nn.Module:
        model = build_model(
            cell.size, op=cell.op, shape=inputs.shape, alpha=cell.alpha, changes=cell.changes
        )
        if isinstance(cell.data, DataSpec) and not isinstance(
            blueprint_of(cell.size), SizeBlueprint
        ):
            refuse_no_decoder(model, cell.size, inputs.windows["val"][:2, :-1])
        return model

    return run_arm(
        cell.path,
        asked=inputs.asked,
        build=build,
        batches=inputs.batches,
        windows=inputs.windows,
        objective=Objective(unit=inputs.unit),
        recipe=cell.recipe,
        arm=cell.arm,
        facts={
            "data": inputs.described,
            "plateau": inputs.plateau,
            "model": {"name": cell.size},
            "op": cell.op,
        },
        must_start=cell.must_start,
        until=cell.until,
        progress=progress,
    )
