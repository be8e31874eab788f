"""Shared by ``inspect``: which checkpoints are meant, the data that run through them, and the measurement."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from torch import nn

from triplepoint.cli._checking import model_to_check
from triplepoint.cli._output import Track
from triplepoint.data import load_corpus, load_images
from triplepoint.errors import PlanError, unknown_name
from triplepoint.inspection import DEFINITIONS, WEIGHT_METRICS, inspect_activations
from triplepoint.inspection.folders import (
    InspectionRun,
    Subject,
    comparable,
    inspect_in_folder,
    subjects_of,
)
from triplepoint.models import SIZES, ViTConfig
from triplepoint.objectives import Batch
from triplepoint.records import Record
from triplepoint.runs import default_folder, read_json
from triplepoint.weights import Checkpoint, load_into

WINDOWS, BATCH = 128, 8
"""Fixed windows of each split, as in training; so many at a time."""
FEWEST = 40
"""Resamples of which one lies beyond each end of a 95 % percentile interval."""
EMBEDDED = "embedded"
"""What ``--data`` calls the corpus that comes with Python."""


def chosen_metrics(
    given: str, *, with_data: bool
) -> tuple[list[str] | None, set[str] | None]:  # fmt: skip
    """Return the metrics of weights and those of activations that ``--metrics`` names; None for all.

    Raises:
        UnknownNameError: If there is no such metric.
        PlanError: If one needs data and there are none, or none is named.
    """
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if given and not names:
        raise PlanError(
            f"--metrics {given!r} names no metric.\nLeave it out for all, or name some: stable_rank,spikes."
        )
    for name in names:
        if name not in DEFINITIONS:
            raise unknown_name("metric", name, DEFINITIONS)
    weights = [name for name in names if name in WEIGHT_METRICS]
    others = set(names) - set(weights)
    if others and not with_data:
        raise PlanError(
            f"{min(others)} is measured on data, and none are given.\nAdd --data PATH, or --data {EMBEDDED}."
        )
    return weights if names else None, others or None


def opened(name: str, other: str | None) -> list[Subject]:
    """Open what is to be inspected: paths, or the newly initialised model of a named size.

    Raises:
        CheckpointError: If one cannot be read, or the two have nothing in common.
        UnknownNameError: If one reads like a size and is none.
        PlanError: If a path is not UTF-8.
    """
    for given in (name, other or name):
        _refuse_unwritable(given)
        if (
            given not in SIZES
            and not os.path.lexists(given)
            and re.fullmatch(r"(gpt2|llama|vit)-[\d.]+\w?", given)
        ):
            raise unknown_name("size, file or folder", given, SIZES)
    if other is None:
        return [_of_size(name)] if _is_size(name) else subjects_of(name)
    if not (_is_size(name) or _is_size(other)):
        return subjects_of(name, other)
    both = (_of_size(n) if _is_size(n) else subjects_of(n)[-1] for n in (name, other))
    return comparable(*both)


def _refuse_unwritable(path: str) -> None:
    """Refuse a path that no manifest, table or page can hold: Linux takes any bytes for a name.

    Raises:
        PlanError: If it is not UTF-8.
    """
    if not path.isascii() and path.encode(errors="replace").decode() != path:
        raise PlanError(
            f"{path!a} is no text in UTF-8, and could not be written into records and report.\n"
            "Rename it, or give a link of another name."
        )


def _is_size(name: str) -> bool:
    return name in SIZES and not os.path.exists(name)


def _of_size(name: str) -> Subject:
    return Subject(given=model_to_check(name, op=None, attention=None, seed=0), name=name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """Fixed windows of a data set, and the model that they run through."""

    model: nn.Module
    subject: Subject
    train: list[Batch]
    validation: list[Batch]
    facts: dict

    @classmethod
    def load(cls, path: str, subject: Subject, tokenizer: str | None) -> Data:
        """Rebuild the model of a checkpoint and read the data.

        Raises:
            PlanError: If the model cannot be rebuilt from the checkpoint, or was trained on other units.
            DataError: If the data are missing, too short or of another kind.
        """
        model, facts = _rebuilt(subject)
        source = None if path == EMBEDDED and not os.path.exists(path) else path
        config = model.config
        if isinstance(config, ViTConfig):
            images = load_images(source)
            splits = [[images.samples(s, count=WINDOWS)] for s in ("train", "validation")]
            return cls(model=model, subject=subject, train=splits[0], validation=splits[1],
                       facts=images.describe())  # fmt: skip
        corpus = load_corpus(source, context=config.context, tokenizer=tokenizer)
        unit = (facts.get("data") or {}).get("unit", corpus.unit)
        if unit != corpus.unit or corpus.vocab > config.vocab:
            raise PlanError(
                f"{subject.name} reads {unit}s of a vocabulary of {config.vocab}; {path} gives {corpus.unit}s of {corpus.vocab}.\n"
                "Give data of the run's own kind, with its --tokenizer where it had one."
            )
        train, validation = (
            list(corpus.windows(s, context=config.context, count=WINDOWS).split(BATCH))
            for s in ("train", "validation")
        )
        return cls(model=model, subject=subject, train=train, validation=validation, facts=corpus.describe())  # fmt: skip

    def records(self, wanted: Collection[str] | None, track: Track) -> Iterator[Record]:
        """Measure, and yield the records of the metrics that are wanted."""
        found = inspect_activations(
            self.model, self.train, validation=self.validation, step=self.subject.step,
            progress=lambda name, done, total: track.at(1, f"data, {name} batch {done} of {total}"),
        )  # fmt: skip
        for record in found:
            if wanted is None or {record.metric, record.metric.partition("@")[0]} & set(wanted):
                yield dataclasses.replace(record, arm=self.subject.arm)


def _rebuilt(subject: Subject) -> tuple[nn.Module, dict]:
    """Return the model of a checkpoint with its weights, and the manifest of its run."""
    if not isinstance(subject.given, Checkpoint):
        return subject.given, {}
    path = subject.given.path.resolve()
    folder = next((p for p in (path, *path.parents) if (p / "manifest.json").is_file()), None)
    if folder is None:
        raise PlanError(
            f"{subject.name} holds weights, and nothing that says of which model.\n"
            "With --data give a run folder of triplepoint train; for a model of your own call "
            "triplepoint.inspection.inspect_activations from Python."
        )
    model = model_to_check(str(folder), op=None, attention=None, seed=0)
    checkpoint = subject.given
    load_into(model, {n: checkpoint.read(n) for n in checkpoint.entries}, source=checkpoint.path)
    return model, read_json(folder / "manifest.json")


def measure(
    subjects: list[Subject],
    *,
    out: Path | None,
    metrics: list[str] | None,
    activations: Collection[str] | None,
    split_qkv: bool,
    bootstrap: int,
    data: Data | None,
) -> InspectionRun:
    """Measure into the run folder, showing progress; a finished one is read.

    Raises:
        PlanError: If ``bootstrap`` is negative, or too few for an interval; or if a path is not UTF-8.
        RunFolderError: If the folder is another run's, or cannot be written.
    """
    if 0 < bootstrap < FEWEST:
        raise PlanError(
            f"--bootstrap {bootstrap} is too few for a 95 % interval: its ends are what 1 resample in 40 exceeds.\n"
            f"Try --bootstrap 200, at least {FEWEST}, or 0 for no interval."
        )
    if bootstrap < 0:
        raise PlanError(f"--bootstrap must not be negative, got {bootstrap}.\nTry --bootstrap 200, or 0 for no interval.")  # fmt: skip
    seen = None
    if data is not None:
        seen = {"sha256": data.facts["sha256"], "windows": WINDOWS, "metrics": sorted(activations or ())}  # fmt: skip
    _refuse_unwritable(str(out or ""))
    asked = {subject.key: subject.identity() for subject in subjects}
    path = out or default_folder("inspect", asked, metrics, split_qkv, bootstrap, seen)
    facts = {"command": shlex.join(["triplepoint", *sys.argv[1:]])}
    with Track("inspect", 1.0) as track:
        return inspect_in_folder(
            path, subjects, metrics=metrics, split_qkv=split_qkv, bootstrap=bootstrap, data=seen,
            facts=facts if data is None else facts | {"data": data.facts},
            activations=tuple if data is None else lambda: data.records(activations, track),
            progress=track.at,
        )  # fmt: skip
