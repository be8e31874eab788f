"""An inspection and its run folder: which checkpoints, measured once, read ever after."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import nn

import triplepoint
from triplepoint.errors import CheckpointError
from triplepoint.inspection.definitions import DEFINITIONS
from triplepoint.inspection.measuring import inspect_weights
from triplepoint.inspection.results import Inspection, Layer
from triplepoint.inspection.sources import source_of
from triplepoint.records import Record
from triplepoint.runs import RunFolder, read_json, read_records, write_arrays
from triplepoint.weights import Checkpoint, open_checkpoint, steps_of

KIND = "inspect"
"""What the manifests of these runs say they are."""
BEFORE, AFTER = "before", "after"
"""``arm`` in the records of two checkpoints that are compared."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """One checkpoint, or model, that is to be inspected."""

    given: Checkpoint | nn.Module
    name: str
    """As a report calls it: a path, or the size of a model."""
    step: int | None = None
    arm: str | None = None

    @property
    def key(self) -> str:
        """Return what tells it from the others of its run."""
        return self.arm or ("only" if self.step is None else f"step {self.step}")

    def identity(self) -> dict[str, object]:
        """Return what tells these weights from others without reading them: files, sizes, times of change."""
        if isinstance(self.given, nn.Module):
            return {"model": self.name}
        paths = sorted({entry.file for entry in self.given.entries.values()})
        return {"files": {str(path.resolve()): _state_of(path) for path in paths}}


def _state_of(path: Path) -> str:
    found = path.stat()
    changed = datetime.fromtimestamp(found.st_mtime, UTC).isoformat()
    return f"{found.st_size} bytes, changed {changed}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectionRun:
    """A finished inspection, as its folder tells it."""

    path: Path
    facts: dict[str, Any]
    """The manifest; ``inspections`` says of each checkpoint what was measured and what was not, and why."""
    records: list[Record]


def subjects_of(path: str | Path, other: str | Path | None = None) -> list[Subject]:
    """Open what is to be inspected: every checkpoint of a run folder, or two, of which the last ones count.

    Args:
        path: A checkpoint, or a run folder.
        other: Another, to compare ``path`` with; ``path`` is before, this after.

    Raises:
        CheckpointError: If one cannot be read, or the two have nothing in common.
    """
    if other is not None:
        return comparable(_last_of(path), _last_of(other))
    steps = steps_of(path)
    if not steps:
        return [_last_of(path)]
    return [
        Subject(given=open_checkpoint(folder), name=str(folder), step=step)
        for step, folder in steps.items()
    ]


def _last_of(path: str | Path) -> Subject:
    checkpoint = open_checkpoint(path)
    return Subject(
        given=checkpoint, name=str(checkpoint.path), step=max(steps_of(path), default=None)
    )


def comparable(before: Subject, after: Subject) -> list[Subject]:
    """Return two subjects as the two sides of a comparison; each tensor that only one has is measured all the same.

    Raises:
        CheckpointError: If no tensor with a spectrum has the same name and shape in both.
    """
    old, new = (
        {(t.name, t.shape) for t in source_of(s.given).tensors if len(t.shape) > 1}
        for s in (before, after)
    )
    if not old & new:
        raise CheckpointError(
            f"{before.name} and {after.name} have no matrix of the same name and shape.\n"
            "Compare two checkpoints of one model, or inspect each by itself."
        )
    sides = ((before, BEFORE), (after, AFTER))
    return [dataclasses.replace(subject, arm=arm) for subject, arm in sides]


Progress = Callable[[float, str], None]
"""Called with (share done, 0 to 1, and what was just measured)."""


def inspect_in_folder(
    path: Path,
    subjects: Sequence[Subject],
    *,
    metrics: Collection[str] | None = None,
    split_qkv: bool = False,
    bootstrap: int = 200,
    seed: int = 0,
    facts: Mapping[str, object] | None = None,
    data: object = None,
    activations: Callable[[], Iterable[Record]] = tuple,
    progress: Progress = lambda share, name: None,
) -> InspectionRun:
    """Measure checkpoints into a run folder; a finished one is read, an interrupted one starts again.

    Args:
        path: The folder.
        subjects: As :func:`subjects_of` opens them.
        metrics: As of :func:`~triplepoint.inspection.inspect_weights`, and so ``split_qkv``, ``bootstrap``, ``seed``.
        split_qkv: See there.
        bootstrap: See there.
        seed: See there.
        facts: More for the manifest.
        data: What identifies the data behind ``activations``; part of the run's identity.
        activations: Returns records of what data show, if any; called once, after the weights.
        progress: Called after each matrix.

    Raises:
        RunFolderError: If the folder holds another run, is in use, or cannot be written.
        UnknownNameError: If there is no such metric.
    """
    asked = {
        "checkpoints": {subject.key: subject.identity() for subject in subjects},
        "metrics": None if metrics is None else sorted(metrics),
        "split_qkv": split_qkv, "bootstrap": bootstrap, "seed": seed, "data": data,
    }  # fmt: skip
    options = {"metrics": metrics, "split_qkv": split_qkv, "bootstrap": bootstrap, "seed": seed}
    with RunFolder(path, asked=asked, kind=KIND) as folder:
        if folder.state != "finished":
            folder.rewind(0)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            folder.write_manifest({"status": "running", "started": started, **(facts or {})})
            found = _measure(folder, subjects, options, progress)
            folder.append(activations())
            _finish(folder, subjects, found, {**(facts or {}), "started": started})
    return load_inspection(path)


def load_inspection(path: Path) -> InspectionRun:
    """Read a finished inspection's folder."""
    facts = read_json(path / "manifest.json")
    return InspectionRun(path=path, facts=facts, records=read_records(path, facts["records_size"]))


def _measure(
    folder: RunFolder, subjects: Sequence[Subject], options: Mapping[str, Any], progress: Progress
) -> list[Inspection]:
    found = []
    for number, subject in enumerate(subjects):

        def told(name: str, done: int, total: int, number: int = number) -> None:
            progress((number + done / total) / len(subjects), name)

        inspection = inspect_weights(subject.given, step=subject.step, progress=told, **options)
        folder.append(dataclasses.replace(r, arm=subject.arm) for r in inspection.records)
        found.append(inspection)
    return found


def _finish(
    folder: RunFolder,
    subjects: Sequence[Subject],
    found: Sequence[Inspection],
    facts: Mapping[str, object],
) -> None:
    arrays = {
        f"{number}|{name}": array
        for number, inspection in enumerate(found)
        for name, array in inspection.arrays().items()
    }
    write_arrays(folder.path / "arrays.npz", arrays)
    recorded = dict.fromkeys(r.metric for r in folder.read_records(folder.append(())))
    folder.finish(
        {
            **facts,
            "inspections": [_told(s, i) for s, i in zip(subjects, found, strict=True)],
            "metrics": {m: DEFINITIONS[m.partition("@")[0] if m not in DEFINITIONS else m] for m in recorded},
            "version": triplepoint.__version__,
        }
    )  # fmt: skip


def _told(subject: Subject, inspection: Inspection) -> dict[str, object]:
    """Return what the records do not say of a checkpoint, for the manifest."""
    return {
        "name": subject.name,
        "step": subject.step,
        "arm": subject.arm,
        "matrices": [_told_of(layer) for layer in inspection.measured],
        "skipped": [dataclasses.asdict(skipped) for skipped in inspection.skipped],
        "left_out": list(inspection.left_out),
    }


def _told_of(layer: Layer) -> dict[str, object]:
    density = layer.density
    return {
        "name": layer.name,
        "tensor": layer.tensor,
        "kind": layer.kind,
        "shape": list(layer.shape),
        "reasons": layer.reasons,
        "fit": density.fit if density else {},
        "below_range": density.left_out if density else 0,
    }
