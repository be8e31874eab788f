"""The axes of a sweep: what a cell can differ in, and grids of values -> settings of cells."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pydantic

from triplepoint.errors import PlanError, unknown_name
from triplepoint.models import SIZES, config_of
from triplepoint.ops import parse_op_name

OWN_NORM = {"gpt2": "layernorm", "llama": "rmsnorm", "vit": "layernorm"}
"""Family -> the norm that its models are built with, which ``op = "norm"`` leaves in place."""
SHAPE_AXES = (
    "width", "layers", "heads", "kv_heads", "attention", "ffn", "gate_scale", "positions",
)  # fmt: skip
"""Axes that change the named size's own configuration."""
MODEL_AXES = ("op", "alpha", *SHAPE_AXES, "dropout")


class CellSettings(pydantic.BaseModel):
    """One cell of a sweep, in the words of a sweep file; each field is an axis.

    Example:
        >>> CellSettings(size="llama-0.1m", op="dyt").canonical().op
        'dyt:recommended'
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    size: str = "gpt2-0.4m"
    """A named size; its first word is the family."""
    unique_tokens: pydantic.PositiveInt | None = None
    """Training tokens kept from the beginning of the text, or images of an image set; None for all."""
    op: str = "norm"
    """What stands at the norm sites, with or without preset; ``norm`` for the family's own."""
    alpha: float | None = None
    """Initial alpha at every site, dimensionless; None for the preset's."""
    width: pydantic.PositiveInt | None = None
    """Features of a token; this and the next seven: None for the size's own."""
    layers: pydantic.PositiveInt | None = None
    heads: pydantic.PositiveInt | None = None
    kv_heads: pydantic.PositiveInt | None = None
    """Key/value heads, ``llama`` only."""
    attention: str | None = None
    """``sdpa``, ``gated``, ``diff_v1``, ``diff_v2`` or ``paper_v1_leaky``."""
    ffn: str | None = None
    """``swiglu`` or ``gelu``, ``llama`` only."""
    gate_scale: float | None = None
    """Factor on SwiGLU's initial gate weights, ``llama`` only."""
    positions: str | None = None
    """``rope`` or ``learned``, ``llama`` only."""
    dropout: float = 0.0
    """Share of activations dropped."""
    weight_decay: float = 0.1
    """AdamW's, on matrices only."""
    lr: float = 1e-3
    """Peak learning rate; 1e-3 suits byte models below 3M parameters."""
    warmup: pydantic.NonNegativeInt = 100
    """Steps."""
    schedule: str = "cosine"
    """``cosine`` (to a tenth) or ``constant``."""
    steps: pydantic.PositiveInt = 1500
    """Optimiser steps."""
    batch: pydantic.PositiveInt = 8
    """Sequences, or images, per step."""
    context: pydantic.PositiveInt | None = None
    """Tokens per sequence; None for the size's own."""
    precision: str = "fp32"
    """``fp32`` or ``bf16``."""
    seed: pydantic.NonNegativeInt = 0
    """Of weights, batches and dropout."""

    @property
    def family(self) -> str:
        """``gpt2``, ``llama`` or ``vit``."""
        return self.size.partition("-")[0]

    @property
    def changes(self) -> dict[str, Any]:
        """Return the fields of the size's configuration that were given."""
        return {n: v for n in SHAPE_AXES if (v := getattr(self, n)) is not None}

    def canonical(self) -> CellSettings:
        """Return the same cell in its one spelling.

        ``dyt`` is ``dyt:recommended``, ``norm`` the family's own, and what the size is anyway is left out.

        Raises:
            UnknownNameError: If there is no such op or preset.
        """
        own = config_of(self.size) if self.size in SIZES else None
        spelt = {
            n: None for n in (*SHAPE_AXES, "context") if getattr(self, n) == getattr(own, n, None)
        }
        return self.model_copy(update={"op": canonical_op(self.op, self.family), **spelt})

    def told(self) -> str:
        """Name the cell by what is not left to a default."""
        given = {"size": self.size, **self.model_dump(exclude_defaults=True)}
        return ", ".join(f"{k}={v}" for k, v in given.items())


AXES = tuple(CellSettings.model_fields)
"""Names of all axes."""


def canonical_op(op: str, family: str) -> str:
    """Return the one spelling of an op: with its preset, but for norms, which have one only.

    Example:
        >>> canonical_op("norm", "llama"), canonical_op("derf", "gpt2")
        ('rmsnorm', 'derf:recommended')
    """
    if op.strip() == "norm":
        return OWN_NORM.get(family, "layernorm")
    name, preset = parse_op_name(op)
    return name if name in OWN_NORM.values() else f"{name}:{preset.name}"


class Override(pydantic.BaseModel):
    """``[[where]]`` of a sweep file: cells that match ``when`` get what is in ``set``."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    when: dict[str, Any]
    """Axis -> value, or a list of values."""
    set: dict[str, Any]
    """Axis -> value."""

    def applies_to(self, cell: CellSettings) -> bool:
        """Return whether the cell has one of the values of every axis in ``when``."""
        for axis, values in self.when.items():
            wanted = values if isinstance(values, list) else [values]
            like = [
                settings_from({**cell.model_dump(), axis: value}).canonical() for value in wanted
            ]
            if all(getattr(one, axis) != getattr(cell.canonical(), axis) for one in like):
                return False
        return True


def settings_from(values: Mapping[str, Any]) -> CellSettings:
    """Return the settings of a cell.

    Raises:
        PlanError: If an axis does not exist, or a value is not of its kind.
    """
    for axis in values:
        if axis not in AXES:
            error = unknown_name("axis", axis, AXES)
            raise PlanError(str(error))
    try:
        return CellSettings(**values)
    except pydantic.ValidationError as error:
        raise PlanError(told_invalid(error)) from error


def told_invalid(error: pydantic.ValidationError) -> str:
    """Say in two lines which value a sweep file has wrong, and what it should be."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return (
        f"{where or 'The plan'}: {first['msg'].lower()}, got {first['input']!r}.\n"
        f"Correct that entry{' and ' + str(error.error_count() - 1) + ' more' if error.error_count() > 1 else ''}."
    )


def expand(
    grids: Iterable[Mapping[str, Sequence[Any]]],
    *,
    defaults: Mapping[str, Any],
    overrides: Sequence[Override] = (),
) -> list[CellSettings]:
    """Return the cells of one or several grids, in order, the last axis of each changing fastest.

    Args:
        grids: Each axis -> values; all combinations are cells.
        defaults: Axis -> value where a grid does not name the axis.
        overrides: Applied to each cell, in order.

    Raises:
        PlanError: If an axis is unknown or has no value, a cell is there twice, or an override is of none.

    Example:
        >>> cells = expand([{"seed": [0, 1], "op": ["norm", "dyt"]}], defaults={"steps": 10})
        >>> [(c.seed, c.op) for c in cells]
        [(0, 'layernorm'), (0, 'dyt:recommended'), (1, 'layernorm'), (1, 'dyt:recommended')]
    """
    used: set[int] = set()
    cells = [cell for grid in grids for cell in _expand_one(grid, defaults, overrides, used)]
    if not cells:
        raise PlanError("The plan has no cell.\nGive a grid, e.g. op = ['norm', 'dyt'].")
    for number, override in enumerate(overrides):
        if number not in used:
            raise PlanError(
                f"No cell matches [[where]] number {number + 1}: {override.when}.\nCorrect it, or leave it out."
            )
    seen: set[CellSettings] = set()
    twice = [cell for cell in cells if cell in seen or seen.add(cell)]
    if twice:
        raise PlanError(
            f"{len(twice)} of {len(cells)} cells are duplicates, the first: {twice[0].told()}.\n"
            "Name each value once; an op without preset means `recommended`, and [[where]] may make cells equal."
        )
    return cells


def _expand_one(
    grid: Mapping[str, Sequence[Any]],
    defaults: Mapping[str, Any],
    overrides: Sequence[Override],
    used: set[int],
) -> Iterator[CellSettings]:
    """Yield the cells of one grid, and note in ``used`` which overrides applied to any."""
    lists = {axis: v if isinstance(v, list | tuple) else [v] for axis, v in grid.items()}
    for axis, values in lists.items():
        if not values:
            raise PlanError(f"The axis {axis} has no value.\nGive at least one, or leave it out.")
    for combination in itertools.product(*lists.values()):
        values = {**defaults, **dict(zip(lists, combination, strict=True))}
        cell = settings_from(values).canonical()
        for number, override in enumerate(overrides):
            if override.applies_to(cell):
                used.add(number)
                cell = settings_from({**cell.model_dump(), **override.set}).canonical()
        yield cell
