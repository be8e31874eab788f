"""Studies that are phase maps: cells trained once, kept in little room, the table rebuilt from what is kept.

A cell that two studies have is trained and kept once. Of a cell its manifest is kept, its records (by site all at the
looks, between them only what the questions need), and its losses on the validation windows, in 16 bits, which move a mean by
less than 1e-4 nats; the train losses as means.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from studies._cells import finish
from triplepoint.errors import FolderInUseError
from triplepoint.maps import MapPlan
from triplepoint.maps.folders import MapFolder, MapResult
from triplepoint.maps.planning import PlannedCell, plan_cells
from triplepoint.records import read_parquet, to_line, write_parquet
from triplepoint.runs import atomic_path, read_json, write_arrays, write_json
from triplepoint.sweeps import load_arm, run_cell

SITE_METRICS = {"saturation@2", "saturation_slope", "alpha", "alpha_drift"}
HERE = Path(__file__).parent


def run_map_study(name: str, more: Callable[[], Mapping[str, object]] = lambda: {}) -> None:
    """Serve the command line of a study whose plan is ``studies/NAME/map.toml``.

    Args:
        name: Of the study.
        more: Prints what it has beside the map's table, from what is kept, and returns it as figures.
    """
    parser = argparse.ArgumentParser(prog=f"python -m studies.{name}")
    parser.add_argument("--from-records", action="store_true", help="rebuild table and report only")
    parser.add_argument("--quick", action="store_true", help="a smoke test of under a minute")
    parser.add_argument("--runs", type=Path, default=Path("runs") / f"map-{name}")
    parser.add_argument("--report", type=Path, help="write the map's folder with its report here")
    given = parser.parse_args()
    plan = MapPlan.from_toml((HERE / name / "map.toml").read_text())
    stored = HERE / name / "records"
    with tempfile.TemporaryDirectory() as folder:
        if given.quick:
            plan = shortened(plan)
            stored, given.runs = Path(folder) / "stored", Path(folder) / "runs"
        if not given.from_records:
            run_missing(plan_cells(plan, given.runs), stored)
        result = rebuilt(plan, stored, given.report or Path(folder) / "map")
        if given.report:
            from triplepoint.report import write_report

            print(f"Report: {write_report(given.report)}")
        finish(name, {**answer(result), **({} if given.quick else more())})


def shortened(plan: MapPlan) -> MapPlan:
    """Return the plan's first cell with its baseline at 20 steps: a smoke test."""
    first = next(cell for cell in plan.cells() if plan.baseline_of(cell) != cell)
    few = {"size": first.size.split("-")[0] + "-0.1m", "steps": 20, "context": 16}
    ops = [plan.baseline_of(first).op, first.op]
    return MapPlan(name=plan.name, defaults=few, grid=[{"op": ops}], eval_every=10)


def run_missing(planned: list[PlannedCell], stored: Path) -> None:
    """Train every cell that is not kept yet, one after the other; several processes may share the work."""
    import torch

    torch.set_num_threads(1)
    # twice, for what another process was at in the first round, and left
    for number, cell in [*enumerate(planned, 1)] * 2:
        if kept_as(cell, stored).exists():
            continue
        start = time.process_time()
        try:
            run = run_cell(cell.cell)
        except FolderInUseError:  # another process is at it
            continue
        keep(cell, stored)
        spent = time.process_time() - start
        print(
            f"{number}/{len(planned)} {cell.cell.path.name}: {run.outcome}, {spent:.0f} CPU s",
            flush=True,
        )


def kept_as(cell: PlannedCell, stored: Path) -> Path:
    """Return the manifest that is kept of a cell: another study's where that has the same cell, or where it will be."""
    name = f"{cell.cell.path.name}.json"  # holds the content hash of what was asked
    own = stored / name
    others = sorted(HERE.glob(f"*/records/{name}")) if stored.is_relative_to(HERE) else []
    return own if own.exists() or not others else others[0]


def keep(cell: PlannedCell, stored: Path) -> None:
    """Keep a finished cell; its manifest last, so that it stands for all three files."""
    stored.mkdir(parents=True, exist_ok=True)
    run, name = load_arm(cell.cell.path), cell.cell.path.name
    looks = set(cell.cell.recipe.average_steps)
    rows = [r for r in run.records if r.site is None or r.metric in SITE_METRICS or r.step in looks]
    with atomic_path(stored / f"{name}.parquet") as beside:
        write_parquet(rows, beside)
    arrays = {"eval_steps": run.arrays["eval_steps"], "val_loss": run.arrays["val_loss"].astype(np.float16)}  # fmt: skip
    arrays["train_loss"] = run.arrays["train_loss"].mean(axis=1, keepdims=True)
    write_arrays(stored / f"{name}.npz", arrays)
    facts = {
        k: v for k, v in run.facts.items() if k != "metrics"
    }  # the library has the definitions
    write_json(stored / f"{name}.json", facts)


def rebuilt(plan: MapPlan, stored: Path, out: Path) -> MapResult:
    """Write the map's folder from what is kept; cells that are not are missing in it."""
    planned = plan_cells(plan, out)
    for cell in planned:
        manifest, target = kept_as(cell, stored), cell.cell.path
        if not manifest.exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{to_line(r)}\n" for r in read_parquet(manifest.with_suffix(".parquet")))
        (target / "records.jsonl").write_text(text)
        shutil.copy(manifest.with_suffix(".npz"), target / "arrays.npz")
        write_json(
            target / "manifest.json", {**read_json(manifest), "records_size": len(text.encode())}
        )
    folder = MapFolder(out, plan, planned, "")
    folder.begin()
    results = folder.read_finished()
    return folder.finish([results[p.identity] for p in planned if p.identity in results], {})


def answer(result: MapResult) -> dict[str, object]:
    """Print every effect at both endpoints, and the collapse rates; return them as figures."""
    print(f"{result.finished} of {result.cells} cells\n")
    print(
        "| candidate | size | bytes | lr | other | seeds | fixed step | best checkpoint | saturation, end | phase |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    effects = [row for row in result.rows if row["row"] == "effect"]
    for row in effects:
        other = ", ".join(f"{k} {row[k]}" for k in ("ffn", "positions", "attention", "alpha", "gate_scale", "dropout", "weight_decay", "layers") if row.get(k) is not None)  # fmt: skip
        print(
            f"| {row['arm']} | {row['size']} | {row['unique_tokens'] or 'all'} | {row['lr']:g} | {other} | {row['seeds']} "
            f"| {_told(row, 'fixed_step')} | {_told(row, 'best_checkpoint')} | {_share(row['saturation_end'])} | {row['phase']} |"
        )
    slopes = result.summary["size_slopes"]
    if slopes:
        print(
            "\n| candidate | bytes | endpoint | slope per tenfold parameters | pairs |\n|---|---|---|---|---|"
        )
    for one in slopes:
        ends = f"[{one['t_low']:+.1%}, {one['t_high']:+.1%}]"
        print(
            f"| {one['arm']} | {one['settings']['unique_tokens'] or 'all'} | {one['endpoint']} | {one['slope']:+.1%} {ends} | {one['n']} |"
        )
    rates = [r for r in result.summary["collapse_rates"] if r["level"] == "arm" and r["outcome"] == "collapsed"]  # fmt: skip
    print("\nCollapsed: " + ", ".join(f"{r['arm']} {r['count']} of {r['n']}" for r in rates))
    return {
        "finished": result.finished,
        "cells": result.cells,
        "effects": [
            {k: row.get(k) for k in ("arm", "size", "unique_tokens", "lr", "seeds", "fixed_step", "best_checkpoint")}
            for row in effects
        ],
        "size_slopes": [
            {**{k: one[k] for k in ("arm", "endpoint", "slope", "t_low", "t_high", "n")}, "unique_tokens": one["settings"]["unique_tokens"]}
            for one in slopes
        ],
        "collapsed": {r["arm"]: [r["count"], r["n"]] for r in rates},
    }  # fmt: skip


def _told(row: dict, endpoint: str) -> str:
    value = row.get(endpoint)
    if value is None:
        return "-"
    low, high = (row.get(f"{endpoint}_bootstrap_{end}") for end in ("low", "high"))
    ends = "" if low is None else f" [{low:+.1%}, {high:+.1%}]"
    return f"{value:+.1%}{ends}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
