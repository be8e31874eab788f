"""What is kept of a run: its records as Parquet, its validation losses per window as an array."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.endpoint_reversal.cells import Setting
from triplepoint.records import write_parquet
from triplepoint.runs import atomic_path, write_arrays
from triplepoint.sweeps import ArmRun

# by site only what the question needs; the rest stays in the run's own folder
SITE_METRICS = {"saturation@2", "saturation_slope", "alpha"}


def store(run: ArmRun, setting: Setting, folder: Path) -> None:
    """Write a finished run's records and arrays; the records last, so that they stand for both."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"eval_steps": run.arrays["eval_steps"], "plateau": np.array(run.plateau["val"])}
    arrays |= {name: run.arrays[name].astype(np.float32) for name in ("val_loss",)}
    write_arrays(folder / f"{setting.name}.npz", arrays)
    kept = [r for r in run.records if r.site is None or r.metric in SITE_METRICS]
    with atomic_path(folder / f"{setting.name}.parquet") as beside:
        write_parquet(kept, beside)
