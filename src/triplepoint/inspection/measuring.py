"""Every matrix of a checkpoint or a model measured: tails with intervals and a null, ranks, norms."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from torch import Tensor, nn

from triplepoint.errors import CheckpointError, unknown_name
from triplepoint.inspection.definitions import WEIGHT_METRICS
from triplepoint.inspection.layers import measure_matrix
from triplepoint.inspection.matrices import Matrix, distinctly_named, matrices_of
from triplepoint.inspection.results import Inspection, Layer, Skipped
from triplepoint.inspection.sources import Source, source_of
from triplepoint.records import Record
from triplepoint.weights import Checkpoint, steps_of

Given = str | Path | Checkpoint | nn.Module
Progress = Callable[[str, int, int], None]
"""Called with (name of the matrix just measured, work done, work in all), in multiplications."""

MAX_SIDE = 16_384
"""Longest smaller side measured by default: its eigenvalues take 24 side^2 bytes, here 6 GiB; time grows as its cube."""


def inspect_checkpoint(
    given: Given, metrics: Collection[str] | None = None, **options: object
) -> list[Record]:
    """Return the records of :func:`inspect_weights`; of every step, where a run folder has several.

    Args:
        given: Path, opened checkpoint or model.
        metrics: Names of :data:`WEIGHT_METRICS`; None for all.
        options: As of :func:`inspect_weights`.

    Example:
        >>> import torch
        >>> model = nn.Linear(3, 2)
        >>> model.weight.data = torch.tensor([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> [(r.site, r.value) for r in inspect_checkpoint(model, ["stable_rank"])]  # (9 + 1) / 9
        [('weight', 1.1111...)]
    """
    inspections = inspect_steps(given, metrics=metrics, **options)
    return [record for inspection in inspections for record in inspection.records]


def inspect_steps(given: Given, **options: object) -> list[Inspection]:
    """Inspect every checkpoint of a run folder, first step first; of anything else, the one that it is.

    Whether a trajectory is good or bad is not said: tail exponents fall and rise again while models improve.
    """
    steps = {} if isinstance(given, nn.Module | Checkpoint) else steps_of(given)
    if not steps:
        return [inspect_weights(given, **options)]
    return [inspect_weights(folder, **{**options, "step": step}) for step, folder in steps.items()]


def inspect_weights(
    given: Given,
    *,
    metrics: Collection[str] | None = None,
    split_qkv: bool = False,
    null: bool = True,
    bootstrap: int = 200,
    max_side: int = MAX_SIDE,
    seed: int = 0,
    step: int | None = None,
    progress: Progress = lambda name, done, total: None,
) -> Inspection:
    """Measure every matrix of weights, one tensor at a time, and say of each other tensor why it is none.

    Memory beside a live model: the largest tensor in float32, 24 min(m, n)^2 bytes for the largest matrix, and
    64 MiB. Tensors of one storage are measured once.

    Args:
        given: Path of a checkpoint as :func:`triplepoint.weights.open_checkpoint` takes it, one already opened,
            or a model.
        metrics: Names of :data:`WEIGHT_METRICS`; None for all.
        split_qkv: Whether to measure fused q, k and v as three matrices, where it is known which rows they are.
        null: Whether to measure each matrix with its entries shuffled as well, which doubles the time; without it
            nothing is called heavy-tailed.
        bootstrap: Resamples for the interval of the tail exponent; 0 for none.
        max_side: Longest smaller side of a matrix that is measured.
        seed: Of the resampling and the shuffling.
        step: Written into the records.
        progress: Called after each matrix.

    Returns:
        Each tensor in ``measured`` or ``skipped``.

    Raises:
        CheckpointError: If the path cannot be read.
        UnknownNameError: If there is no such metric.
    """
    wanted = _known(metrics)
    source = source_of(given, step=step)
    options = {"split_qkv": split_qkv, "config": source.config, "max_side": max_side}
    plan = distinctly_named({info.name: matrices_of(info, **options) for info in source.tensors})
    total = sum(_work(m) for found in plan.values() if not isinstance(found, str) for m in found)
    measured: list[Layer] = []
    skipped: list[Skipped] = []
    done = 0
    for info in source.tensors:
        found = plan[info.name]
        tensor = found if isinstance(found, str) else _read(source, info.name)
        if isinstance(tensor, str):
            skipped.append(Skipped(name=info.name, shape=info.shape, reason=tensor))
            continue
        for matrix in found:
            layer = measure_matrix(
                matrix, tensor, wanted, null=null, bootstrap=bootstrap, seed=seed, name=info.name
            )
            measured.append(layer)
            done += _work(matrix)
            progress(matrix.name, done, total)
        del tensor  # before the next is read, so that there is one at a time
    return Inspection(
        source=source.name, measured=measured, skipped=skipped, left_out=source.left_out, step=step
    )


def _known(metrics: Collection[str] | None) -> set[str]:
    for name in metrics or ():
        if name not in WEIGHT_METRICS:
            raise unknown_name("metric of weights", name, WEIGHT_METRICS)
    return set(WEIGHT_METRICS if metrics is None else metrics)


def _read(source: Source, name: str) -> Tensor | str:
    try:
        return source.read(name)
    except CheckpointError as error:  # one damaged or oversized tensor does not end the inspection
        return str(error).splitlines()[0]


def _work(matrix: Matrix) -> int:
    """Return roughly how many multiplications a matrix takes: its Gram matrix, and 9 k^3 for eigenvalues."""
    small, large = sorted(matrix.shape)
    return small * small * large + 9 * small**3
