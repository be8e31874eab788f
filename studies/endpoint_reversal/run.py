"""Run the cells that are missing and keep their records; or rebuild the tables from stored ones."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from studies.endpoint_reversal.cells import Setting, cell_of, settings

HERE = Path(__file__).parent
STORED = HERE / "records"


def run_missing(wanted: list[Setting], runs: Path, stored: Path, **how: object) -> None:
    """Train every setting that has no stored records; resumable at any moment."""
    import torch

    from studies.endpoint_reversal.store import store
    from triplepoint.sweeps import run_cell

    torch.set_num_threads(1)
    for number, setting in enumerate(wanted, 1):
        if (stored / f"{setting.name}.parquet").exists():
            continue
        start = time.monotonic()
        run = run_cell(cell_of(setting, runs, **how))
        store(run, setting, stored)
        print(
            f"{number}/{len(wanted)} {setting.name}: {run.outcome}, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m studies.endpoint_reversal")
    parser.add_argument("--from-records", action="store_true", help="rebuild tables only")
    parser.add_argument("--quick", action="store_true", help="a smoke test of under a minute")
    parser.add_argument("--runs", type=Path, default=Path("runs/endpoint_reversal"))
    given = parser.parse_args()
    wanted = settings()
    if given.quick:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            few = [s for s in wanted if s.seed == 0 and s.lr == 1e-3]
            run_missing(few, Path(folder) / "runs", Path(folder), steps=60, size="gpt2-0.1m")
            _answer(Path(folder), few, quick=True)
        return
    if not given.from_records:
        run_missing(wanted, given.runs, STORED)
    _answer(STORED, wanted, quick=False)


def _answer(stored: Path, wanted: list[Setting], *, quick: bool) -> None:
    from studies.endpoint_reversal.answer import answer

    answer(stored, wanted, quick=quick)
