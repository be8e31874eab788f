"""Text as tokens: the standard library of the running Python, a file, or a folder."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from triplepoint.data.splits import BY_FILE, CONTIGUOUS, Splits, split_by_file, split_documents
from triplepoint.errors import DataError

# Installed packages are not the library; its tests hold deliberately broken files; the folder
# `config-...` and the files `_sysconfigdata...` record how one machine built its interpreter.
_NOT_LIBRARY = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
_BUILD_RECORDS = ("_sysconfigdata", "config-", "sitecustomize", "usercustomize")


class Encoding(NamedTuple):
    """How text becomes ids: a function on UTF-8 bytes, and what it yields."""

    encode: Callable[[bytes], Tensor]
    vocab: int
    unit: str
    name: str
    """As in "text of notes.txt, bytes"."""


def encode_bytes(data: bytes) -> Tensor:
    """Return the bytes as ids in [0, 256), shape ``[len(data)]``, uint8.

    Example:
        >>> encode_bytes(b"ab").tolist()
        [97, 98]
    """
    # a bytearray because torch warns about memory that it may not write
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8))


BYTES = Encoding(encode_bytes, vocab=256, unit="byte", name="bytes")
"""UTF-8 bytes as they are: no tokenizer, no unknown token, 256 ids."""


def library_splits(encoding: Encoding = BYTES) -> Splits:
    """Read the source text of the running Python's own standard library, split by file.

    About 10 MB of English and code that every machine with Python has, so nothing is downloaded.
    It is the same for one version of Python, up to a distributor's patches: compare checksums.

    Raises:
        DataError: If this Python came without its sources.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in sorted_files(root, _is_library) if path.suffix == ".py"]
    files = [encoding.encode(read_bytes(path)) for path in paths]
    if sum(map(len, files)) < 1 << 20:
        raise DataError(
            f"The default text is the Python standard library, but {root} holds only "
            f"{len(files)} source files of it.\n"
            "Pass a text file or folder instead."
        )
    train, validation, report = split_by_file(files)
    version = platform.python_version()
    return Splits(
        train=train,
        validation=validation,
        report=report,
        vocab=encoding.vocab,
        unit=encoding.unit,
        source=f"source text of the Python {version} standard library, {encoding.name}; {BY_FILE}",
        python=version,
    )


def text_splits(path: Path, encoding: Encoding = BYTES) -> Splits:
    """Read a UTF-8 text file, or all files of a folder in the order of their paths.

    A folder of 20 files or more is split by file, anything else as one text: 90 / 5 / 5 in
    order. Files and folders whose names begin with a dot are skipped, empty files too.

    Raises:
        DataError: If there is nothing to read, or it is not UTF-8 text.
    """
    paths = sorted_files(path, _is_visible) if path.is_dir() else [path]
    documents = [data for data in (_read_text(file) for file in paths) if data]
    if not documents:
        what = f"The folder {path} holds no text" if path.is_dir() else f"The file {path} is empty"
        raise DataError(f"{what}.\nPass a UTF-8 text file, or a folder with some.")
    parts, how = split_documents([encoding.encode(data) for data in documents])
    many = f"{len(documents)} files of the folder {path.resolve().name}"
    what = many if path.is_dir() else path.name
    return Splits(
        train=parts[0],
        validation=parts[1],
        report=parts[2],
        vocab=encoding.vocab,
        unit=encoding.unit,
        source=f"text of {what}, {encoding.name}; {how}",
        one_in=20 if how == CONTIGUOUS else None,
    )


def sorted_files(root: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Return the regular files under ``root`` in the order of their relative posix paths.

    Args:
        root: Folder to walk; links to folders are not followed.
        wanted: Says of a file's or folder's name whether to look at it.
    """
    return sorted(_walk(root, wanted), key=lambda path: path.relative_to(root).as_posix())


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        DataError: If the operating system refuses.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a path that exists but cannot be read."""
    return DataError(
        f"Cannot read {path}: {error.strerror or error}.\n"
        "Check that it is a file you may read, or pass another path."
    )


def _walk(root: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise unreadable(Path(error.filename), error) from error

    for folder, below, names in os.walk(root, onerror=refuse):
        # pruned in place, so that site-packages is not walked at all
        below[:] = [name for name in below if wanted(name)]
        paths = (Path(folder, name) for name in names if wanted(name))
        yield from (path for path in paths if path.is_file())


def _is_visible(name: str) -> bool:
    return not name.startswith(".")


def _is_library(name: str) -> bool:
    return name not in _NOT_LIBRARY and not name.startswith((".", *_BUILD_RECORDS))


def _read_text(path: Path) -> bytes:
    data = read_bytes(path)
    place, what = data.find(b"\0"), "a NUL byte"
    if place < 0:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            place, what = error.start, f"the byte 0x{data[error.start]:02x}, which is not UTF-8"
    if place < 0:
        return data
    raise DataError(
        f"{path} is not text: {what} at offset {place}.\n"
        "Convert it to UTF-8, or leave it out of the folder; token ids are read from a file "
        "named *.bin (uint16) or from a folder written by `datasets`."
    )
