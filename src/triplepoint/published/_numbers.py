"""What arXiv 2604.23434 and its repository print, and the values per seed that it follows from.

The losses and saturations of the paper's cells are those of :func:`triplepoint.published.load_cells`;
``numbers.json`` adds the other runs, and every printed number with where it stands.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from triplepoint.published._cells import load_cells


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SeedValues:
    """One quantity of one setting, seed by seed."""

    name: str
    """Setting and quantity, e.g. ``S1/1M dyt loss``."""
    seeds: Mapping[str, float]
    """Seed -> value; a single entry ``mean`` where only the mean was shipped."""
    decimals: int | None
    """Decimals that were shipped; None where all were."""
    unit: str
    source: str
    """File in the paper's repository."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PrintedNumber:
    """A number as the paper or its repository prints it, and how it can be recomputed."""

    what: str
    text: str | None
    """The digits as printed; None for a number that follows from the settings and is printed nowhere."""
    where: str
    """Table or file."""
    quantity: str
    """Name of the computation, e.g. ``delta_pct``; empty where the values for it were not shipped."""
    of: tuple[str, ...]
    """Its arguments: names of :class:`SeedValues`, cells, or settings."""
    note: str = ""
    """Why it differs, or why it cannot be recomputed."""


@functools.cache
def _numbers() -> dict:
    file = importlib.resources.files("triplepoint.published").joinpath("numbers.json")
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def load_values() -> Mapping[str, SeedValues]:
    """Return every per-seed value that was shipped, by name: those of the cells and all others.

    DiffAttn values are arithmetic only: the published module sees future tokens.

    References:
        Verma (2026), `arXiv 2604.23434 <https://arxiv.org/abs/2604.23434>`_; result files of its repository.

    Example:
        >>> dict(load_values()["S1/1M dyt loss"].seeds)
        {'1337': 6.7841, '42': 7.0431, '7': 6.6283}
    """
    others = (SeedValues(name=name, **row) for name, row in _numbers()["values"].items())
    return MappingProxyType({v.name: v for v in (*_cell_values(), *others)})


def _cell_values() -> Iterator[SeedValues]:
    for cell in load_cells():
        for field, name, unit, source in (
            ("baseline_loss", f"{cell.baseline} loss", "nats/token", "losses"),
            ("candidate_loss", "dyt loss", "nats/token", "losses"),
            ("saturation_2", "dyt saturation", "share", "saturation_2"),
        ):
            values = getattr(cell, field)
            if values is not None:
                yield SeedValues(
                    name=f"{cell.name} {name}",
                    seeds={str(seed): value for seed, value in values.items()},
                    decimals=4,
                    unit=unit,
                    source=cell.sources[source],
                )


@functools.cache
def load_printed() -> tuple[PrintedNumber, ...]:
    """Return the printed numbers, table by table, then those that are printed nowhere.

    The last ones follow from the settings alone, e.g. the learning rate at a step. Numbers for which no values
    were shipped have an empty ``quantity``.

    Example:
        >>> first = load_printed()[0]
        >>> first.what, first.text, first.quantity
        ('S1/1M: tokens per parameter', '16', 'tokens_per_parameter')
    """
    data = _numbers()
    printed = [_printed(where, *row) for where, rows in data["printed"].items() for row in rows]
    derived = [
        PrintedNumber(what=what, text=None, where="", quantity=quantity, of=tuple(of))
        for what, quantity, of in data["derived"]
    ]
    closed = [
        PrintedNumber(what=what, text=text, where=where, quantity="", of=(), note=why)
        for what, text, where, why in data["not_recomputable"]
    ]
    return (*printed, *derived, *closed)


def _printed(
    where: str, what: str, text: str, quantity: str, of: list[str], note: str = ""
) -> PrintedNumber:
    return PrintedNumber(
        what=what, text=text, where=where, quantity=quantity, of=tuple(of), note=note
    )
