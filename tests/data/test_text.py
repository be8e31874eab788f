"""Tests of triplepoint.data.text and of what load_corpus makes of text."""

import platform

import pytest
import torch

from triplepoint.data import load_corpus
from triplepoint.errors import DataError


def text_of(tokens):
    return bytes(tokens.tolist())


@pytest.fixture(scope="module")
def library():
    return load_corpus(context=128)


def test_library_is_real_text_of_some_size(library):
    facts = library.describe()
    assert facts["train_tokens"] > 5_000_000
    assert min(facts["validation_tokens"], facts["report_tokens"]) > 100_000
    assert (library.unit, library.vocab, library.train.dtype) == ("byte", 256, torch.uint8)
    assert (library.train < 128).float().mean() > 0.99
    assert b"def __init__(self" in text_of(library.train[:1_000_000])
    # letters are not equally frequent: well below ln 256 = 5.5, above any order
    windows = library.windows("validation", context=128)
    assert 2.5 < library.unigram_cross_entropy(windows) < 4


def test_library_says_its_version(library):
    version = platform.python_version()
    assert library.describe()["python"] == version
    assert library.source.startswith(f"source text of the Python {version} standard library, bytes")


def test_library_is_the_same_each_time(library):
    assert load_corpus(context=128).sha256 == library.sha256


def test_library_leaves_out_packages_and_tests(monkeypatch, tmp_path):
    for name in ("a.py", "b.py", "site-packages/c.py", "test/d.py", "x/idle_test/e.py", "f.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    message = "holds only 2 source files of it.\nPass a text file or folder instead"
    with pytest.raises(DataError, match=message):
        load_corpus(context=128)


def test_file_is_split_in_order(tmp_path):
    data = bytes(range(32, 127)) * 4
    (tmp_path / "notes.txt").write_bytes(data[:200])
    corpus = load_corpus(tmp_path / "notes.txt", context=4)
    assert text_of(corpus.train) == data[:180]
    assert text_of(corpus.validation) == data[180:190]
    assert text_of(corpus.report) == data[190:200]
    assert corpus.source == (
        "text of notes.txt, bytes; first 90 % train, next 5 % validation, last 5 % report"
    )


def folder_of(root, count):
    for index in range(count):
        # in reverse, so that the order on disk is not the order wanted
        name = f"{count - 1 - index:02d}"
        (root / f"{name}.txt").write_text(f"<{name}>" * 5)
    return root


def test_folder_of_many_files_is_split_by_file(tmp_path):
    corpus = load_corpus(folder_of(tmp_path, 40), context=4)
    assert text_of(corpus.validation) == b"<09>" * 5 + b"<29>" * 5
    assert text_of(corpus.report) == b"<19>" * 5 + b"<39>" * 5
    assert text_of(corpus.train) == b"".join(
        b"<%02d>" % i * 5 for i in range(40) if i not in (9, 19, 29, 39)
    )
    assert "40 files of the folder" in corpus.source and "split by file" in corpus.source


def test_folder_of_few_files_is_one_text(tmp_path):
    corpus = load_corpus(folder_of(tmp_path, 19), context=4)
    whole = b"".join(b"<%02d>" % i * 5 for i in range(19))
    assert b"".join(map(text_of, (corpus.train, corpus.validation, corpus.report))) == whole
    assert len(corpus.report) == len(whole) // 20
    assert "last 5 % report" in corpus.source


def test_folder_is_read_by_relative_path_without_hidden_and_empty_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b" / "1.txt").write_text("B" * 100)
    (tmp_path / "c.txt").write_text("C" * 100)
    (tmp_path / "a.txt").write_text("A" * 100)
    (tmp_path / "empty").touch()
    (tmp_path / ".hidden").write_bytes(b"\0")
    (tmp_path / ".git" / "index").write_bytes(b"\0")
    corpus = load_corpus(tmp_path, context=4)
    assert text_of(corpus.train) == b"A" * 100 + b"B" * 100 + b"C" * 70
    assert "3 files" in corpus.source


def test_text_beyond_ascii_is_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("é" * 200, encoding="utf-8")
    assert load_corpus(tmp_path / "a.txt", context=4).train[:2].tolist() == [0xC3, 0xA9]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"text\0more", "a NUL byte at offset 4"),
        (b"caf\xe9 au lait", "the byte 0xe9, which is not UTF-8 at offset 3"),
        ("text".encode("utf-16"), "a NUL byte at offset 3"),
    ],
    ids=["nul", "latin-1", "utf-16"],
)
def test_binary_is_named_with_its_place(tmp_path, data, what):
    for path in (tmp_path / "bad.txt", tmp_path):
        (tmp_path / "bad.txt").write_bytes(data)
        with pytest.raises(DataError) as caught:
            load_corpus(path, context=4)
        problem, remedy = str(caught.value).split("\n")
        assert problem == f"{tmp_path / 'bad.txt'} is not text: {what}."
        assert remedy.startswith("Convert it to UTF-8, or leave it out of the folder")


def test_empty_file(tmp_path):
    (tmp_path / "none.txt").touch()
    with pytest.raises(DataError, match=r"none\.txt is empty\.\nPass a UTF-8 text file"):
        load_corpus(tmp_path / "none.txt", context=4)


@pytest.mark.parametrize("name", [".hidden", "empty"])
def test_folder_without_text(tmp_path, name):
    (tmp_path / name).write_text("" if name == "empty" else "text")
    with pytest.raises(DataError, match=r"The folder .* holds no text\.\nPass a UTF-8 text file"):
        load_corpus(tmp_path, context=4)


@pytest.mark.parametrize(
    "method", ["pathlib.Path.read_bytes", "os.scandir"], ids=["file", "folder"]
)
def test_unreadable_path_says_why(tmp_path, monkeypatch, method):
    (tmp_path / "a.txt").write_text("text")

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(method, refuse)
    with pytest.raises(DataError, match=r"Cannot read .*: Permission denied\.\nCheck that it is"):
        load_corpus(tmp_path, context=4)
