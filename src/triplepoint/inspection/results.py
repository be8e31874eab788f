"""What an inspection found: a row per matrix, a reason per tensor that is none, records and arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from triplepoint.errors import CheckpointError
from triplepoint.inspection.definitions import DEFINITIONS
from triplepoint.records import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density:
    """Eigenvalues of W^T W for drawing: a histogram on a logarithmic axis, not the eigenvalues themselves."""

    edges: np.ndarray
    """Bin edges [bin + 1], evenly spaced in log10, over what lies above 1e-10 of the largest."""
    counts: np.ndarray
    """Eigenvalues per bin [bin]."""
    null_counts: np.ndarray | None
    """The same of the matrix with its entries shuffled; None where no null was asked for."""
    left_out: int
    """Eigenvalues at or below 1e-10 of the largest."""
    fit: dict[str, float]
    """What lines to draw: ``tail_exponent``, ``tail_xmin``, ``tail_size`` and ``bulk_edge``, where there are any."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """One measured matrix."""

    name: str
    """Path of its module; ``[q]`` or ``[3]`` behind it for a part of a tensor."""
    tensor: str
    kind: str
    shape: tuple[int, int]
    """[out, in] as measured: convolutions unfolded, Conv1D turned."""
    values: dict[str, float]
    """Metric -> value."""
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Metric -> ends of its 95 % interval."""
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    """Metric -> why it has no value; of ``heavy_tailed``, which condition decided."""
    density: Density | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skipped:
    """One tensor in which nothing was measured."""

    name: str
    shape: tuple[int, ...]
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspection:
    """Everything that one checkpoint holds: each tensor in ``measured`` or, with a reason, in ``skipped``."""

    source: str
    """The path, or the class of the model."""
    measured: list[Layer]
    skipped: list[Skipped]
    left_out: tuple[str, ...] = ()
    """Keys of the file that hold no weights, e.g. ``optimizer``."""
    step: int | None = None

    @property
    def records(self) -> list[Record]:
        """One record per matrix and metric."""
        return [self._record(layer, metric) for layer in self.measured for metric in layer.values]

    def _record(self, layer: Layer, metric: str) -> Record:
        low, high = layer.intervals.get(metric, (None, None))
        return Record(
            metric=metric, value=layer.values[metric], low=low, high=high, n=min(layer.shape),
            unit=DEFINITIONS[metric]["unit"], step=self.step, site=layer.name,
        )  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the histograms by ``density|SITE|edges``, ``|counts``, ``|null_counts``: for ``arrays.npz``."""
        found = {}
        for layer in self.measured:
            if layer.density is not None:
                for part in ("edges", "counts", "null_counts"):
                    if (array := getattr(layer.density, part)) is not None:
                        found[f"density|{layer.name}|{part}"] = array
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One metric of one matrix, before and after; which of the two is better is not said."""

    name: str
    metric: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """``after - before``, in the metric's unit."""
        return self.after - self.before


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two inspections side by side."""

    changes: list[Change]
    """Largest change first, relative to the size of the two values."""
    unmatched: list[Skipped]
    """Matrices that only one of the two has, or that changed their shape."""


def compare(before: Inspection, after: Inspection) -> Comparison:
    """Set two inspections side by side, matrix by matrix and metric by metric.

    Raises:
        CheckpointError: If no matrix has the same name and shape in both.

    Example:
        >>> old, new = (Inspection(source="w", skipped=[], measured=[
        ...     Layer(name="l", tensor="l.weight", kind="linear", shape=(2, 2), values={"stable_rank": v})])
        ...     for v in (1.5, 2.0))
        >>> compare(old, new).changes[0].difference
        0.5
    """
    old = {layer.name: layer for layer in before.measured}
    new = {layer.name: layer for layer in after.measured}
    both = [n for n in old if n in new and new[n].shape == old[n].shape]
    if not both:
        raise CheckpointError(
            f"{before.source} and {after.source} have no matrix of the same name and shape.\n"
            "Compare two checkpoints of one model."
        )
    changes = [
        Change(name=name, metric=metric, before=value, after=new[name].values[metric])
        for name in both
        for metric, value in old[name].values.items()
        if metric in new[name].values
    ]
    return Comparison(
        changes=sorted(changes, key=_relative_size, reverse=True),
        unmatched=_unmatched(old, new, before, after),
    )


def _relative_size(change: Change) -> float:
    size = max(abs(change.before), abs(change.after))
    return abs(change.difference) / size if size else 0.0


def _unmatched(
    old: dict[str, Layer], new: dict[str, Layer], before: Inspection, after: Inspection
) -> list[Skipped]:
    def only(first: dict[str, Layer], second: dict[str, Layer], where: str) -> Sequence[Skipped]:
        return [
            Skipped(name=n, shape=first[n].shape, reason=f"only in {where}")
            for n in first
            if n not in second
        ]

    changed = [
        Skipped(name=n, shape=new[n].shape, reason=f"of shape {list(old[n].shape)} in {before.source}")
        for n in old
        if n in new and new[n].shape != old[n].shape
    ]  # fmt: skip
    return [*only(old, new, before.source), *only(new, old, after.source), *changed]
