"""Tests of triplepoint.data.nanogpt."""

import math

import numpy as np
import pytest
import torch

from triplepoint.data import load_corpus
from triplepoint.errors import DataError, PlanError


def write(path, ids):
    np.asarray(ids, dtype="<u2").tofile(path)
    return path


def test_file_is_split_in_order(tmp_path):
    corpus = load_corpus(write(tmp_path / "text.bin", range(50000, 50200)), context=4)
    assert corpus.train.tolist() == list(range(50000, 50180))
    assert corpus.validation.tolist() == list(range(50180, 50190))
    assert corpus.report.tolist() == list(range(50190, 50200))
    assert (corpus.unit, corpus.vocab) == ("token", 50304)
    assert corpus.source.startswith("uint16 tokens of text.bin; first 90 % train")


def test_ids_beyond_signed_16_bit_come_out_of_windows_and_batches(tmp_path):
    corpus = load_corpus(write(tmp_path / "text.bin", [65535] * 200), context=4, vocab=65536)
    assert corpus.windows("report", context=4).unique().tolist() == [65535]
    assert next(corpus.batches(0, batch=2, context=4)).unique().tolist() == [65535]
    windows = corpus.windows("report", context=4)
    expected = -math.log((180 + 1) / (180 + 65536))
    assert corpus.unigram_cross_entropy(windows) == pytest.approx(expected)


def test_file_is_mapped_and_stays_as_it_is(tmp_path):
    path = write(tmp_path / "text.bin", range(200))
    corpus = load_corpus(path, context=4)
    assert corpus.train.dtype == torch.uint16
    # the last token of a map changes with the file; that of a copy would not
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\x07\x00")
    assert corpus.report[-1].item() == 7


def test_folder_has_validation_and_report_from_val_bin(tmp_path):
    write(tmp_path / "train.bin", range(100))
    write(tmp_path / "val.bin", range(200, 221))
    corpus = load_corpus(tmp_path, context=4)
    assert corpus.train.tolist() == list(range(100))
    assert corpus.validation.tolist() == list(range(200, 210))
    assert corpus.report.tolist() == list(range(210, 221))
    assert "first half of val.bin validation" in corpus.source


def test_train_prefix_leaves_val_bin_alone(tmp_path):
    write(tmp_path / "train.bin", range(100))
    write(tmp_path / "val.bin", range(200, 220))
    short, long = load_corpus(tmp_path, context=4, train_tokens=5), load_corpus(tmp_path, context=4)
    assert short.train.tolist() == list(range(5))
    assert torch.equal(short.validation, long.validation)


def message_of(path, **options):
    with pytest.raises(DataError) as caught:
        load_corpus(path, context=4, **options)
    return str(caught.value).split("\n")


def test_odd_length(tmp_path):
    (tmp_path / "odd.bin").write_bytes(b"abc")
    problem, remedy = message_of(tmp_path / "odd.bin")
    assert problem.endswith(
        "odd.bin has 3 bytes, an odd number; a file of uint16 token ids has two per token."
    )
    assert remedy.startswith("Write it again")


def test_empty_file(tmp_path):
    (tmp_path / "none.bin").touch()
    problem, remedy = message_of(tmp_path / "none.bin")
    assert problem.endswith("none.bin is empty.")
    assert remedy == "Pass a .bin file of uint16 token ids."


@pytest.mark.parametrize(("given", "vocab"), [(None, 50304), (50305, 50305)], ids=["gpt2", "given"])
def test_ids_above_the_vocabulary_are_named_with_their_place(tmp_path, given, vocab):
    path = write(tmp_path / "text.bin", [*range(190), vocab - 1, vocab, 60000, *range(50)])
    problem, remedy = message_of(path, vocab=given)
    assert problem == (
        f"Token id {vocab} at offset 191 of {path} is outside the vocabulary of {vocab} ids."
    )
    assert remedy.startswith("Pass --vocab")


def test_offset_counts_from_the_file_not_from_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr("triplepoint.data.tokens._CHUNK", 16)
    write(tmp_path / "train.bin", range(100))
    write(tmp_path / "val.bin", [*range(37), 60000, *range(10)])
    assert message_of(tmp_path)[0].startswith(
        f"Token id 60000 at offset 37 of {tmp_path / 'val.bin'} is"
    )


def test_folder_named_as_a_file(tmp_path):
    (tmp_path / "text.bin").mkdir()
    problem, remedy = message_of(tmp_path / "text.bin")
    assert "has no train.bin and no val.bin" in problem
    assert remedy == "Pass a folder with both train.bin and val.bin, or a single .bin file."


def test_file_that_is_a_folder_inside_the_pair(tmp_path):
    write(tmp_path / "train.bin", range(100))
    (tmp_path / "val.bin").mkdir()
    problem, remedy = message_of(tmp_path)
    assert problem.endswith("val.bin is a folder, not a file of token ids.")
    assert remedy.startswith("Pass a .bin file, or a folder that holds train.bin and val.bin")


@pytest.mark.parametrize(("there", "missing"), [("train", "val"), ("val", "train")])
def test_half_of_the_pair(tmp_path, there, missing):
    write(tmp_path / f"{there}.bin", range(100))
    problem, remedy = message_of(tmp_path)
    assert problem == f"The folder {tmp_path} has no {missing}.bin."
    assert remedy.startswith("Pass a folder with both")


def test_val_longer_than_train(tmp_path):
    write(tmp_path / "train.bin", range(100))
    write(tmp_path / "val.bin", range(101))
    problem, remedy = message_of(tmp_path)
    assert problem.endswith("is longer than train.bin: 101 against 100 tokens.")
    assert remedy == "Check whether the two files were swapped."


def test_unreadable_file_says_why(tmp_path, monkeypatch):
    path = write(tmp_path / "text.bin", range(100))

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("numpy.memmap", refuse)
    problem, remedy = message_of(path)
    assert problem == f"Cannot read {path}: Permission denied."
    assert remedy.startswith("Check that it is a file you may read")


def test_tokenizer_has_no_use_for_ids(tmp_path):
    path = write(tmp_path / "text.bin", range(100))
    message = r"holds token ids already, so the tokenizer words has no use\.\nLeave out --tokenizer"
    with pytest.raises(PlanError, match=message):
        load_corpus(path, context=4, tokenizer="words")
