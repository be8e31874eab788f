"""The runs that the studies keep, from which the benchmark is built."""

from __future__ import annotations

from pathlib import Path

from triplepoint.records import read_parquet
from triplepoint.runs import read_arrays, read_json
from triplepoint.screening.learning import StoredRun

STUDIES = Path(__file__).parents[1]


def stored_runs(studies: Path = STUDIES) -> list[StoredRun]:
    """Return every cell of text that a map study keeps, each once."""
    files = {
        path.name: path
        for path in sorted(studies.glob("*/records/*.json"))
        if path.with_suffix(".npz").exists()
    }
    runs = [
        StoredRun(
            name=path.stem, facts=read_json(path), records=read_parquet(path.with_suffix(".parquet")),
            arrays=read_arrays(path.with_suffix(".npz")),
        )
        for path in files.values()
    ]  # fmt: skip
    return [run for run in runs if run.usable]
