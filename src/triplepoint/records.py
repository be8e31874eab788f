"""The one row in which every measurement is written, and its two file forms.

A run writes JSON Lines while it goes (a line is never changed once written) and Parquet when it ends.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from triplepoint.errors import RunFolderError

SCHEMA_VERSION = 1
"""Version of the row; written into every manifest and Parquet file."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One measured number, with what is needed to quote it.

    Example:
        >>> Record(metric="val_loss", value=2.5, unit="nats/token", step=100, arm="layernorm").value
        2.5
    """

    metric: str
    """Name, as in the manifest's table of definitions, e.g. ``val_loss`` or ``saturation@2``."""
    value: float
    low: float | None = None
    """Lower end of the 95 % interval, in the unit of ``value``; None where none was computed."""
    high: float | None = None
    n: int | None = None
    """Number of things the value is over: windows, elements, seeds."""
    unit: str = ""
    endpoint: str | None = None
    """``fixed_step``, ``best_checkpoint`` or ``matched_train_loss``; None along a trajectory."""
    step: int | None = None
    """Optimiser steps done when it was measured."""
    site: str | None = None
    """Dotted path of the module it was measured at; None for the whole model."""
    arm: str | None = None
    """Which of the compared trainings, e.g. ``layernorm`` or ``dyt:paper``."""
    seed: int | None = None


FIELDS = tuple(field.name for field in dataclasses.fields(Record))


def to_line(record: Record) -> str:
    """Return the JSON line of ``record``: fields that are None are left out, a non-finite value is a string.

    Example:
        >>> to_line(Record(metric="val_loss", value=float("nan"), step=3))
        '{"metric": "val_loss", "value": "nan", "step": 3}'
    """
    row = {name: getattr(record, name) for name in FIELDS}
    return json.dumps({k: _plain(v) for k, v in row.items() if v is not None and v != ""})


def _plain(value: object) -> object:
    # JSON has no NaN or infinity; their Python spelling reads back through float().
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_line(line: str) -> Record:
    """Return the record of one JSON line, the inverse of :func:`to_line`."""
    row = json.loads(line)
    for name in ("value", "low", "high"):
        if isinstance(row.get(name), str):
            row[name] = float(row[name])
    return Record(**row)


def read_jsonl(path: str | Path) -> list[Record]:
    """Read all whole lines of a JSON Lines file; a last line cut by a crash is dropped."""
    return list(_whole_lines(Path(path)))


def _whole_lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield from_line(line.decode())
            except (ValueError, TypeError, AttributeError) as error:
                raise RunFolderError(
                    f"{path}, line {number}: not a record ({error}).\n"
                    "The file was changed by another program; restore it or start in a new folder."
                ) from error


def write_parquet(records: Iterable[Record], path: str | Path) -> None:
    """Write ``records`` as Parquet, one column a field, the schema version in the metadata.

    The caller makes it atomic (:func:`triplepoint.runs.atomic_path`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(records)
    types = {"value": pa.float64(), "low": pa.float64(), "high": pa.float64(),
             "n": pa.int64(), "step": pa.int64(), "seed": pa.int64()}  # fmt: skip
    schema = pa.schema(
        [(name, types.get(name, pa.string())) for name in FIELDS],
        metadata={"triplepoint_schema": str(SCHEMA_VERSION)},
    )
    columns = {name: [getattr(row, name) for row in rows] for name in FIELDS}
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")


def read_parquet(path: str | Path) -> list[Record]:
    """Read what :func:`write_parquet` wrote."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=list(FIELDS))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{path} is not a Parquet file of records ({error}).\n"
            "Delete it: the command that made it writes it again from records.jsonl."
        ) from error
    return [Record(**row) for row in table.to_pylist()]
