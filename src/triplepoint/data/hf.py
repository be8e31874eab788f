"""Hugging Face on the local disk: a tokenizer folder, and folders written by ``datasets``.

Needs the extra ``hf``. Nothing is downloaded, and no code from a folder is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triplepoint.data.splits import CONTIGUOUS, Splits, split_contiguous
from triplepoint.data.text import BYTES, Encoding
from triplepoint.errors import DataError
from triplepoint.extras import require

_MARKS = ("dataset_dict.json", "dataset_info.json", "state.json")
_HELD_OUT = {"validation": ("validation", "valid", "val", "dev"), "report": ("test",)}
# Rows read at once: enough to make the Arrow overhead small, a few MB of text
_ROWS = 1000


def is_dataset(folder: Path) -> bool:
    """Say whether a folder was written by ``save_to_disk`` of the package ``datasets``."""
    return any((folder / mark).is_file() for mark in _MARKS)


def tokenizer_encoding(folder: str | Path) -> Encoding:
    """Load a tokenizer from a local folder; no special tokens are added around a text.

    Ids are int32, so that any vocabulary fits. The vocabulary is ``len(tokenizer)``, added tokens
    included.

    Raises:
        DataError: If the folder is missing or holds no tokenizer.
        MissingExtraError: If ``transformers`` is not installed.
    """
    tokenizer = _tokenizer(Path(folder))

    def encode(data: bytes) -> Tensor:
        # verbose=False: a whole text is longer than the model's window, and that is meant
        text = data.decode("utf-8", errors="replace")
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return torch.tensor(ids, dtype=torch.int32)

    name = f"tokens of the tokenizer {Path(folder).resolve().name}"
    return Encoding(encode, vocab=len(tokenizer), unit="token", name=name)


def dataset_splits(
    folder: Path, *, tokenizer: str | Path | None = None, vocab: int | None = None
) -> Splits:
    """Read a folder written by ``save_to_disk``, from its column ``input_ids`` or ``text``.

    ``input_ids`` are taken as they are, row after row. Rows of ``text`` become UTF-8 bytes, or
    tokens where a tokenizer is given; a newline, or the tokenizer's end-of-text token if it
    has one, follows each row. The data set's own validation and test splits are used where
    it has them: with one of the two, its halves; with none, train is split 90 / 5 / 5.

    Args:
        folder: Where ``save_to_disk`` wrote.
        tokenizer: Folder of the tokenizer for ``text``, or that made ``input_ids``.
        vocab: Number of ids, needed for ``input_ids`` without a tokenizer.

    Raises:
        DataError: If it cannot be read, has no usable column or no train split.
        MissingExtraError: If ``datasets`` or ``transformers`` is not installed.
    """
    tables = _tables(folder)
    column = _column(tables["train"], folder)
    if column == "input_ids":
        size = _vocab_of_ids(tokenizer, vocab, folder)
        encoding = Encoding(BYTES.encode, vocab=size, unit="token", name="its own token ids")
        read: Callable[[Any], Tensor] = _read_ids
    else:
        encoding = BYTES if tokenizer is None else tokenizer_encoding(tokenizer)
        end = _end_of_row(tokenizer)

        def read(table: Any) -> Tensor:
            return _read_rows(table, encoding, end)

    parts, how = _three_splits({name: read(table) for name, table in tables.items()})
    return Splits(
        train=parts[0],
        validation=parts[1],
        report=parts[2],
        vocab=encoding.vocab,
        unit=encoding.unit,
        source=f"column {column} of the data set {folder.resolve().name}, {encoding.name}; {how}",
        one_in=20 if how == CONTIGUOUS else None,
    )


def _tokenizer(folder: Path) -> Any:
    if not folder.is_dir():
        raise DataError(
            f"There is no tokenizer folder {folder}.\n"
            "Pass a local folder, as `tokenizer.save_pretrained(folder)` writes it; nothing is "
            "downloaded."
        )
    transformers = require("transformers", extra="hf")
    try:
        return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the loaders behind it raise whatever they like
        raise DataError(
            f"The folder {folder} holds no tokenizer that loads: {_first_line(error)}\n"
            "Pass a folder as `tokenizer.save_pretrained(folder)` writes it."
        ) from error


def _tables(folder: Path) -> dict[str, Any]:
    datasets = require("datasets", extra="hf")
    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # as above
        raise DataError(
            f"The data set {folder} cannot be loaded: {_first_line(error)}\n"
            "Write it again with `dataset.save_to_disk(folder)`."
        ) from error
    tables = dict(loaded) if isinstance(loaded, Mapping) else {"train": loaded}
    if "train" not in tables:
        raise DataError(
            f"The data set {folder} has no split 'train', only: {', '.join(tables)}.\n"
            "Save one split by itself, or name the split to learn from 'train'."
        )
    wanted = {
        kind: next((name for name in names if name in tables), None)
        for kind, names in _HELD_OUT.items()
    }
    held = {kind: tables[name] for kind, name in wanted.items() if name is not None}
    return {"train": tables["train"], **held}


def _column(table: Any, folder: Path) -> str:
    for name in ("input_ids", "text"):
        if name in table.column_names:
            return name
    raise DataError(
        f"The data set {folder} has neither a column 'text' nor 'input_ids', only: "
        f"{', '.join(table.column_names)}.\n"
        "Rename its column with `dataset.rename_column(old, 'text')` and save it again."
    )


def _vocab_of_ids(tokenizer: str | Path | None, vocab: int | None, folder: Path) -> int:
    if vocab is not None:
        return vocab
    if tokenizer is not None:
        return len(_tokenizer(Path(tokenizer)))
    raise DataError(
        f"The data set {folder} holds token ids and does not say of how many.\n"
        "Pass --vocab (vocab=...), or --tokenizer with the folder of the tokenizer that made them."
    )


def _end_of_row(tokenizer: str | Path | None) -> Tensor:
    if tokenizer is None:
        return BYTES.encode(b"\n")
    end = _tokenizer(Path(tokenizer)).eos_token_id
    return torch.tensor([] if end is None else [end], dtype=torch.int32)


def _read_rows(table: Any, encoding: Encoding, end: Tensor) -> Tensor:
    rows = [encoding.encode((text or "").encode()) for text in _column_values(table, "text")]
    return torch.cat([part for row in rows for part in (row, end)] or [end[:0]])


def _read_ids(table: Any) -> Tensor:
    rows = [np.asarray(ids, dtype=np.int32) for ids in _column_values(table, "input_ids")]
    return torch.from_numpy(np.concatenate(rows or [np.empty(0, dtype=np.int32)]))


def _column_values(table: Any, column: str) -> Iterator[Any]:
    # with_format drops a torch or other format stored with the data set
    for rows in table.with_format(None).select_columns([column]).iter(batch_size=_ROWS):
        yield from rows[column]


def _three_splits(tokens: Mapping[str, Tensor]) -> tuple[tuple[Tensor, Tensor, Tensor], str]:
    held = [name for name in ("validation", "report") if name in tokens]
    if not held:
        return split_contiguous(tokens["train"]), CONTIGUOUS
    if len(held) == 2:
        parts = tokens["train"], tokens["validation"], tokens["report"]
        return parts, "its own train, validation and test splits"
    only = tokens[held[0]]
    half = only.numel() // 2
    name = "validation" if held == ["validation"] else "test"
    how = f"its own train split, first half of {name} validation, second half report"
    return (tokens["train"], only[:half], only[half:]), how


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
