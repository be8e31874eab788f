"""One door to every source of tokens: says what a path holds, reads it, and checks it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from triplepoint.data.corpus import SPLITS, Corpus
from triplepoint.data.hf import dataset_splits, is_dataset, tokenizer_encoding
from triplepoint.data.nanogpt import GPT2_VOCAB, bin_splits
from triplepoint.data.splits import Splits
from triplepoint.data.text import BYTES, library_splits, text_splits, unreadable
from triplepoint.data.tokens import at_least
from triplepoint.errors import DataError, PlanError


def load_corpus(
    path: str | Path | None = None,
    *,
    context: int,
    train_tokens: int | None = None,
    tokenizer: str | Path | None = None,
    vocab: int | None = None,
) -> Corpus:
    """Load the tokens that a run learns from and is judged by.

    =============================  ==========================================================
    ``path``                       tokens
    =============================  ==========================================================
    None                           the running Python's standard library, by file
    a file ``*.bin``               uint16 ids as nanoGPT writes them, 90 / 5 / 5 in order
    a folder with ``train.bin``    the same; ``val.bin`` in halves
    a folder of ``datasets``       its column ``input_ids`` or ``text``, its own splits (``hf``)
    any other file                 UTF-8 text, 90 / 5 / 5 in order
    any other folder               all its text files; by file from 20 files on
    =============================  ==========================================================

    Text is read as bytes, or through ``tokenizer``. Nothing is downloaded.

    Args:
        path: Where to read; None for the text that every machine has.
        context: Tokens a model sees; each split must hold one window of ``context + 1``.
        train_tokens: Keep only so many tokens from the beginning of train, to reach a chosen
            ratio of tokens to parameters. Validation and report stay as they are.
        tokenizer: Local folder of a Hugging Face tokenizer (extra ``hf``).
        vocab: Number of ids. Default: 256 for bytes, 50304 for ``.bin`` (the GPT-2 BPE, padded),
            ``len(tokenizer)`` with a tokenizer.

    Raises:
        DataError: If the data are missing, unreadable, too short or of another kind.
        PlanError: If a number is out of range, or ids are to be tokenised.
        MissingExtraError: If the extra ``hf`` is needed and not installed.
    """
    at_least(context=(context, 1))
    for name, number in (("train_tokens", train_tokens), ("vocab", vocab)):
        if number is not None:
            at_least(**{name: (number, 1)})
    if path is not None and not str(path):
        raise DataError(
            "The path of the data is empty.\nName a file or folder, or leave it out for the embedded corpus."
        )
    splits = _read(None if path is None else Path(path), tokenizer, vocab)
    if vocab is not None:
        splits = dataclasses.replace(splits, vocab=vocab)
    _check_lengths(splits, context)
    splits = _shorten(splits, train_tokens, context)
    return Corpus.from_tokens(
        splits.train,
        splits.validation,
        splits.report,
        vocab=splits.vocab,
        source=splits.source,
        unit=splits.unit,
        python=splits.python,
    )


def _read(path: Path | None, tokenizer: str | Path | None, vocab: int | None) -> Splits:
    if path is not None and _exists(path) and not (path.is_file() or path.is_dir()):
        raise DataError(
            f"{path} is neither a file nor a folder, and cannot be read twice.\nWrite the text to a file first."
        )
    if path is not None and not _exists(path):
        raise DataError(
            f"There is no file or folder {path}.\n"
            "Check the path (nothing is downloaded), or leave it out for the text of Python's "
            "standard library."
        )
    if path is not None and _holds_bin(path):
        if tokenizer is not None:
            raise PlanError(
                f"{path} holds token ids already, so the tokenizer {tokenizer} has no use.\n"
                "Leave out --tokenizer, and pass --vocab if the ids are not GPT-2's."
            )
        return bin_splits(path, vocab=vocab or GPT2_VOCAB)
    if path is not None and is_dataset(path):
        return dataset_splits(path, tokenizer=tokenizer, vocab=vocab)
    encoding = BYTES if tokenizer is None else tokenizer_encoding(tokenizer)
    return library_splits(encoding) if path is None else text_splits(path, encoding)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder above it may not be entered, or the name is too long
        raise unreadable(path, error) from error


def _holds_bin(path: Path) -> bool:
    if path.is_dir() and path.suffix != ".bin":
        return any((path / name).exists() for name in ("train.bin", "val.bin"))
    return path.suffix == ".bin"


def _check_lengths(splits: Splits, context: int) -> None:
    held = {name: getattr(splits, name).numel() for name in SPLITS}
    window = context + 1
    for name, tokens in held.items():
        if tokens < window:
            raise DataError(
                f"The {name} split has {tokens} {splits.unit}s, fewer than one window: context "
                f"{context} needs {window} per split. Data: {splits.source}.\n"
                f"{_remedy(splits.one_in, window, sum(held.values()), splits.unit)}"
            )
    for name in ("validation", "report"):
        if held[name] > held["train"]:
            raise DataError(
                f"The {name} split is longer than the train split: {held[name]} against "
                f"{held['train']} {splits.unit}s. Data: {splits.source}.\n"
                "Check whether the splits were swapped, or give one text to split 90 / 5 / 5."
            )


def _remedy(one_in: int | None, window: int, given: int, unit: str) -> str:
    if one_in is None:
        return "Give longer texts, or a smaller context."
    needed = one_in * window
    return f"Give at least {needed} {unit}s in all (this has {given}), or a smaller context."


def _shorten(splits: Splits, train_tokens: int | None, context: int) -> Splits:
    if train_tokens is None:
        return splits
    available = splits.train.numel()
    if train_tokens > available:
        raise DataError(
            f"{train_tokens} train tokens were asked for, but the train split has {available}. "
            f"Data: {splits.source}.\n"
            f"Ask for at most {available} with --train-tokens, or give a longer text."
        )
    if train_tokens < context + 1:
        raise DataError(
            f"{train_tokens} train tokens are fewer than one window: context {context} needs "
            f"{context + 1}.\n"
            "Raise --train-tokens or lower the context."
        )
    source = f"{splits.source}; first {train_tokens} train tokens"
    return dataclasses.replace(splits, train=splits.train[:train_tokens], source=source)
