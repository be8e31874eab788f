"""Tests of triplepoint.data.hf, with a tokenizer and data sets made on the spot."""

import sys

import pytest
import torch

from triplepoint.data import load_corpus
from triplepoint.errors import DataError, MissingExtraError

WORDS = {"<unk>": 0, "<end>": 1, "one": 2, "two": 3, "three": 4}


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a tokenizer of five words that end at white space."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="<end>", model_max_length=8
    )
    fast.save_pretrained(tmp_path / "words")
    return tmp_path / "words"


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return pytest.importorskip("datasets")


def saved(folder, datasets, **splits):
    """Save one data set, or several as a dictionary; each split given as a dict of columns."""
    made = {name: datasets.Dataset.from_dict(columns) for name, columns in splits.items()}
    whole = made["alone"] if "alone" in made else datasets.DatasetDict(made)
    whole.save_to_disk(str(folder))
    return folder


def ids(count, start=0):
    return {"input_ids": [[start + i] for i in range(count)]}


def message_of(path, **options):
    with pytest.raises(DataError) as caught:
        load_corpus(path, context=4, **options)
    return str(caught.value).split("\n")


def test_text_goes_through_the_tokenizer(tmp_path, tokenizer):
    (tmp_path / "notes.txt").write_text("one two three four " * 50)
    corpus = load_corpus(tmp_path / "notes.txt", context=4, tokenizer=tokenizer)
    assert corpus.train.tolist() == [2, 3, 4, 0] * 45
    assert (corpus.unit, corpus.vocab, corpus.train.dtype) == ("token", 5, torch.int32)
    assert corpus.source.startswith("text of notes.txt, tokens of the tokenizer words; first 90 %")


def test_library_goes_through_the_tokenizer(tokenizer):
    corpus = load_corpus(context=4, tokenizer=str(tokenizer), train_tokens=1000)
    assert corpus.unit == "token"
    assert corpus.python is not None


def test_ids_of_a_data_set_without_splits(tmp_path, datasets):
    folder = saved(tmp_path / "set", datasets, alone=ids(200))
    corpus = load_corpus(folder, context=4, vocab=300)
    assert corpus.train.tolist() == list(range(180))
    assert corpus.report.tolist() == list(range(190, 200))
    assert (corpus.unit, corpus.vocab) == ("token", 300)
    assert corpus.source.startswith("column input_ids of the data set set, its own token ids")


def test_own_splits_are_used(tmp_path, datasets):
    splits = {"train": ids(50), "validation": ids(10, 100), "test": ids(8, 200)}
    corpus = load_corpus(saved(tmp_path / "set", datasets, **splits), context=4, vocab=300)
    assert corpus.train.tolist() == list(range(50))
    assert corpus.validation.tolist() == list(range(100, 110))
    assert corpus.report.tolist() == list(range(200, 208))


@pytest.mark.parametrize("name", ["validation", "test"])
def test_one_held_out_split_is_cut_in_halves(tmp_path, datasets, name):
    folder = saved(tmp_path / "set", datasets, train=ids(50), **{name: ids(12, 100)})
    corpus = load_corpus(folder, context=4, vocab=300)
    assert corpus.validation.tolist() == list(range(100, 106))
    assert corpus.report.tolist() == list(range(106, 112))
    assert f"first half of {name} validation" in corpus.source


def test_rows_of_text_are_bytes_with_a_newline_after_each(tmp_path, datasets):
    folder = saved(tmp_path / "set", datasets, alone={"text": ["one", "two", None, "é"] * 50})
    corpus = load_corpus(folder, context=4)
    assert bytes(corpus.train.tolist()).startswith("one\ntwo\n\né\none\n".encode())
    assert (corpus.unit, corpus.vocab) == ("byte", 256)


def test_rows_of_text_are_tokens_with_the_end_token_after_each(tmp_path, datasets, tokenizer):
    folder = saved(tmp_path / "set", datasets, alone={"text": ["one two", "three"] * 50})
    corpus = load_corpus(folder, context=4, tokenizer=tokenizer)
    assert corpus.train[:5].tolist() == [2, 3, 1, 4, 1]


def test_ids_take_the_vocabulary_of_the_tokenizer(tmp_path, datasets, tokenizer):
    folder = saved(tmp_path / "set", datasets, alone={"input_ids": [[2, 3, 4, 0]] * 50})
    assert load_corpus(folder, context=4, tokenizer=tokenizer).vocab == 5


def test_ids_without_a_vocabulary(tmp_path, datasets):
    problem, remedy = message_of(saved(tmp_path / "set", datasets, alone=ids(200)))
    assert problem.endswith("holds token ids and does not say of how many.")
    assert remedy.startswith("Pass --vocab (vocab=...), or --tokenizer")


def test_ids_beyond_the_vocabulary(tmp_path, datasets):
    problem, _ = message_of(saved(tmp_path / "set", datasets, alone=ids(200)), vocab=100)
    assert problem.startswith("Token id 100 at offset 100 of the train split")


def test_no_usable_column(tmp_path, datasets):
    folder = saved(tmp_path / "set", datasets, alone={"content": ["one"], "label": [1]})
    problem, remedy = message_of(folder)
    assert problem.endswith("has neither a column 'text' nor 'input_ids', only: content, label.")
    assert remedy.startswith("Rename its column")


def test_no_train_split(tmp_path, datasets):
    problem, remedy = message_of(saved(tmp_path / "set", datasets, test=ids(200)), vocab=300)
    assert problem.endswith("has no split 'train', only: test.")
    assert remedy.startswith("Save one split by itself")


def test_folder_that_only_looks_like_a_data_set(tmp_path, datasets):
    (tmp_path / "state.json").write_text("{}")
    problem, remedy = message_of(tmp_path)
    assert problem.startswith(f"The data set {tmp_path} cannot be loaded: ")
    assert remedy == "Write it again with `dataset.save_to_disk(folder)`."


def test_missing_tokenizer_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("one two " * 100)
    problem, remedy = message_of(tmp_path / "notes.txt", tokenizer="gpt2-not-here")
    assert problem == "There is no tokenizer folder gpt2-not-here."
    assert "nothing is downloaded" in remedy


def test_folder_without_a_tokenizer(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "bare").mkdir()
    problem, remedy = message_of(None, tokenizer=tmp_path / "bare")
    assert problem.startswith(f"The folder {tmp_path / 'bare'} holds no tokenizer that loads: ")
    assert remedy == "Pass a folder as `tokenizer.save_pretrained(folder)` writes it."


@pytest.mark.parametrize("package", ["datasets", "transformers"])
def test_missing_extra_names_the_command(tmp_path, monkeypatch, package):
    (tmp_path / "state.json").write_text("{}")
    # None in sys.modules is how Python marks a module that cannot be imported
    monkeypatch.setitem(sys.modules, package, None)
    options = {"tokenizer": tmp_path} if package == "transformers" else {}
    message = rf"needs the package '{package}'.*\nInstall it with: pip install 'triplepoint\[hf\]'"
    with pytest.raises(MissingExtraError, match=message):
        load_corpus(None if options else tmp_path, context=4, **options)
