"""Tests of triplepoint.data.sources: lengths, prefixes and missing paths."""

import pytest
import torch

from triplepoint.data import load_corpus
from triplepoint.errors import DataError, PlanError


@pytest.fixture
def notes(tmp_path):
    """A file of 400 bytes: 360 to learn from, twice 20 held out."""
    path = tmp_path / "notes.txt"
    path.write_text("".join(f"{number:03d} " for number in range(100)))
    return path


def message_of(path, error=DataError, **options):
    with pytest.raises(error) as caught:
        load_corpus(path, **options)
    return str(caught.value).split("\n")


def test_splits_are_disjoint_and_leave_nothing_out(notes):
    corpus = load_corpus(notes, context=4)
    parts = torch.cat([corpus.train, corpus.validation, corpus.report])
    assert bytes(parts.tolist()) == notes.read_bytes()


def test_train_prefix_leaves_the_evaluation_alone(notes):
    short, long = load_corpus(notes, context=4, train_tokens=40), load_corpus(notes, context=4)
    assert torch.equal(short.train, long.train[:40])
    for split in ("validation", "report"):
        assert torch.equal(short.windows(split, context=4), long.windows(split, context=4))
    assert short.sha256 != long.sha256
    assert short.source == f"{long.source}; first 40 train tokens"


def test_train_prefix_may_be_shorter_than_validation(notes):
    assert load_corpus(notes, context=4, train_tokens=5).train.numel() == 5


def test_whole_train_split_may_be_asked_for(notes):
    corpus = load_corpus(notes, context=4, train_tokens=360)
    assert corpus.sha256 == load_corpus(notes, context=4).sha256


def test_vocabulary_may_be_padded(notes):
    assert load_corpus(notes, context=4).vocab == 256
    assert load_corpus(notes, context=4, vocab=320).vocab == 320


def test_path_may_be_a_string(notes):
    assert load_corpus(str(notes), context=4).sha256 == load_corpus(notes, context=4).sha256


def test_missing_path(tmp_path):
    problem, remedy = message_of(tmp_path / "nowhere", context=4)
    assert problem == f"There is no file or folder {tmp_path / 'nowhere'}."
    assert remedy.startswith("Check the path (nothing is downloaded)")


def test_path_that_cannot_be_a_path():
    problem, remedy = message_of("x" * 5000, context=4)
    assert problem.endswith("File name too long.")
    assert remedy.startswith("Check that it is a file you may read")


def test_too_short_for_one_window_says_how_many_it_takes(notes):
    # 5 % of 400 bytes are 20: exactly one window of context 19, none of context 20
    assert load_corpus(notes, context=19).windows("report", context=19).shape == (128, 20)
    problem, remedy = message_of(notes, context=20)
    assert problem.startswith(
        "The validation split has 20 bytes, fewer than one window: context 20 needs 21 per split."
    )
    assert remedy == "Give at least 420 bytes in all (this has 400), or a smaller context."


def test_the_number_it_asks_for_is_enough(notes):
    notes.write_text("x" * 419)
    assert "at least 420" in message_of(notes, context=20)[1]
    notes.write_text("x" * 420)
    assert load_corpus(notes, context=20).train.numel() == 378


def test_too_short_file_in_a_split_by_file(tmp_path):
    for index in range(20):
        (tmp_path / f"{index:02d}").write_text("x" * (3 if index == 19 else 100))
    problem, remedy = message_of(tmp_path, context=4)
    assert problem.startswith("The report split has 3 bytes, fewer than one window")
    assert remedy == "Give longer texts, or a smaller context."


@pytest.mark.parametrize(("index", "split"), [(9, "validation"), (19, "report")])
def test_held_out_longer_than_train(tmp_path, index, split):
    for number in range(20):
        (tmp_path / f"{number:02d}").write_text("x" * (181 if number == index else 10))
    problem, remedy = message_of(tmp_path, context=4)
    assert problem.startswith(
        f"The {split} split is longer than the train split: 181 against 180 bytes."
    )
    assert remedy.startswith("Check whether the splits were swapped")


def test_more_train_tokens_than_there_are(notes):
    problem, remedy = message_of(notes, context=4, train_tokens=361)
    assert problem.startswith(
        "361 train tokens were asked for, but the train split has 360. Data: text of notes.txt"
    )
    assert remedy == "Ask for at most 360 with --train-tokens, or give a longer text."


def test_fewer_train_tokens_than_a_window(notes):
    problem, remedy = message_of(notes, context=4, train_tokens=4)
    assert problem == "4 train tokens are fewer than one window: context 4 needs 5."
    assert remedy == "Raise --train-tokens or lower the context."


@pytest.mark.parametrize("option", ["train_tokens", "vocab", "context"])
@pytest.mark.parametrize("value", [0, -3])
def test_numbers_out_of_range(notes, option, value):
    problem, remedy = message_of(notes, PlanError, **{"context": 4, option: value})
    assert problem == f"{option} must be at least 1, got {value}."
    assert remedy == "Give a whole number of 1 or more."


def test_vocabulary_smaller_than_the_bytes(notes):
    problem, remedy = message_of(notes, context=4, vocab=40)
    assert problem == (
        "Token id 48 at offset 0 of the train split is outside the vocabulary of 40 ids."
    )
    assert remedy.startswith("Pass --vocab")
