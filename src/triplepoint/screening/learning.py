"""Finished runs as cells of the benchmark: which runs are two arms of one comparison, and how it ended.

The library's benchmark is built so from the stored runs of its studies, and a user's own runs join it so.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triplepoint.errors import DataError, RunFolderError
from triplepoint.evidence import BenchmarkCell, Setting, benchmark, benchmark_from, truth_of
from triplepoint.evidence.loading import CELLS, RUNS
from triplepoint.records import Record
from triplepoint.runs import identity_of, write_rows
from triplepoint.screening.rulebook import RuleBook, shipped
from triplepoint.sweeps import ArmRun, load_arm
from triplepoint.sweeps.grid import OWN_NORM

REGULARISED = {"dropout": 0.0, "weight_decay": 0.1}
"""What a baseline has; a baseline's op with more of one of them is a candidate as well."""
EVERY = ("s1", "train_loss", "val_loss")
"""Metrics that are kept at every evaluation, not at looks alone."""
ARCHITECTURE = (
    "attention",
    "ffn",
    "gate_scale",
    "positions",
    "layers",
    "heads",
    "width",
    "kv_heads",
)


@dataclasses.dataclass(frozen=True, eq=False)
class StoredRun:
    """One cell of a map study, as it is kept."""

    name: str
    facts: Mapping[str, Any]
    records: Sequence[Record]
    arrays: Mapping[str, np.ndarray]

    @property
    def asked(self) -> Mapping[str, Any]:
        """What identifies it."""
        return self.facts["asked"]

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Its hyperparameters."""
        return self.asked["recipe"]

    @property
    def lr(self) -> float:
        """Peak rate."""
        return self.recipe["lr"]

    @property
    def seed(self) -> int:
        """Of weights and batches."""
        return self.facts["seed"]

    @property
    def op(self) -> str:
        """What stands at the norm sites."""
        return self.asked["op"] or OWN_NORM[self.asked["size"].partition("-")[0]]

    @property
    def arm(self) -> str:
        """The op, its alpha, and what regularises it."""
        alpha = self.asked.get("alpha")
        parts = [self.op] + ([f"alpha={alpha:g}"] if alpha is not None else [])
        own = {"dropout": self.asked["dropout"], "weight_decay": self.recipe["weight_decay"]}
        return " ".join(parts + [f"{k}={v:g}" for k, v in own.items() if v != REGULARISED[k]])

    @property
    def is_baseline(self) -> bool:
        """Whether it is the family's own model, regularised as usual."""
        return self.arm == OWN_NORM[self.asked["size"].partition("-")[0]]

    @property
    def usable(self) -> bool:
        """Whether it is a run of a named size on bytes, whose plateau is known and whose losses were measured."""
        known = self.facts.get("plateau") and {"size", "recipe"} <= self.asked.keys()
        return (
            bool(known)
            and self.asked["size"].partition("-")[0] in OWN_NORM
            and self.facts["data"].get("unit") == "byte"
            and set(EVERY) <= {r.metric for r in self.records}
        )

    @property
    def place(self) -> tuple:
        """Everything that a cell's two arms have in common, but the rate and the seed."""
        changes = self.asked.get("changes", {})
        return (
            self.asked["size"], self.facts["data"]["sha256"], self.recipe["steps"], self.recipe["batch"],
            self.recipe["schedule"], self.recipe["warmup"], json.dumps(changes, sort_keys=True),
        )  # fmt: skip


def finished_cells(folder: Path) -> list[BenchmarkCell]:
    """Return the cells that the finished runs in a folder make.

    Args:
        folder: Of run folders, at any depth: a map's, or several. A run that is there twice counts once.

    Raises:
        DataError: If there is no such folder, or there are no two arms of one comparison.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} {'is a file' if folder.exists() else 'does not exist'}.\n"
            "Give the folder of finished runs of your own, as a map's."
        )
    # by where they are, since all runs of seed 0 of a screen are in folders of one name
    runs = [
        StoredRun(name=run.path.relative_to(folder).as_posix(), facts=run.facts, records=run.records, arrays=run.arrays)
        for run in {identity_of(run.facts["asked"]): run for run in _finished(folder)}.values()
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as tables:
        if not build([run for run in runs if run.usable], Path(tables)):
            raise DataError(
                f"{folder} has {len(runs)} finished runs, and no baseline with a candidate beside it.\n"
                "Give the folder of a finished map whose grid has the op 'norm' and another."
            )
        return benchmark_from(tables)


def learned_book(folder: Path | None) -> RuleBook:
    """Return the rule as it ships, or fitted on a user's finished runs as well.

    Args:
        folder: As :func:`finished_cells` takes it; None for the shipped one.
    """
    if folder is None:
        return shipped()
    return RuleBook.fit([*benchmark(), *finished_cells(folder)], miniature=shipped().miniature)


def _finished(folder: Path) -> Iterator[ArmRun]:
    for manifest in sorted(folder.rglob("manifest.json")):
        try:
            run = load_arm(manifest.parent)
        except RunFolderError:  # a screen's or a map's own folder, or a run that has not finished
            continue
        if run.until == run.facts["asked"]["recipe"]["steps"]:  # a calibration stops before its end
            yield run


def build(runs: Sequence[StoredRun], out: Path) -> int:
    """Write both tables; returns how many cells there are."""
    cells = list(cells_of(runs))
    used = {name for cell in cells for arm in ("baseline_runs", "candidate_runs") for name in json.loads(cell[arm])}  # fmt: skip
    rows = [row for run in runs if run.name in used for row in _rows(run)]
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / RUNS, rows, {"run": str, "seed": int, "diverged_at": int, "metric": str, "step": int, "value": float})  # fmt: skip
    write_rows(out / CELLS, cells, dict.fromkeys(("name", "candidate", "op", "setting", "baseline_runs", "candidate_runs", "truth"), str))  # fmt: skip
    return len(cells)


def _rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    head = {"run": run.name, "seed": run.seed, "diverged_at": run.facts.get("diverged_at")}
    looks = set(run.recipe["average_steps"])
    values: dict[tuple[str, int], list[float]] = {}
    for r in run.records:
        if r.endpoint is None and r.step is not None and (r.metric in EVERY or r.step in looks):
            values.setdefault((r.metric, r.step), []).append(r.value)
    for (metric, step), found in values.items():
        yield {**head, "metric": metric, "step": step, "value": statistics.fmean(found)}


def cells_of(runs: Sequence[StoredRun]) -> Iterator[dict[str, Any]]:
    """Yield the cells: at equal rates, and at each arm's own best of several."""
    by_place: dict[tuple, list[StoredRun]] = {}
    for run in runs:
        by_place.setdefault(run.place, []).append(run)
    for members in by_place.values():
        arms: dict[str, dict[float, list[StoredRun]]] = {}
        for run in members:
            arms.setdefault(run.arm, {}).setdefault(run.lr, []).append(run)
        baselines = next(
            (rates for rates in arms.values() if next(iter(rates.values()))[0].is_baseline), None
        )
        if baselines is None:
            continue
        for arm, rates in arms.items():
            if rates is not baselines:
                yield from _against(arm, rates, baselines)


def _against(
    arm: str, rates: Mapping[float, list[StoredRun]], baselines: Mapping[float, list[StoredRun]]
) -> Iterator[dict[str, Any]]:
    for lr in sorted(rates.keys() & baselines.keys()):
        yield _cell(arm, rates[lr], baselines[lr], "plan")
    if len(rates) > 1 and len(baselines) > 1:
        ours, theirs = (min(of.values(), key=_best_loss) for of in (rates, baselines))
        if ours[0].lr != theirs[0].lr:  # else it is a cell already
            yield _cell(arm, ours, theirs, "own best")


def _best_loss(runs: Sequence[StoredRun]) -> float:
    """Return the lowest validation loss of the smallest seed: the one that has all rates."""
    first = min(runs, key=lambda run: run.seed)
    return (
        float(first.arrays["val_loss"].mean(axis=1).min())
        if first.facts.get("diverged_at") is None
        else np.inf
    )


def _cell(
    arm: str, candidate: Sequence[StoredRun], baseline: Sequence[StoredRun], rate: str
) -> dict[str, Any]:
    seeds = sorted({r.seed for r in candidate} & {r.seed for r in baseline})
    ours, theirs = (
        [next(r for r in of if r.seed == s) for s in seeds] for of in (candidate, baseline)
    )
    finished = all(r.facts.get("diverged_at") is None for r in itertools.chain(ours, theirs))
    truth = truth_of(*([r.arrays["val_loss"].astype(float) for r in of] for of in (ours, theirs))) if finished else None  # fmt: skip
    first = theirs[0]
    setting = _setting(first, candidate_lr=ours[0].lr, rate=rate)
    return {
        "name": f"{setting.group} {setting.steps} steps {arm} lr {setting.lr:g}/{setting.candidate_lr:g}",
        "candidate": arm, "op": ours[0].op, "setting": json.dumps(dataclasses.asdict(setting)),
        "baseline_runs": json.dumps([r.name for r in theirs]), "candidate_runs": json.dumps([r.name for r in ours]),
        "truth": truth and json.dumps({k: dataclasses.asdict(v) for k, v in truth.items()}),
    }  # fmt: skip


def _setting(run: StoredRun, *, candidate_lr: float, rate: str) -> Setting:
    size, data, model = run.asked["size"], run.facts["data"], run.facts["model"]
    changes = run.asked.get("changes", {})
    told = [f"{k}={v}" for k, v in changes.items() if k in ARCHITECTURE]
    return Setting(
        architecture=" ".join([size.partition("-")[0], *told]), size=size, corpus=_corpus(data["source"]),
        unique_tokens=data["train_tokens"], params={k: v for k, v in model.items() if k.startswith("params_")},
        steps=run.recipe["steps"], tokens_per_step=run.recipe["batch"] * run.asked.get("context", 128), lr=run.lr, candidate_lr=candidate_lr,
        rate=rate, warmup=run.recipe["warmup"], schedule=run.recipe["schedule"], plateau=run.facts["plateau"]["val"],
    )  # fmt: skip


def _corpus(source: str) -> str:
    return (
        "stdlib"
        if "standard library" in source
        else Path(source.split(",")[0].removeprefix("text of ")).stem
    )
