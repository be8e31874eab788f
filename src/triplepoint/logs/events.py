"""TensorBoard event files -> rows, one a scalar."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from triplepoint.errors import LogError
from triplepoint.extras import require
from triplepoint.logs.records import check_run
from triplepoint.logs.rows import Row

HEADER, FOOTER = struct.Struct("<QI"), 4
"""Of a record: its length and a checksum of that; a checksum of the data."""
PARTS = {"train", "training", "val", "validation", "valid", "eval", "test", "dev"}
"""Names of folders that hold parts of one run, each with its own event files."""


def event_rows(
    paths: Sequence[Path], root: Path, run: str | None, notes: list[str]
) -> Iterator[Row]:
    """Yield ``{"step": ..., tag: value}`` for the scalars of one run, file after file.

    Folders named train, validation or alike are parts of one run, and their names go before the tags. Other folders
    are runs of their own.

    Args:
        paths: Event files, the oldest first.
        root: The folder or file that was given.
        run: Which run, as its folder's path under ``root``; None where there is one.
        notes: Gets what was left out.

    Raises:
        LogError: If a file cannot be read, or there are several runs and none is named.
        MissingExtraError: If the extra ``tensorboard`` is not installed.
    """
    runs: dict[str, None] = {}
    for path in paths:
        own, part = _place_of(path, root)
        for step, tag, value in _scalars(path, notes):
            runs.setdefault(own)
            if run is None or own == run:
                yield {"step": step, f"{part}/{tag}" if part else tag: value}
    check_run(root, list(runs), run)


def _place_of(path: Path, root: Path) -> tuple[str, str]:
    """Return the run a file is of and the part of the data its folder is named after, if any."""
    folders = path.parent.relative_to(root).parts if root.is_dir() else ()
    if folders and folders[-1].lower() in PARTS:
        return "/".join(folders[:-1]), folders[-1]
    return "/".join(folders), ""


def _scalars(path: Path, notes: list[str]) -> Iterator[tuple[int, str, float]]:
    event_pb2 = require("tensorboard.compat.proto.event_pb2", extra="tensorboard")
    message = require("google.protobuf.message", extra="tensorboard")
    try:
        with path.open("rb") as file:
            for record in _records(file, path, notes):
                event = event_pb2.Event.FromString(record)
                for value in event.summary.value:
                    number = _number(value)
                    if number is not None:
                        yield event.step, value.tag, number
    except (OSError, message.DecodeError) as error:
        raise LogError(
            f"{path} cannot be read as TensorBoard events: {error}.\nGive a file that TensorBoard shows."
        ) from error


def _records(file: IO[bytes], path: Path, notes: list[str]) -> Iterator[bytes]:
    """Yield the records of a file; one that is cut is left out, as a run that is going on has it."""
    while header := file.read(HEADER.size):
        # the length of a damaged file may be anything: ask the file, not for so much memory
        length = HEADER.unpack(header)[0] if len(header) == HEADER.size else 0
        left = _left(file)
        if len(header) < HEADER.size or length + FOOTER > left:
            notes.append(f"{path.name} ends in the middle of a record, which was left out")
            return
        yield file.read(length)
        file.seek(FOOTER, 1)


def _left(file: IO[bytes]) -> int:
    here = file.tell()
    end = file.seek(0, 2)
    file.seek(here)
    return end - here


def _number(value: object) -> float | None:
    """Return the number of a summary's value; None where it is an image, a histogram or a text."""
    if value.HasField("simple_value"):
        return value.simple_value
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim:
        return None
    tensor_util = require("tensorboard.util.tensor_util", extra="tensorboard")
    array = tensor_util.make_ndarray(value.tensor)
    return float(array) if array.dtype.kind == "f" else None
