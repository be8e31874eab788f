"""Training runs of a study: trained once, kept as Parquet and arrays, resumable at any moment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from triplepoint.records import write_parquet
from triplepoint.runs import atomic_path, write_arrays
from triplepoint.sweeps import ArmRun, Cell, run_cell

# by site only what the questions need; the rest stays in the run's own folder
SITE_METRICS = {"saturation@2", "saturation_slope", "alpha", "alpha_drift"}


def store(run: ArmRun, name: str, folder: Path) -> None:
    """Write a finished run's records and losses per window; the records last: they stand for both."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"eval_steps": run.arrays["eval_steps"], "plateau": np.array(run.plateau["val"])}
    arrays["val_loss"] = run.arrays["val_loss"].astype(np.float32)
    write_arrays(folder / f"{name}.npz", arrays)
    kept = [r for r in run.records if r.site is None or r.metric in SITE_METRICS]
    with atomic_path(folder / f"{name}.parquet") as beside:
        write_parquet(kept, beside)


def run_missing(cells: Mapping[str, Cell], stored: Path) -> None:
    """Train every cell that has no stored records."""
    import torch

    torch.set_num_threads(1)
    for number, (name, cell) in enumerate(cells.items(), 1):
        if (stored / f"{name}.parquet").exists():
            continue
        start = time.process_time()
        run = run_cell(cell)
        store(run, name, stored)
        print(
            f"{number}/{len(cells)} {name}: {run.outcome}, {time.process_time() - start:.0f} CPU s",
            flush=True,
        )
