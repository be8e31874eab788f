"""A grokking experiment and its run folder."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import triplepoint
from triplepoint.phases import grokking_times
from triplepoint.records import Record
from triplepoint.runs import RunFolder, read_json, read_records, write_arrays
from triplepoint.sweeps import versions

KIND = "grok"
"""What the manifests of these runs say they are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrokRun:
    """A finished experiment, as its folder tells it."""

    path: Path
    facts: dict[str, Any]
    """The manifest."""
    records: list[Record]

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """Return steps and values of a metric of the whole model."""
        rows = [r for r in self.records if r.metric == metric and r.site is None]
        return [r.step for r in rows], [r.value for r in rows]

    def last(self, metric: str) -> float | None:
        """Return the last value of a metric of the whole model, or None."""
        values = self.series(metric)[1]
        return values[-1] if values else None


def load_run(path: Path) -> GrokRun:
    """Read a finished experiment's folder."""
    facts = read_json(path / "manifest.json")
    return GrokRun(path=path, facts=facts, records=read_records(path, facts["records_size"]))


def times_of(records: Iterable[Record]) -> dict[str, dict[str, float | None]]:
    """Return when the run memorised and generalised, for the manifest: steps, slow time and seconds, or censored.

    Args:
        records: With ``train_accuracy``, ``val_accuracy``, and ``slow_time`` and ``seconds`` where there are any.
    """
    by: dict[str, dict[int, float]] = {}
    for r in records:
        if r.site is None:
            by.setdefault(r.metric, {})[r.step] = r.value
    train, val = by["train_accuracy"], by.get("val_accuracy")
    crossings = grokking_times(
        list(train), list(train.values()), None if val is None else [val[s] for s in train]
    )
    return {
        name: {
            "step": at.step,
            "censored_at": at.censored_at,
            **{clock: by.get(clock, {}).get(at.step) for clock in ("slow_time", "seconds")},
        }
        for name, at in crossings.items()
    }


def run_document(run: GrokRun) -> dict[str, object]:
    """Return a run in a few numbers: what the command line prints as JSON."""
    last = {
        name: run.last(metric)
        for name, metric in {
            "test_accuracy": "val_accuracy",
            "train_accuracy": "train_accuracy",
            "refit_test_accuracy": "refit_val_accuracy",
            "complexity": "complexity",
            "norm_sq": "norm_sq",
            "slow_time": "slow_time",
        }.items()
    }
    facts = {k: run.facts[k] for k in ("task", "samples", "times", "scope")}
    steps = [r.step for r in run.records if r.step is not None]
    outcome = run.facts.get("outcome", "finished")
    return {"run": str(run.path), **facts, "outcome": outcome, "steps": max(steps), **last}


@contextlib.contextmanager
def open_run(path: Path, asked: Mapping[str, object]) -> Iterator[OpenRun | None]:
    """Open a run folder to compute in; None where the run is finished already.

    Raises:
        RunFolderError: If the folder holds another run, is in use, or cannot be written.
    """
    with RunFolder(path, asked=asked, kind=KIND) as folder:
        yield None if folder.state == "finished" else OpenRun(folder)


class OpenRun:
    """A run folder that is being computed in."""

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    def finish(self, facts: Mapping[str, object], arrays: Mapping[str, object]) -> None:
        """Write arrays and manifest; of the definitions in ``facts["metrics"]`` those that were recorded."""
        write_arrays(self.folder.path / "arrays.npz", arrays)
        recorded = {r.metric for r in self.folder.read_records(self.folder.append(()))}
        self.folder.finish(
            {
                **facts,
                "metrics": {k: v for k, v in facts["metrics"].items() if k in recorded},
                "started": self._started,
                "version": triplepoint.__version__,
                "versions": versions(),
            }
        )


def run_in_folder(
    path: Path,
    asked: Mapping[str, object],
    records: Callable[[], Iterable[Record]],
    facts: Mapping[str, object],
) -> GrokRun:
    """Write what a computation of seconds gives into a run folder; a finished one is read.

    An interrupted one starts again: it has no checkpoint to go on from.
    """
    with open_run(path, asked) as run:
        if run is not None:
            run.folder.rewind(0)
            run.folder.append(records())
            run.finish(facts, {})
    return load_run(path)
